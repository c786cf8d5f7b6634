"""The `keys.json` of earlier versions, taken over into the ledger once."""

import re
from datetime import date, datetime
from pathlib import Path
from typing import Literal

import msgspec

from appliance.accounts.book import Book, Change, State
from appliance.accounts.keyrow import BOX, TENANT, KeyFileError, Scope, Stored

FILE_NAME = "keys.json"
FILE_BYTES = 16 * 1024 * 1024
"""A larger key file is taken for damaged."""


class _Old(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    scopes: frozenset[Scope]
    sha256: str
    created: datetime
    expires: date | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    keys: tuple[_Old, ...]


def take_over(book: Book) -> bool:
    """Moves the keys of a `keys.json` beside the ledger into it; False where there is none. Raises
    KeyFileError, and then nothing was changed."""
    path = book.path.with_name(FILE_NAME)
    try:
        body = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    old = _parsed(path, body)
    book.change(lambda state: _import(state, old), BOX)
    try:
        path.replace(path.with_name(f"{FILE_NAME}.imported"))
    except FileNotFoundError:
        pass  # Another process took it over at the same time: all its keys were known here.
    except OSError as error:
        raise _unusable(path, f"it cannot be renamed: {error.strerror}") from error
    return True


def _import(state: State, old: tuple[_Old, ...]) -> Change:
    """Keys that are known already stay as they are; a name that is taken gets the id added."""
    known = {key.id for key in state.keys}
    names = {key.name for key in state.keys if key.revoked is None}
    new = tuple(_stored(key, names) for key in old if key.id not in known)
    return Change("keys.import", FILE_NAME, {"keys": new}, keys=new)


def _stored(old: _Old, taken: set[str]) -> Stored:
    return Stored(
        id=old.id,
        name=f"{old.name} {old.id[2:]}" if old.name in taken else old.name,
        scopes=tuple(sorted(old.scopes)),
        tenant=TENANT,
        sha256=old.sha256,
        created=old.created,
        created_by="",
        created_from=FILE_NAME,
        expires=old.expires,
    )


def _parsed(path: Path, body: bytes) -> tuple[_Old, ...]:
    if len(body) > FILE_BYTES:
        raise _unusable(path, f"it is larger than {FILE_BYTES} bytes")
    try:
        keys = msgspec.json.decode(body, type=_File).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable(path, str(error)) from error
    if any(not re.fullmatch(r"[0-9a-f]{64}", key.sha256) for key in keys):
        raise _unusable(path, "a key's sha256 is not 64 hexadecimal digits")
    return keys


def _unusable(path: Path, why: str) -> KeyFileError:
    return KeyFileError(
        f"{path}: the keys of the earlier version cannot be taken over: {why}. Nobody can "
        "authenticate until it is restored from a copy, or moved away to go on without its keys"
    )
