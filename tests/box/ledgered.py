"""What a box wrote down, read by somebody who knows the formats and nothing of its code: the
ledger, the token journal, the counters; and whether all of them tell the same.
"""

import hashlib
import json
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.ledger.verify.check import verify
from appliance.ledger.verify.verdict import Verdict
from tests.box.running import RunningBox

Row = dict[str, Any]
PATIENCE_S = 30.0
_RECORD = struct.Struct("<IBBHQIIQ")
_START, _PREFILL, _TOKEN = 2, 3, 4


@dataclass(frozen=True, slots=True)
class Sums:
    """Tokens computed as prompt, tokens reused, tokens sampled."""

    prefill: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(slots=True)
class Journalled:
    """One request, as the token journal has it."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    prefill: int = 0
    cached: int = 0

    @property
    def sums(self) -> Sums:
        return Sums(self.prefill, self.cached, sum(map(len, self.tokens.values())))


class Ledgered:
    """The ledger and the journal of one state directory, whether its box runs or not."""

    def __init__(self, state: Path) -> None:
        self.path = state / "ledger.sqlite"
        self._journal = state / "journal"

    # -- the ledger ------------------------------------------------------------------------------

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def entries(self, kind: str, since: int = 0) -> list[Row]:
        """Bodies of one kind after entry `since`, each with its `seq`."""
        sql = "SELECT seq, body FROM entries WHERE kind = ? AND seq > ? ORDER BY seq"
        return [{**json.loads(body), "seq": seq} for seq, body in self.ask(sql, kind, since)]

    def rows(self, since: int = 0, **wanted: object) -> list[Row]:
        """Final rows whose members have these values."""
        return [
            row
            for row in self.entries("request", since)
            if all(row[name] == value for name, value in wanted.items())
        ]

    def wait_for(self, count: int = 1, **wanted: object) -> list[Row]:
        """As `rows`, once there are so many. Fails when there are more, or never enough."""
        give_up_at = time.monotonic() + PATIENCE_S
        while len(found := self.rows(**wanted)) < count:
            assert time.monotonic() < give_up_at, f"{len(found)} rows with {wanted}, not {count}"
            time.sleep(0.02)
        assert len(found) == count, f"{len(found)} rows with {wanted}, not {count}"
        return found

    def row(self, **wanted: object) -> Row:
        """The only one, once it is there."""
        (found,) = self.wait_for(1, **wanted)
        return found

    def tokens(self, row: Row) -> list[list[int]]:
        """Prompt and choices of a final row, as they are stored."""
        ((blob,),) = self.ask("SELECT tokens FROM payloads WHERE seq = ?", row["seq"])
        assert hashlib.sha256(blob).hexdigest() == row["tokens_sha256"]
        words = [word for (word,) in struct.iter_unpack("<I", zlib.decompress(blob))]
        count, *lengths = words[: words[0] + 1]
        found, at = [], count + 1
        for length in lengths:
            found.append(words[at : at + length])
            at += length
        assert at == len(words)
        return found

    @property
    def last_start(self) -> int:
        """The entry that the daemon's last start made."""
        starts = [note["seq"] for note in self.entries("note") if note["event"] == "started"]
        return max(starts, default=0)

    @property
    def in_flight(self) -> int:
        """Requests that were admitted and have no final row yet."""
        return int(self.ask("SELECT count(*) FROM pending")[0][0])

    def verify(self) -> Verdict:
        return verify(self.path)

    # -- the journal -----------------------------------------------------------------------------

    def journal(self) -> dict[int, Journalled]:
        """Requests by number, from every whole record. The box must not run."""
        found: dict[int, Journalled] = {}
        for path in sorted(self._journal.glob("*.tokens")):
            data = path.read_bytes()
            for offset in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
                crc, kind, choice, _, number, a, b, _ = _RECORD.unpack_from(data, offset)
                if kind not in (_START, _PREFILL, _TOKEN):
                    continue
                if crc != zlib.crc32(data[offset + 4 : offset + _RECORD.size]):
                    continue
                _take(found.setdefault(number, Journalled()), kind, choice, a, b)
        return found


