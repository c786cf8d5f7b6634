"""From the token journal's records back to requests."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from appliance.engine import journal
from appliance.engine.journal import REASONS, SEGMENT_RECORDS, Kind, Record, Segment, segments
from appliance.engine.reports import Stats
from appliance.snapshot import Unreported

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """What the journal tells of one request. Times are monotonic ns; 0: never."""

    number: int
    key: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    tokens: dict[int, list[int]] = field(default_factory=dict)
    """Completion token ids of each choice that started."""
    ended: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Of each choice that ended: how, and how many of its tokens are hidden."""
    started_ns: int = 0
    first_token_ns: int = 0
    last_ns: int = 0
    gaps: bool = False
    """A token's record is missing: only the loss of power can do that."""

    def take(self, record: Record) -> None:
        """One more record of it, in the order in which they were written."""
        self.last_ns = record.at_ns
        match record.kind:
            case Kind.START:
                self.key = record.a
                self.tokens.setdefault(record.choice, [])
                self.started_ns = self.started_ns or record.at_ns
                if record.choice == 0:
                    self.cached_tokens = record.b
            case Kind.PREFILL:
                self.prefill_tokens += record.a
            case Kind.TOKEN:
                self._append(record)
            case Kind.END:
                self.ended[record.choice] = (REASONS[record.a], record.b)

    def _append(self, record: Record) -> None:
        self.first_token_ns = self.first_token_ns or record.at_ns
        found = self.tokens.setdefault(record.choice, [])
        self.gaps = self.gaps or record.b != len(found) + 1
        found.append(record.a)

    @property
    def completion_tokens(self) -> int:
        return sum(map(len, self.tokens.values()))

    @property
    def hidden_tokens(self) -> int:
        return sum(hidden for _, hidden in self.ended.values())


@dataclass(slots=True)
class Harvest:
    """What a set of segments tells."""

    requests: dict[int, Recovered] = field(default_factory=dict)
    torn: int = 0
    """Records that were not whole."""

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            known = self.requests.get(record.number)
            if known is None:
                known = self.requests[record.number] = Recovered(record.number)
            known.take(record)


def harvest(paths: Iterable[Path]) -> Harvest:
    """Every request in these segments. A segment that cannot be read raises OSError."""
    found = Harvest()

    def torn(slot: int) -> None:
        found.torn += 1

    for path in paths:
        found.take(journal.read(path, torn))
    return found


@dataclass(frozen=True, slots=True)
class Lost:
    """What an engine that is gone had written down."""

    requests: Mapping[int, Recovered] = field(default_factory=dict)
    unreported: Unreported = field(default_factory=Unreported)


def read_lost(directory: str, pid: int, stats: Stats) -> Lost:
    """Of the engine `pid`, which last told `stats`. What cannot be read is logged: it is still
    there at the next start."""
    try:
        life = _life(segments(Path(directory)), pid)
        return Lost(
            harvest(segment.path for segment in life).requests,
            _unreported(life, stats.journal_records),
        )
    except OSError as error:
        log.error("the token journal in %s cannot be read: %s", directory, error)
        return Lost()


def _life(every: Iterable[Segment], pid: int) -> list[Segment]:
    """The segments of the newest engine that had this process id."""
    mine = [segment for segment in every if segment.pid == pid]
    newest = max((segment.life for segment in mine), default=0)
    return [segment for segment in mine if segment.life == newest]


def _unreported(life: Iterable[Segment], reported: int) -> Unreported:
    """Sums the records from record `reported` on."""
    prompt = cached = predicted = 0
    for segment in life:
        skip = max(reported - segment.place * SEGMENT_RECORDS, 0)
        if skip >= SEGMENT_RECORDS:
            continue
        for record in journal.read(segment.path, _ignore, skip):
            if record.kind is Kind.PREFILL:
                prompt += record.a
            elif record.kind is Kind.TOKEN:
                predicted += 1
            elif record.kind is Kind.START and record.choice == 0:
                cached += record.b
    return Unreported(prompt, cached, predicted)


def _ignore(slot: int) -> None:
    """A torn record is the last one of a process that was killed amid a write."""
