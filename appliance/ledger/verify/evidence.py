"""What was carried out of the box earlier: bundles, and the seals and heads in them."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .canon import seal_hash
from .ed25519 import signed_by
from .opening import Opened, Unreadable, is_database
from .projections import head_of, read_meta
from .seals import key_id
from .verdict import Verdict

BUNDLE_FORMAT = "steelyard-bundle-v1"
MANIFEST, SIGNATURE, LEDGER, SEALS = "MANIFEST.json", "MANIFEST.sig", "ledger.sqlite", "seals.json"
_PEM = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of an Ed25519 key in a PEM file."""
_READ_BYTES = 1 << 20


@dataclass
class Exported:
    """Seals and a head as somebody outside the box has kept them."""

    name: str
    seals: dict[int, str] = field(default_factory=dict)
    head: tuple[int, str] | None = None


def public_key(text: str) -> bytes:
    """A public key given as 64 hex digits, or as a file with them or in PEM. Raises Unreadable."""
    try:
        given = text if _is_hex(text) else Path(text).read_text(encoding="ascii")
        if "BEGIN PUBLIC KEY" in given:
            raw = base64.b64decode("".join(given.strip().splitlines()[1:-1]))
            key = raw[len(_PEM) :] if raw.startswith(_PEM) else b""
        else:
            key = bytes.fromhex(given.strip())
    except (OSError, ValueError) as error:
        raise Unreadable(f"{text}: no public key can be read there: {error}") from error
    if len(key) != 32:
        raise Unreadable(f"{text} is no Ed25519 public key")
    return key


def _is_hex(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdefABCDEF")


def signed_text(manifest: bytes) -> bytes:
    """What the signature of a bundle is over."""
    return BUNDLE_FORMAT.encode() + b"\n" + manifest


def read_exported(path: Path) -> Exported:
    """From a bundle, its seals.json or MANIFEST.json, or an older copy of the ledger. Raises
    Unreadable."""
    path = path / SEALS if path.is_dir() else path
    if is_database(path):
        return _of_ledger(path)
    found = _json(path)
    exported = Exported(str(path), head=head_of({"head": json.dumps(found.get("head", found))}))
    try:
        for seal in found.get("seals", ()):
            if seal_hash(seal["body"]).hex() != seal["hash"]:
                raise Unreadable(f"{path} was altered itself: seal {seal['segment']} is not whole")
            exported.seals[int(seal["segment"])] = seal["hash"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"{path} was altered itself: {error!r}") from error
    if exported.head is None and not exported.seals:
        raise Unreadable(f"{path} names neither seals nor a head to compare with")
    return exported


def _of_ledger(path: Path) -> Exported:
    opened = Opened(path)
    try:
        rows = opened.db.execute("SELECT segment, body FROM seals").fetchall()
        seals = {segment: seal_hash(body).hex() for segment, body in rows}
        return Exported(str(path), seals, head_of(read_meta(opened.db)))
    finally:
        opened.close()


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"{path} is not what an export contains")
    return found


def compare(db: sqlite3.Connection, exported: Exported, verdict: Verdict) -> None:
    """The ledger must still be the one that was exported: a history that was rewritten whole, with
    every hash made anew, shows only here."""
    here = {
        segment: seal_hash(body).hex()
        for segment, body in db.execute("SELECT segment, body FROM seals")
    }
    for segment, digest in sorted(exported.seals.items()):
        if here.get(segment) != digest:
            gone = "it is gone" if segment not in here else "it is another one"
            detail = f"{gone} since {exported.name} was made"
            verdict.fault(
                "export", detail, segment=segment, stored=here.get(segment, ""), computed=digest
            )
    if exported.head is not None:
        _compare_head(db, exported.name, *exported.head, verdict)


def _compare_head(
    db: sqlite3.Connection, name: str, seq: int, digest: str, verdict: Verdict
) -> None:
    row = db.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()
    here = row[0].hex() if row is not None and isinstance(row[0], bytes) else ""
    if row is not None and here != digest:
        detail = f"it, or a row before it, was replaced since {name} was made"
        verdict.fault("export", detail, seq=seq, stored=here, computed=digest)
    elif row is None and seq > verdict.last_seq:
        detail = f"rows were removed from the end since {name} was made"
        verdict.fault("export", detail, seq=verdict.last_seq + 1, last_seq=seq)


def check_bundle(
    path: Path, verdict: Verdict, trusted: Sequence[bytes]
) -> tuple[Exported, list[str]]:
    """Check that the files of a bundle are those it was made with. Its head, which its ledger must
    have, and the payloads that were left out of it. Raises Unreadable."""
    manifest = _json(path / MANIFEST)
    if manifest.get("format") != BUNDLE_FORMAT:
        raise Unreadable(f"{path} is no bundle that this program knows")
    try:
        for name, about in manifest["files"].items():
            problem = "is no name of a file in a bundle"
            if _inside(name):
                problem = _file_problem(path / name, about["bytes"], about["sha256"])
            if problem:
                verdict.fault("bundle", f"{name} {problem}")
        _check_signature(path, manifest["public_key"], verdict, trusted)
        for name in _unlisted(path, manifest["files"]):
            verdict.remark(f"{name} is in the bundle, and its manifest does not list it")
        if manifest["left_out"]:
            verdict.remark(f"left out of this copy: {', '.join(manifest['left_out'])}")
        head = head_of({"head": json.dumps(manifest["head"])})
        return Exported(MANIFEST, head=head), list(manifest["left_out"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"{path / MANIFEST} was altered: {error}") from error


def _inside(name: str) -> bool:
    """No way out of the bundle."""
    return not name.startswith("/") and ".." not in name.split("/")


def _file_problem(path: Path, due_bytes: int, due_sha256: str) -> str:
    digest = hashlib.sha256()
    size = 0
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return "is a link or a device, and was a file"  # which may never end
    try:
        with path.open("rb") as file:
            while size <= due_bytes and (block := file.read(_READ_BYTES)):
                digest.update(block)
                size += len(block)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if size > due_bytes:
        return f"has more bytes than the {due_bytes} that it had"
    if size != due_bytes:
        return f"has {size} bytes, and had {due_bytes}"
    return "" if digest.hexdigest() == due_sha256 else "was altered"


def _check_signature(path: Path, named: str, verdict: Verdict, trusted: Sequence[bytes]) -> None:
    keys = list(trusted) if trusted else [bytes.fromhex(named)] if named else []
    if not keys:
        verdict.remark("the bundle is not signed")
        return
    raw = (path / MANIFEST).read_bytes()
    try:
        signature = bytes.fromhex((path / SIGNATURE).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        signature = b""
    if not any(signed_by(key, signed_text(raw), signature) for key in keys):
        who = " or ".join(key_id(key) for key in keys)
        verdict.fault("bundle", f"{MANIFEST} is not signed by {who}, or was altered")


def _unlisted(path: Path, files: Iterable[str]) -> Iterator[str]:
    known = {*files, MANIFEST, SIGNATURE}
    for found in sorted(path.rglob("*")):
        name = found.relative_to(path).as_posix()
        if found.is_file() and name not in known and "__pycache__" not in name:
            yield name