def _take(request: Journalled, kind: int, choice: int, a: int, b: int) -> None:
    if kind == _START:
        request.tokens.setdefault(choice, [])
        request.cached += b if choice == 0 else 0
    elif kind == _PREFILL:
        request.prefill += a
    else:
        tokens = request.tokens.setdefault(choice, [])
        assert b == len(tokens) + 1, "a token is missing in the journal, or twice there"
        tokens.append(a)


def sums(rows: Iterable[Row]) -> Sums:
    total = Sums()
    for row in rows:
        total = Sums(
            total.prefill + row["prefill_tokens"],
            total.cached + row["cached_tokens"],
            total.completion + row["completion_tokens"],
        )
    return total


def counters(box: RunningBox) -> Sums:
    """What the engine counted since the daemon started."""
    found = {}
    for line in box.http.get("/metrics").text.splitlines():
        if line.startswith("llamacpp:"):
            name, value = line.split()
            found[name] = float(value)
    return Sums(
        round(found["llamacpp:prompt_tokens_total"]),
        round(found["llamacpp:prompt_tokens_cached_total"]),
        round(found["llamacpp:tokens_predicted_total"]),
    )


def settle(box: RunningBox, ledger: Ledgered) -> None:
    """Returns when nothing runs or waits, and every admitted request has its final row."""
    box.wait_until(
        lambda: ledger.in_flight == 0 and box.busy_slots() == 0, PATIENCE_S, "every row is written"
    )


def check_sums(box: RunningBox, ledger: Ledgered) -> None:
    """The rows of this run of the daemon sum to what its engines counted, to the token."""
    settle(box, ledger)
    written = sums(row for row in ledger.rows(since=ledger.last_start))
    assert written == counters(box)


def check_chain(ledger: Ledgered) -> None:
    """Every admission has exactly one end, and nobody has touched anything."""
    verdict = ledger.verify()
    assert verdict.ok, str(verdict)
    numbers = [row["number"] for row in ledger.rows()]
    assert len(set(numbers)) == len(numbers)


def check_usage(rows: Sequence[Row], usage: Mapping[str, Any]) -> None:
    """What the client was told is what its rows say."""
    prompt = sum(row["prompt_tokens"] for row in rows)
    completion = sum(row["completion_tokens"] for row in rows)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, completion)
    assert usage["total_tokens"] == prompt + completion
    details = usage["prompt_tokens_details"]
    assert details["cached_tokens"] == sum(row["cached_tokens"] for row in rows)


def check_stages(row: Row) -> None:
    """A request that was answered went through its stages in order."""
    stages = ("received_ns", "submitted_ns", "started_ns", "first_token_ns", "ended_ns")
    times = [row[name] for name in stages]
    assert all(times), times
    assert times == sorted(times), times
    assert row["received_wall_ns"] <= row["wall_ns"]


def digest(prompt: Iterable[int], completion: Iterable[int]) -> str:
    """Token digest v1, from its definition."""
    taken = hashlib.sha256(b"steelyard-token-v1\n")
    for place, token in enumerate([*prompt, *completion], 1):
        taken.update(struct.pack("<II", token, place))
    return taken.hexdigest()


def check_digests(ledger: Ledgered, row: Row) -> None:
    """Each choice's digest is that of the tokens that are stored, and so are the counts."""
    prompt, *choices = ledger.tokens(row)
    assert len(prompt) == row["prompt_tokens"]
    assert [len(tokens) for tokens in choices] == [c["completion_tokens"] for c in row["choices"]]
    assert [digest(prompt, tokens) for tokens in choices] == [c["digest"] for c in row["choices"]]
    assert sum(map(len, choices)) == row["completion_tokens"]
