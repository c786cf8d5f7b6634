"""The tables that follow from the chain: daily usage, keys, tenants, and what `meta` says."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from .canon import DAY_NS, FORMAT, USAGE_KEY, USAGE_SUMS, Standing, Usage
from .verdict import Verdict


def read_meta(db: sqlite3.Connection) -> dict[str, Any]:
    """All of `meta`."""
    return dict(db.execute("SELECT name, value FROM meta"))


def head_of(meta: Mapping[str, Any]) -> tuple[int, str] | None:
    """The last entry as `meta` names it: its seq and hash."""
    try:
        head = json.loads(meta["head"])
        seq, digest = head["seq"], head["hash"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return (seq, digest) if type(seq) is int and type(digest) is str else None


def check_meta(meta: Mapping[str, Any], verdict: Verdict, largest_number: int) -> None:
    """What `meta` must say besides the head."""
    if meta.get("format") != FORMAT:
        detail = f"meta.format is {meta.get('format')!r} and not {FORMAT!r}"
        verdict.fault("meta", detail)
    number = meta.get("number", largest_number)
    if type(number) is not int or number < largest_number:
        detail = f"meta.number is {number!r}, and request {largest_number} is in the ledger"
        verdict.fault("meta", detail)


def check_usage(db: sqlite3.Connection, usage: Usage, from_day: int, verdict: Verdict) -> None:
    """Compare `usage_daily` with its rows, on the days of which every row is still here."""
    due = {key: sums for key, sums in usage.sums.items() if key[0] >= from_day}
    columns = ", ".join((*USAGE_KEY, *USAGE_SUMS))
    width = len(USAGE_KEY)
    for row in db.execute(f"SELECT {columns} FROM usage_daily WHERE day >= ?", (from_day,)):
        key, found = row[:width], list(row[width:])
        sums = due.pop(key, None)
        if sums is None:
            verdict.fault("usage", f"{_usage_name(key)}: no request of it is in the ledger")
        elif sums != found:
            verdict.fault("usage", f"{_usage_name(key)}: {_differences(found, sums)}")
    for key in due:
        verdict.fault("usage", f"{_usage_name(key)}: removed")


def _differences(found: list[Any], due: list[int]) -> str:
    return ", ".join(
        f"{name} {found[at]}, its rows give {due[at]}"
        for at, name in enumerate(USAGE_SUMS)
        if found[at] != due[at]
    )


def _usage_name(key: tuple[Any, ...]) -> str:
    try:
        day = time.strftime("%Y-%m-%d", time.gmtime(key[0] * DAY_NS // 10**9))
    except (OverflowError, ValueError, OSError):
        day = f"day {key[0]}"
    names = zip(USAGE_KEY[1:], key[1:])  # noqa: B905 (Python 3.9)
    return f"usage_daily of {day}, " + ", ".join(f"{name} {value!r}" for name, value in names)


def check_standing(db: sqlite3.Connection, standing: Standing, verdict: Verdict) -> None:
    """Compare `keys` and `tenants` with what the chained actions made them."""
    keys = {(key["id"], _key_name(key)): key for key in standing.keys.values()}
    _compare("key", db.execute("SELECT id, name, body FROM keys"), keys, verdict)
    tenants = {(name,): state for name, state in standing.tenants.items()}
    _compare("tenant", db.execute("SELECT name, body FROM tenants"), tenants, verdict)


def _key_name(key: Mapping[str, Any]) -> str:
    """A revoked key gives its name free."""
    return str(key["name"] if key.get("revoked") is None else key["id"])


def _compare(
    what: str, rows: sqlite3.Cursor, due: dict[tuple[Any, ...], Any], verdict: Verdict
) -> None:
    for *names, body in rows:
        if tuple(names) not in due:
            verdict.fault(what, f"{what} {names[0]!r}: no entry of the chain made it so")
            continue
        state = due.pop(tuple(names))
        try:
            same = json.loads(body) == state
        except (ValueError, TypeError, RecursionError):
            same = False
        if not same:
            verdict.fault(what, f"{what} {names[0]!r}: not as the chain's last entry on it says")
    for names in due:
        verdict.fault(what, f"{what} {names[0]!r}: removed or renamed outside the chain")
