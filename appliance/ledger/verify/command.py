"""The command line: `python3 verify LEDGER` or `python -m appliance.ledger.verify LEDGER`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from .check import Progress, verify
from .evidence import public_key, read_exported
from .opening import Unreadable
from .verdict import Verdict, plain

OK, FAULTS, UNREADABLE = 0, 1, 2
_REDRAW_S = 0.2


def main(argv: Sequence[str] | None = None) -> int:
    """Verify what the arguments name; the exit code."""
    options = _parser().parse_args(argv)
    try:
        verdict = run(
            options.ledger,
            fast=options.fast,
            against=options.against,
            keys=options.public_key,
            progress=progress_lines(sys.stderr) if options.progress else None,
        )
    except Unreadable as error:
        print(f"verify: {plain(error)}", file=sys.stderr)
        return UNREADABLE
    show(verdict, as_json=options.json)
    return OK if verdict.ok else FAULTS


def run(
    ledger: str,
    *,
    fast: bool,
    against: str | None,
    keys: Sequence[str],
    progress: Progress | None = None,
) -> Verdict:
    """Verify, with progress on a terminal unless `progress` is given. Raises Unreadable."""
    line = progress_line(sys.stderr) if progress is None else None
    try:
        return verify(
            ledger,
            progress or line,
            deep=not fast,
            against=read_exported(Path(against)) if against else None,
            trusted=[public_key(key) for key in keys],
        )
    finally:
        if line is not None:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def show(verdict: Verdict, *, as_json: bool) -> None:
    """Print it, for people or for programs."""
    print(json.dumps(verdict.as_dict(), indent=2) if as_json else verdict)


def progress_line(out: TextIO, clock: Callable[[], float] = time.monotonic) -> Progress | None:
    """One line that says how far it is and how long it takes; None where nobody sees it."""
    if not out.isatty():
        return None
    began = last = clock()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = clock()
        if now - last < _REDRAW_S:
            return
        last = now
        rate = done / max(now - began, 1e-9)
        left = (total - done) / rate
        text = f"{done} of {total} rows, {rate:,.0f} rows/s, {left:.0f} s left"
        print(f"\r\x1b[K{text}", end="", file=out, flush=True)

    return tell


def progress_lines(out: TextIO) -> Progress:
    """For a program that waits: `rows done, rows in all`, a line each."""
    return lambda done, total: print(done, total, file=out, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verify",
        description="Verify a Steelyard ledger, or a bundle made by `steelyard audit export`. "
        "Exit code: 0 intact, 1 faults, 2 cannot be read.",
    )
    parser.add_argument("ledger", help="ledger.sqlite, or the directory of a bundle")
    parser.add_argument(
        "--fast", action="store_true", help="leave out token digests and older signatures"
    )
    parser.add_argument(
        "--against",
        metavar="EARLIER",
        help="an earlier bundle, its seals.json or MANIFEST.json, or an older copy of the ledger",
    )
    parser.add_argument(
        "--public-key",
        metavar="KEY",
        action="append",
        default=[],
        help="who must have signed: 64 hex digits or a file; may be given several times",
    )
    parser.add_argument("--progress", action="store_true", help="tell it a line each, for programs")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    return parser
