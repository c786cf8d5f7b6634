"""The whole verification of one ledger, in one pass over its rows."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from .contents import Contents
from .evidence import LEDGER, Exported, check_bundle, compare
from .links import Links
from .opening import Opened
from .projections import check_meta, check_standing, check_usage, head_of, read_meta
from .seals import Seal, Sums, check_signatures, read_seals
from .verdict import Verdict

Progress = Callable[[int, int], None]
"""Called now and then with rows done and rows in all."""
PROGRESS_ROWS = 10_000

_ROWS = (
    "SELECT e.seq, e.kind, e.body, e.hash, p.seq, p.tokens, p.prompt, p.answers, p.report"
    " FROM entries e LEFT JOIN payloads p ON p.seq = e.seq ORDER BY e.seq"
)


def verify(
    path: str | Path,
    progress: Progress | None = None,
    *,
    deep: bool = True,
    against: Exported | None = None,
    trusted: Sequence[bytes] = (),
) -> Verdict:
    """Check everything that a ledger, or the one in a bundle, says against everything else it says,
    and against what was exported earlier. `trusted`: public keys of which one must have signed each
    seal. Raises Unreadable."""
    path, verdict = Path(path), Verdict(str(path), deep)
    earlier = [against] if against is not None else []
    left_out: Collection[str] = ()
    if path.is_dir():
        bundle, left_out = check_bundle(path, verdict, trusted)
        earlier.append(bundle)
        path = path / LEDGER
    opened = Opened(path)
    try:
        check(opened.db, verdict, progress, trusted, left_out)
        for exported in earlier:
            compare(opened.db, exported, verdict)
    except sqlite3.Error as error:
        after = f" after row {verdict.last_seq}" if verdict.rows else ""
        verdict.fault("file", f"damaged{after}: SQLite says: {error}")
    finally:
        opened.close()
    return verdict


def check(
    db: sqlite3.Connection,
    verdict: Verdict,
    progress: Progress | None = None,
    trusted: Sequence[bytes] = (),
    left_out: Collection[str] = (),
) -> None:
    """As `verify`, of a prepared connection. `left_out`: payloads that a copy does not have."""
    began = time.monotonic()
    _Check(db, verdict, progress, trusted, left_out).run()
    verdict.seconds = time.monotonic() - began


class _Check:
    def __init__(
        self,
        db: sqlite3.Connection,
        verdict: Verdict,
        progress: Progress | None,
        trusted: Sequence[bytes],
        left_out: Collection[str],
    ) -> None:
        self._db = db
        self._verdict = verdict
        self._progress = progress
        self._trusted = trusted
        self._left_out = left_out
        self._meta = read_meta(db)
        self._head = head_of(self._meta)
        self._seals = read_seals(db, verdict)
        first, last = db.execute("SELECT min(seq), max(seq) FROM entries").fetchone()
        self._first: int = first if first is not None else 1
        self._total = last - first + 1 if first is not None else 0
        self._links = Links(verdict, self._seals, self._head[0] if self._head else None)
        self._contents = Contents(verdict, self._seals, verdict.deep, whole=self._first == 1)
        self._segment_sound = True

    def run(self) -> None:
        self._links.start(max(self._first, 1))
        payloads = self._rows()
        self._ends()
        self._payload_rows(payloads)
        self._contents.finish(self._left_out)
        self._contents.requests.finish(self._links.tainted)
        check_meta(self._meta, self._verdict, self._contents.requests.largest)
        self._announcements()
        self._projections()
        self._signatures()

    def _rows(self) -> int:
        """Go through all rows; how many have a payload."""
        verdict, links, contents = self._verdict, self._links, self._contents
        ends, payloads, done = self._seals.by_last_seq, 0, 0
        text, self._db.text_factory = self._db.text_factory, bytes
        for seq, kind, body, stored, *parts in self._db.execute(_ROWS):
            if parts[0] is not None:
                payloads += 1
            if seq != links.due:
                self._segment_sound = False
                if not links.place(seq):
                    continue
            verdict.rows += 1
            verdict.last_seq = seq
            if links.follow(seq, kind, body, stored):
                contents.take(seq, kind, body, parts)
            else:
                self._segment_sound = False
            if seq in ends:
                self._close(ends[seq])
            done += 1
            if self._progress is not None and not done % PROGRESS_ROWS:
                self._progress(done, self._total)
        self._db.text_factory = text
        self._close_totals()
        return payloads

    def _close(self, seal: Seal) -> None:
        """A segment ends here: its rows must come to what its seal says."""
        sums = self._contents.sums
        known = {digest.hex() for digest in self._links.known}
        wrong = [] if seal.body["last_hash"] in known else [f"last_hash {seal.body['last_hash']}"]
        if self._segment_sound and sums.first_seq == seal.body["first_seq"]:
            wrong += sums.differences(seal.body)
        if wrong:
            detail = f"it does not fit its rows: {'; '.join(wrong)}"
            self._verdict.fault("seal", detail, segment=seal.segment)
        self._close_totals()

    def _close_totals(self) -> None:
        sums, verdict = self._contents.sums, self._verdict
        verdict.requests += sums.requests
        verdict.prompt_tokens += sums.prompt_tokens
        verdict.completion_tokens += sums.completion_tokens
        self._contents.sums = Sums()
        self._segment_sound = True

    def _ends(self) -> None:
        """Both ends of what is kept: where retention stopped, and the head."""
        verdict, links = self._verdict, self._links
        verdict.first_seq = max(self._first, 1)
        dropped = verdict.first_seq - 1
        verdict.dropped_rows = min(dropped, self._contents.dropped_to)
        if dropped > self._contents.dropped_to:
            detail = "removed, and no retention entry says so"
            first = self._contents.dropped_to + 1
            verdict.fault("missing", detail, seq=first, last_seq=dropped)
        elif dropped < self._contents.dropped_to:
            detail = f"retention dropped all rows up to {self._contents.dropped_to}; these are back"
            last = self._contents.dropped_to
            verdict.fault("inserted", detail, seq=verdict.first_seq, last_seq=last)
        last_seq = links.due - 1
        verdict.head = links.known[0].hex() if links.known else ""
        self._head_fits(last_seq)

    def _head_fits(self, last_seq: int) -> None:
        known = [digest.hex() for digest in self._links.known]
        if self._head is None:
            if "head" in self._meta or last_seq:
                self._verdict.fault("head", "meta.head does not name the last row any more")
            return
        seq, digest = self._head
        if seq > last_seq:
            gone = "removed from the end: meta.head still names the last of them"
            self._verdict.fault("missing", gone, seq=last_seq + 1, last_seq=seq, stored=digest)
        elif seq != last_seq or digest not in known:
            detail = f"meta.head names row {seq} as the last, and it is row {last_seq}"
            self._verdict.fault("head", detail, stored=digest, computed=self._verdict.head)

    def _payload_rows(self, joined: int) -> None:
        if joined == self._db.execute("SELECT count(*) FROM payloads").fetchone()[0]:
            return
        stray = "SELECT seq FROM payloads WHERE seq NOT IN (SELECT seq FROM entries) LIMIT 100"
        for (seq,) in self._db.execute(stray):
            self._verdict.fault(
                "payload", "a payload is stored for a row that is not there", seq=seq
            )

    def _announcements(self) -> None:
        if self._links.tainted:
            return
        for seal in self._seals.by_segment.values():
            if seal.sound and not seal.announced and seal.last_seq >= self._verdict.first_seq - 1:
                detail = f"row {seal.last_seq + 1} should tell of it, and does not"
                self._verdict.fault("seal", detail, segment=seal.segment)

    def _projections(self) -> None:
        if self._links.tainted:
            self._verdict.remark(
                "usage_daily, keys and tenants were not compared: rows are missing or altered"
            )
            return
        from_day = self._seals.covered_day(self._first)
        check_usage(self._db, self._contents.usage, from_day, self._verdict)
        check_standing(self._db, self._contents.standing, self._verdict)

    def _signatures(self) -> None:
        seals = list(self._seals.by_segment.values())
        signed = [seal for seal in seals if seal.signature is not None]
        chosen = seals if self._verdict.deep else signed[-1:]
        check_signatures(chosen, self._verdict, self._trusted, self._contents.standing.signers)
