"""Corrections as they are logged, with all that they follow from; and the proof that they do. Pure.

An entry has what came in since the one before of its channel, and what was made of it. Now and then
it has the channel's whole state as well, so that older entries may go. `Recorder` writes entries,
`Replay` reads them: both run the same `Compensator`, so that what is stored must come out again bit
for bit, on any machine.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from appliance.control.compensator import Affine, Compensator
from appliance.control.correction import Correction
from appliance.control.window import Flight, Sample, Window

WHOLE_EVERY = 64
"""Entries of a channel between two with its whole state."""
_UNSOUND = Sample(float("nan"), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class State:
    """All that a channel is."""

    samples: tuple[Sample, ...]
    flights: tuple[Flight, ...]
    affine: Affine
    rejected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One evaluation of one channel."""

    run: int
    """Of the box: when it started. Corrections never outlive it."""
    channel: str
    number: int
    """Counts the channel's entries in this run, from 0."""
    state: State | None = None
    """Before what follows; always there where `number` is 0 or entries before it may be missing."""
    samples: tuple[Sample, ...] = ()
    unsound: int = 0
    """Samples that were no numbers."""
    running: tuple[Flight, ...] | None = None
    """None: as before."""
    made: Correction
    digest: str
    """Of the state after it."""


class Recorder:
    """One channel with its log."""

    def __init__(self, run: int, channel: str) -> None:
        self._run = run
        self._compensator = Compensator(channel)
        self._number = 0
        self._whole = True
        """The next entry must have the state."""
        self._told = self._compensator.flights
        """What runs, as the last entry left it."""
        self._last: Correction | None = None

    @property
    def compensator(self) -> Compensator:
        return self._compensator

    def lost(self) -> None:
        """Entries did not reach the ledger: the next one begins anew."""
        self._whole = True

    def tick(
        self,
        now: float,
        samples: Sequence[Sample] = (),
        running: Sequence[Flight] | None = None,
    ) -> tuple[Correction, Entry | None]:
        """Looks at the channel. No entry where nothing ended and nothing changed: requests that run
        are told again with the next one."""
        whole = self._whole or self._number % WHOLE_EVERY == 0
        state = replace(state_of(self._compensator), flights=self._told) if whole else None
        sound = tuple(one for one in samples if one.sound)
        made = self._compensator.tick(now, samples, running)
        if not samples and self._last is not None and made == replace(self._last, at=now):
            return made, None
        self._last, flights = made, self._compensator.flights
        entry = Entry(
            run=self._run,
            channel=self._compensator.channel,
            number=self._number,
            state=state,
            samples=sound,
            unsound=len(samples) - len(sound),
            running=flights if flights is not self._told else None,
            made=made,
            digest=digest_of(self._compensator),
        )
        self._number += 1
        self._whole, self._told = False, flights
        return made, entry


@dataclass(frozen=True, slots=True)
class Difference:
    """The first entry that does not follow from those before it."""

    seq: int
    run: int
    channel: str
    number: int
    what: str
    """Which of its members."""
    stored: str
    found: str


class Replay:
    """Takes entries in the order in which they were written."""

    def __init__(self) -> None:
        self._channels: dict[str, tuple[int, int, Compensator]] = {}
        """By name: run, number that comes next, state."""
        self.entries = 0
        self.gaps = 0
        """Entries that began anew where some before them are missing."""
        self.unread = 0
        """Entries whose beginning is no longer kept."""

    @property
    def channels(self) -> int:
        return len(self._channels)

    def take(self, seq: int, entry: Entry) -> Difference | None:
        """None: it follows."""
        known = self._channels.get(entry.channel)
        begun = self._begun(entry, known)
        if begun is None:
            return self._orphan(seq, entry, known)
        before, compensator = begun
        if before is not None:
            return _difference(seq, entry, *before)
        samples = (*entry.samples, *(_UNSOUND,) * entry.unsound)
        made = compensator.tick(entry.made.at, samples, entry.running)
        self._channels[entry.channel] = (entry.run, entry.number + 1, compensator)
        for what, stored, found in _members(entry, made, digest_of(compensator)):
            if repr(stored) != repr(found):
                return _difference(seq, entry, what, stored, found)
        self.entries += 1
        return None

    def _begun(
        self, entry: Entry, known: tuple[int, int, Compensator] | None
    ) -> tuple[tuple[str, object, object] | None, Compensator] | None:
        """The channel before the entry, and how its state differs from what that says; None where
        it cannot be known."""
        follows = known is not None and known[:2] == (entry.run, entry.number)
        if known is not None and follows:
            now = state_of(known[2])
            same = entry.state is None or repr(entry.state) == repr(now)
            return (None if same else ("state", entry.state, now)), known[2]
        if entry.state is None:
            return None
        self.gaps += entry.number > 0 and known is not None
        return None, restored(entry.channel, entry.state)

    def _orphan(
        self, seq: int, entry: Entry, known: tuple[int, int, Compensator] | None
    ) -> Difference | None:
        """An entry without a beginning: the oldest ones are kept no longer; others are missing."""
        if known is None and entry.number > 0:
            self.unread += 1
            return None
        expected = known[1] if known is not None and known[0] == entry.run else 0
        return _difference(seq, entry, "number", entry.number, expected)


def _members(entry: Entry, made: Correction, digest: str) -> Iterator[tuple[str, object, object]]:
    for field in fields(Correction):
        yield field.name, getattr(entry.made, field.name), getattr(made, field.name)
    yield "digest", entry.digest, digest


def _difference(seq: int, entry: Entry, what: str, stored: object, found: object) -> Difference:
    short = (repr(stored)[:200], repr(found)[:200])
    return Difference(seq, entry.run, entry.channel, entry.number, what, *short)


def replayed(entries: Iterable[tuple[int, Entry]]) -> tuple[Replay, Difference | None]:
    """All of them, up to the first that differs."""
    replay = Replay()
    for seq, entry in entries:
        different = replay.take(seq, entry)
        if different is not None:
            return replay, different
    return replay, None


def state_of(compensator: Compensator) -> State:
    return State(
        tuple(compensator.window), compensator.flights, compensator.affine, compensator.rejected
    )


def restored(channel: str, state: State) -> Compensator:
    found = Compensator(channel)
    found.window, found.flights = Window(state.samples), state.flights
    found.affine, found.rejected = state.affine, state.rejected
    return found


def digest_of(compensator: Compensator) -> str:
    """16 hex digits over every bit of the state."""
    affine, numbers = compensator.affine, [float(compensator.rejected)]
    numbers += (affine.shift, affine.scale, affine.pivot, affine.set, affine.steps, affine.clipped)
    for sample in compensator.window:
        numbers += (sample.length, sample.median, sample.sigma, sample.cut)
    for flight in compensator.flights:
        numbers += (flight.length, flight.median)
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    return hashlib.sha256(packed).hexdigest()[:16]
