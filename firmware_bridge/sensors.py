"""The board's channels as an operator reads them: corrected, with unit, sigma and quality; and what
the rails draw. Pure: belongs to whoever takes the link's events, and is told the time.

A channel that was not read is `unknown` and has no value. A channel whose references are known is
corrected by what they show (`drift`); the others are as the board told them.
"""

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from firmware_bridge.drift import Drift, DriftWindow
from firmware_bridge.events import BoardInfo, Description, Samples
from firmware_bridge.messages import UNREAD

Quality = Literal["ok", "stale", "unknown"]

ROWS = 10
"""Samples that a value is the mean of: 10 ms at 1 kHz."""
LOOK_EVERY = 10
"""Samples between two looks at a drift."""
STALE_S = 2.0
"""Without samples: the stream is every 5 ms."""
MOST_GAP_S = 1.0
"""Of lost samples that power is carried across, at the mean of its ends; longer is not measured."""
MOST_WATTS = 1e5
"""Of one rail. More is no measurement: a sensor or its description is at fault, and energy that
nothing has drawn must not get into the account of requests."""
UNDRIFTED = Drift(0.0, "none", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReading:
    """One channel now."""

    name: str
    unit: str
    quality: Quality
    value: float | None = None
    """Corrected. None: unknown."""
    raw: float | None = None
    """As the board measured it."""
    sigma: float
    """Of one sample's noise, in `unit`, as the board says."""
    drift: Drift = UNDRIFTED
    residuals: tuple[float | None, ...] = ()
    """Newest last, reading minus truth; empty where a channel has no references."""
    why: str = ""
    """Why it is unknown, and what to do."""


@dataclass(frozen=True, slots=True)
class RailEnergy:
    """What a rail has drawn since the board was first heard, in microjoules."""

    name: str
    uj: int
    watts: float
    at: float


class Sensors:
    """All channels of one board."""

    def __init__(self) -> None:
        self._board: BoardInfo | None = None
        self._channels: list[_Channel] = []
        self._rails: list[_Rail] = []
        self._at: float | None = None
        self._next = 0

    def greet(self, board: BoardInfo) -> None:
        """A board is ready. The same one again goes on where it was; its energy is never lost."""
        known = self._board
        if known is not None and known.uid == board.uid and known.channels == board.channels:
            self._board = replace(board)
            for rail in self._rails:
                rail.interrupted()
            return
        self._board = board
        self._channels = [_Channel(one) for one in board.channels]
        self._rails = list(_rails_of(board))
        self._at, self._next = None, 0

    def take(self, samples: Samples, now: float) -> None:
        """Rows of raw steps, one per sample. Rows of another width are not ours."""
        if self._board is None or any(len(row) != len(self._channels) for row in samples.rows):
            return
        self._at = now
        truths = {(one.index, one.channel): one.value for one in samples.references}
        for offset, row in enumerate(samples.rows):
            index = samples.first + offset
            for number, channel in enumerate(self._channels):
                channel.take(row[number], truths.get((index, number)))
            for rail in self._rails:
                rail.take(row, index, self._board.period_us / 1e6)
        self._look(samples.first + len(samples.rows))

    def _look(self, index: int) -> None:
        """References are looked at every 10 ms, whatever the size of a frame."""
        if index >= self._next or index < self._next - LOOK_EVERY:
            self._next = index + LOOK_EVERY
            for channel in self._channels:
                channel.look()

    def readings(self, now: float) -> tuple[ChannelReading, ...]:
        """All channels. Nothing heard for a while makes them stale."""
        old = self._at is None or now - self._at > STALE_S
        return tuple(channel.reading(old) for channel in self._channels)

    def energies(self) -> tuple[RailEnergy, ...]:
        """The rails that have both a voltage and a current, as far as they were read."""
        at = self._at
        if at is None:
            return ()
        return tuple(
            RailEnergy(rail.name, round(rail.joules * 1e6), rail.watts, at)
            for rail in self._rails
            if rail.watts is not None
        )


class _Channel:
    def __init__(self, told: Description) -> None:
        self._told = told
        self._raw: deque[int] = deque(maxlen=ROWS)
        self._heard = False
        sigma = told.sigma if math.isfinite(told.sigma) and told.sigma > 0 else 0.0
        self._sigma = sigma
        self._window = DriftWindow(sigma) if sigma else None
        self._pending: list[float] = []
        self._referenced = False
        self._drift = UNDRIFTED

    def take(self, raw: int, truth: int | None) -> None:
        self._heard = True
        if raw == UNREAD:
            self._raw.clear()
            return
        self._raw.append(raw)
        self._referenced = self._referenced or truth is not None
        if self._referenced:
            off = math.nan if truth is None else (raw - truth) * self._told.scale
            self._pending.append(off)

    def look(self) -> None:
        if self._window is not None and self._pending:
            self._window.push(np.array(self._pending))
            self._pending.clear()
            self._drift = self._window.estimate()

    def reading(self, old: bool) -> ChannelReading:
        told = self._told
        if not self._raw:
            why = (
                "the board cannot read this sensor: check its wiring (docs/board.md)"
                if self._heard
                else "no sample has come yet"
            )
            return ChannelReading(
                name=told.name, unit=told.unit, quality="unknown", sigma=self._sigma, why=why
            )
        steps = self._raw[-1] if not self._sigma else sum(self._raw) / len(self._raw)
        raw = steps * told.scale + told.offset
        return ChannelReading(
            name=told.name,
            unit=told.unit,
            quality="stale" if old else "ok",
            value=raw - self._bias(),
            raw=raw,
            sigma=self._sigma,
            drift=self._drift,
            residuals=self._window.residuals if self._referenced and self._window else (),
        )

    def _bias(self) -> float:
        """Of the samples that a reading is the mean of. A step among them was before some of them
        and after the others."""
        if self._window is None or not self._drift.stepped:
            return self._drift.bias
        known = max(0, len(self._raw) - len(self._pending))
        biases = float(self._window.biases(known).sum())
        return (biases + (len(self._raw) - known) * self._drift.bias) / len(self._raw)


class _Rail:
    """Power of one rail, added up sample by sample."""

    def __init__(self, name: str, volts: int, amperes: int, board: BoardInfo) -> None:
        self.name = name
        self.joules = 0.0
        self.watts: float | None = None
        self._volts, self._amperes = volts, amperes
        self._channels = board.channels
        self._index: int | None = None

    def interrupted(self) -> None:
        """The board's index may have begun anew."""
        self._index = None

    def take(self, row: tuple[int, ...], index: int, period_s: float) -> None:
        if row[self._volts] == UNREAD or row[self._amperes] == UNREAD:
            self._index, self.watts = None, None
            return
        volts, amperes = (
            row[number] * self._channels[number].scale + self._channels[number].offset
            for number in (self._volts, self._amperes)
        )
        watts = max(0.0, volts * amperes)
        if watts > MOST_WATTS:
            self._index, self.watts = None, None
            return
        before, self.watts = self.watts, watts
        gap = 0.0 if self._index is None else (index - self._index) * period_s
        self._index = index
        if before is not None and 0 < gap <= MOST_GAP_S:
            self.joules += (before + self.watts) / 2 * gap


def _rails_of(board: BoardInfo) -> "list[_Rail]":
    """`rail_12v` in volts and `current_12v` in amperes belong together."""
    places = {one.name: number for number, one in enumerate(board.channels)}
    found = []
    for name, number in places.items():
        rail = name.removeprefix("current_")
        volts = places.get(f"rail_{rail}")
        if rail != name and volts is not None and board.channels[number].unit == "A":
            found.append(_Rail(rail, volts, number, board))
    return found
