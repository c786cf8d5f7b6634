"""Carrying the ledger out of the box: a directory, for a USB stick, that a stranger can verify.

It is written under another name and renamed at the end, so a stick that was pulled out early holds
nothing that looks whole.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from appliance import durable
from appliance.ledger import verify
from appliance.ledger.append import append
from appliance.ledger.database import connect, explained, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.keysign import Signer
from appliance.ledger.rows import Action
from appliance.ledger.seals import seal_now
from appliance.ledger.snapshot import copy_ledger
from appliance.ledger.verify.evidence import (
    BUNDLE_FORMAT,
    LEDGER,
    MANIFEST,
    SEALS,
    SIGNATURE,
    signed_text,
)

PUBLIC_KEY = "public-key.pem"
README = "README.txt"
TEXTS = ("prompt", "answers")
_ROOM_BYTES = 4 << 20
"""For all other files, and what the file system itself needs."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Bundle:
    """What was written."""

    path: Path
    head_seq: int
    head: str
    seals: int
    bytes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """What is exported, by whom, and how."""

    ledger: Path
    signer: Signer | None
    host: str
    version: str
    operator: str
    texts: bool = True


def export(source: Source, target: Path, wall_ns: int) -> Bundle:
    """Seal the ledger and write a bundle of it into the directory `target`. Raises LedgerError."""
    if not target.is_dir():
        raise LedgerError(f"{target} is not a directory: mount the stick, or make it")
    warnings = _try(source.ledger, lambda db: seal_now(db, source.signer, wall_ns), "sealed first")
    final = _free_name(target, source.host, wall_ns)
    partial = final.with_name(f".{final.name}.partial")
    with _explained(target):
        _check_room(source.ledger, target)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            head, seals = _write(source, partial, wall_ns)
            partial.rename(final)
            durable.sync(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    told = _action(source, final, head, wall_ns)
    warnings += _try(source.ledger, lambda db: append(db, [(told, None)]), "noted in the ledger")
    size = sum(file.stat().st_size for file in final.rglob("*") if file.is_file())
    return Bundle(final, head["seq"], head["hash"], seals, size, warnings)


def _try(ledger: Path, change: Callable[[Database], object], what: str) -> tuple[str, ...]:
    """An export is wanted most where the ledger cannot be written any more."""
    try:
        with closing(connect(ledger, create=False)) as db, transaction(db, ledger):
            change(db)
    except LedgerError as error:
        return (f"the export could not be {what}: {error}",)
    return ()


def _free_name(target: Path, host: str, wall_ns: int) -> Path:
    day = time.strftime("%Y-%m-%d", time.gmtime(wall_ns // 10**9))
    name = f"steelyard-ledger-{re.sub(r'[^A-Za-z0-9.-]+', '-', host) or 'box'}-{day}"
    names = [name, *(f"{name}-{count}" for count in range(2, 1000))]
    return next(path for name in names if not (path := target / name).exists())


def _check_room(ledger: Path, target: Path) -> None:
    beside = ledger.with_name(f"{ledger.name}-wal")
    held = ledger.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
    need, free = held + _ROOM_BYTES, shutil.disk_usage(target).free
    if free < need:
        raise LedgerError(
            f"{target} has {free >> 20} MiB free, and the ledger may need {need >> 20}: take a "
            "larger stick, or free some space on it"
        )


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        with explained(target):
            yield
    except OSError as error:
        raise LedgerError(
            f"the bundle could not be written to {target} ({error.strerror}); nothing was left "
            "there: check that the stick can be written, has room and takes files of that size"
        ) from error


def _write(source: Source, partial: Path, wall_ns: int) -> tuple[dict[str, Any], int]:
    """All files, durable. The head, and how many seals there are."""
    partial.mkdir()
    copy_ledger(source.ledger, partial / LEDGER, leave_out=() if source.texts else TEXTS)
    head, seals = _seals_of(partial / LEDGER)
    key = source.signer.public_key.hex() if source.signer is not None else ""
    exported = {"format": verify.FORMAT, "head": head, "public_key": key, "seals": seals}
    (partial / SEALS).write_text(json.dumps(exported, indent=1), encoding="utf-8")
    if source.signer is not None:
        (partial / PUBLIC_KEY).write_bytes(source.signer.public_pem())
    _copy_verifier(partial / "verify")
    (partial / README).write_text(_readme(source), encoding="utf-8")
    _seal_bundle(source, partial, head, key, wall_ns)
    for directory in (partial / "verify", partial):
        durable.sync(directory)
    return head, len(seals)


def _seals_of(ledger: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Of the copy itself: the box may have gone on."""
    with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?immutable=1", uri=True)) as db:
        found = db.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()
        if found is None:
            raise LedgerError("the ledger is empty: there is nothing to export yet")
        rows = db.execute(
            "SELECT segment, body, lower(hex(hash)), lower(hex(signature)), signer FROM seals"
            " ORDER BY segment"
        ).fetchall()
    names = ("segment", "body", "hash", "signature", "signer")
    return json.loads(found[0]), [dict(zip(names, row, strict=True)) for row in rows]


def _copy_verifier(target: Path) -> None:
    target.mkdir()
    for module in sorted(Path(verify.__file__).parent.glob("*.py")):
        (target / module.name).write_bytes(module.read_bytes())


def _seal_bundle(
    source: Source, partial: Path, head: dict[str, Any], key: str, wall_ns: int
) -> None:
    """The manifest over all files, and its signature."""
    files = {
        file.relative_to(partial).as_posix(): _measured(file)
        for file in sorted(partial.rglob("*"))
        if file.is_file()
    }
    manifest = {
        "format": BUNDLE_FORMAT,
        "host": source.host,
        "version": source.version,
        "made_wall_ns": wall_ns,
        "head": head,
        "public_key": key,
        "left_out": [] if source.texts else list(TEXTS),
        "files": files,
    }
    text = json.dumps(manifest, indent=1).encode()
    durable.replace(partial / MANIFEST, text)
    if source.signer is not None:
        signature = source.signer.sign(signed_text(text)).hex()
        durable.replace(partial / SIGNATURE, f"{signature}\n".encode())


def _measured(file: Path) -> dict[str, Any]:
    """Size and SHA-256, once it is durable."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        while block := opened.read(_READ_BYTES):
            digest.update(block)
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _action(source: Source, final: Path, head: dict[str, Any], wall_ns: int) -> Action:
    manifest = hashlib.sha256((final / MANIFEST).read_bytes()).hexdigest()
    return Action(
        wall_ns=wall_ns,
        action="audit.export",
        target=final.name,
        operator=source.operator,
        host="local",
        detail={"head": head, "manifest_sha256": manifest, "texts": source.texts},
    )


def _readme(source: Source) -> str:
    who = f"key {source.signer.id}" if source.signer is not None else "nobody: the box has no key"
    return f"""\
The ledger of the Steelyard box {source.host}
============================================

In this directory is a copy of everything that the box counted: one row for each request, with its
tokens, its caller and its cost. Anybody can check that the copy is whole and that nothing in it was
changed since it was written. No Steelyard is needed, only Python 3.9 or later.

    python3 -B verify .

says at the end "intact", or names each row that is not as it was written (exit code 1).

Trust in the program: `verify` in this directory came out of the same box. Who does not trust the
box takes the program from Steelyard's own sources instead (appliance/ledger/verify) and runs it on
this directory.

Trust in the key: the bundle is signed by {who}.
{PUBLIC_KEY} in this directory is the key it claims. Compare it with the key that you were given
when the box was installed (`steelyard audit key` on the box prints it), and then run

    python3 -B verify . --public-key KEY-YOU-WERE-GIVEN

Trust in the past: keep this directory, or at least {SEALS}. With it a later copy can be checked for
having been rewritten as a whole, which no copy shows by itself:

    python3 -B verify LATER-COPY --against {SEALS}

What the files are: {LEDGER} is a SQLite database; {SEALS} has the seals of all its segments;
{MANIFEST} has the size and SHA-256 of each file, and {SIGNATURE} is the signature over it.
docs/ledger.md in Steelyard's documentation defines every hash, for those who want to write their
own checks.
"""
