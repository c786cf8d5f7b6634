"""The channels' windows while the box serves, and the corrections that follow from them.

Rules
1. Windows and corrections belong to the ticker's thread and to this run of the box: no restart
   keeps them. The event loop tells through a queue what has ended; what is published is frozen.
2. A tick takes at most one answer and looks at one channel, so that it is short whatever comes.
3. Each look that an answer brought, or that changed a correction, is logged with all that it
   follows from (control/replay.py). A ledger that cannot be written costs entries of the log, never
   a correction.
"""

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType

from appliance.control.correction import (
    FIRST,
    ChannelState,
    ControlSnapshot,
    Correction,
    TickerSnapshot,
)
from appliance.control.replay import Entry, Recorder
from appliance.control.window import Flight, Sample
from appliance.forecast.conformal import Corrected, Table
from appliance.forecast.told import Forecast, ForecasterSnapshot
from appliance.forecast.tracking import flight_of, sample_of

log = logging.getLogger(__name__)

MOST_CHANNELS = 64
"""Routes of clients' choice must not fill the memory: further ones share one channel."""
SHARED = "(other)"
MOST_WAITING = 1024
"""Answers that wait for a tick, 100 of which come in a second; further ones are passed over."""
RUNNING_EVERY_S = 2.0
"""Between two looks at what runs."""
WRITE_EVERY_S = 1.0
MOST_UNWRITTEN = 4096
"""Entries that wait for the ledger."""
REMEMBERED_S = 60.0
"""For so long a sample that was no number keeps the box degraded."""
_NO_NUMBERS = (
    "the forecaster told what is no number, and such answers correct nothing: see the log; "
    "should it last, install another version (`steelyard calibrate`)"
)

_Running = list[tuple[Corrected, int]]
Write = Callable[[Sequence[Entry]], "Future[int]"]
_NOTHING = Correction("")


class _Channel:
    """On the ticker's thread."""

    __slots__ = ("offsets", "recorder")

    def __init__(self, run: int, name: str, offsets: Sequence[float]) -> None:
        self.recorder = Recorder(run, name)
        self.offsets = offsets


class Compensation:
    """`observe` and `running` belong to the event loop, `tick` to the ticker's thread; what is
    published is anyone's."""

    def __init__(
        self,
        model: str,
        *,
        forecaster: Callable[[], ForecasterSnapshot],
        write: Write | None = None,
        sensors: Callable[[], tuple[ChannelState, ...]] = lambda: (),
        run: int = 0,
    ) -> None:
        """`forecaster`: the version in use and its calibration. `write`: takes entries to the
        ledger; None: there is none. `sensors`: the board's channels. The callables are called on
        any thread. `run`: a number that no other run of this box has."""
        self._model = model
        self._forecaster, self._write, self._sensors = forecaster, write, sensors
        self._run = run or time.time_ns()
        self._ended: queue.SimpleQueue[tuple[Forecast, int, bool]] = queue.SimpleQueue()
        self._flights: tuple[tuple[Forecast, int], ...] = ()
        self._seen_flights: object = self._flights
        self._channels: dict[str, _Channel] = {}
        self._version = ""
        self._due: deque[tuple[str, _Running]] = deque()
        self._looked = self._wrote = float("-inf")
        self._unwritten: list[Entry] = []
        self._writing: Future[int] | None = None
        self._written_now = 0
        self._logged = self._unlogged = 0
        self._rejected_at = float("-inf")
        self._corrections: MappingProxyType[str, Correction] = MappingProxyType({})
        self._told_version = ""
        self._states: dict[str, ChannelState] = {}
        self._snapshot = ControlSnapshot()

    # -- any thread ------------------------------------------------------------------------------

    def observe(self, forecast: Forecast, length: int, censored: bool) -> None:
        """An answer has ended after `length` tokens. Event loop."""
        for told in _stages(forecast):
            if self._ended.qsize() < MOST_WAITING:
                self._ended.put((told, length, censored))

    def running(self, flights: Sequence[tuple[Forecast, int]]) -> None:
        """All that run now, and their tokens so far. Replaces what was told before. Event loop."""
        self._flights = tuple(flights)

    def correction(self, version: str, route: str) -> Correction:
        """Of forecasts of this forecaster on this route. Any thread."""
        known = self._corrections
        if version != self._told_version:
            return _NOTHING
        return known.get(route) or known.get(SHARED, _NOTHING)

    def tokens(self) -> ControlSnapshot:
        """The token channels alone, as they were last published: costs nothing. Any thread."""
        return self._snapshot

    def snapshot(self, ticker: TickerSnapshot, now: float) -> ControlSnapshot:
        """Any thread."""
        found = self._snapshot
        bad = now - self._rejected_at < REMEMBERED_S
        return replace(
            found,
            channels=(*found.channels, *self._sensors()),
            ticker=ticker,
            logged=self._logged,
            unlogged=self._unlogged,
            degraded="; ".join(filter(None, (ticker.degraded, _NO_NUMBERS if bad else ""))),
        )

    # -- the ticker's thread ---------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Work of the ticker."""
        version = self._forecaster().version
        if version != self._version:
            self._renew(version)
        changed = self._take(now)
        if not changed:
            changed = self._look(now)
        if self._unwritten or self._writing is not None:
            self._log(now)
        if changed:
            self._publish(now)

    def _renew(self, version: str) -> None:
        """Another forecaster is in use: what was learned of the former is void."""
        self._version = version
        self._channels.clear()
        self._states.clear()
        self._due.clear()
        self._publish(0.0)

    def _take(self, now: float) -> bool:
        """One answer that has ended."""
        try:
            forecast, length, censored = self._ended.get_nowait()
        except queue.Empty:
            return False
        if forecast.version != self._version or forecast.corrected is None:
            return False
        route, channel = self._channel(forecast)
        sample = sample_of(forecast.corrected, channel.offsets, length, censored)
        if not sample.sound:
            self._rejected_at = now
        self._evaluate(route, channel, now, [sample], None)
        return True

    def _look(self, now: float) -> bool:
        """The channel whose turn it is, with what runs."""
        flights = self._flights
        if (
            not self._due
            and flights is not self._seen_flights
            and now - self._looked > RUNNING_EVERY_S
        ):
            self._seen_flights, self._looked = flights, now
            self._due.extend(self._grouped(flights).items())
            return False  # enough for one tick
        if not self._due:
            return False
        route, running = self._due.popleft()
        channel = self._channels.get(route)
        if channel is not None:
            known = [flight_of(told, channel.offsets, tokens) for told, tokens in running]
            self._evaluate(route, channel, now, (), known)
        return channel is not None

    def _grouped(self, flights: Sequence[tuple[Forecast, int]]) -> dict[str, _Running]:
        """By route; of routes on which nothing runs any more, nothing."""
        found: dict[str, _Running] = {route: [] for route in self._channels}
        told = ((one, generated) for newest, generated in flights for one in _stages(newest))
        for forecast, generated in told:
            if forecast.version == self._version and forecast.corrected is not None:
                route, _ = self._channel(forecast)
                found.setdefault(route, []).append((forecast.corrected, generated))
        return {
            route: running
            for route, running in found.items()
            if running or self._channels[route].recorder.compensator.flights
        }

    def _channel(self, forecast: Forecast) -> tuple[str, _Channel]:
        route = route_of(forecast)
        if route not in self._channels and len(self._channels) >= MOST_CHANNELS:
            route = SHARED
        if route not in self._channels:
            found = self._forecaster()
            table = found.calibration_first if forecast.stage else found.calibration
            offsets = (table or Table()).offsets(forecast.route)
            self._channels[route] = _Channel(self._run, f"{self._model}/{route}", offsets)
        return route, self._channels[route]

    def _evaluate(
        self,
        route: str,
        channel: _Channel,
        now: float,
        samples: Sequence[Sample],
        running: Sequence[Flight] | None,
    ) -> None:
        made, entry = channel.recorder.tick(now, samples, running)
        if entry is not None and self._write is not None:
            self._unwritten.append(entry)
        self._states[route] = _state(channel.recorder, made)

    def _publish(self, now: float) -> None:
        corrections = {route: state.correction for route, state in self._states.items()}
        self._corrections = MappingProxyType(corrections)
        self._told_version = self._version
        self._snapshot = ControlSnapshot(channels=tuple(self._states.values()), at=now)

    # -- the log ---------------------------------------------------------------------------------

    def _log(self, now: float) -> None:
        """Hands entries to the ledger, once a second, never more than one lot at a time."""
        if self._writing is not None and not self._written():
            if len(self._unwritten) > MOST_UNWRITTEN:
                self._lose(0)
            return
        if self._write is not None and self._unwritten and now - self._wrote >= WRITE_EVERY_S:
            self._wrote = now
            entries, self._unwritten = self._unwritten, []
            self._written_now = len(entries)
            self._writing = self._write(entries)

    def _written(self) -> bool:
        """Whether the last lot is done with."""
        assert self._writing is not None
        if not self._writing.done():
            return False
        if self._writing.exception() is None:
            self._logged += self._written_now
        else:
            self._lose(self._written_now)
        self._writing = None
        return True

    def _lose(self, entries: int) -> None:
        """The log begins anew: with every channel's whole state."""
        if not self._unlogged:
            log.warning("corrections could not be logged; the log begins anew after them")
        self._unlogged += entries + len(self._unwritten)
        self._unwritten = []
        for channel in self._channels.values():
            channel.recorder.lost()


def route_of(forecast: Forecast) -> str:
    return forecast.route + (FIRST if forecast.stage else "")


def _stages(forecast: Forecast) -> tuple[Forecast, ...]:
    """What was told before the first token, and with it: each is corrected by itself."""
    both = (forecast,) if forecast.before is None else (forecast.before, forecast)
    return tuple(one for one in both if one.version and one.corrected is not None)


def _state(recorder: Recorder, made: Correction) -> ChannelState:
    compensator = recorder.compensator
    return ChannelState(
        kind="tokens",
        channel=compensator.channel,
        unit="log",
        correction=made,
        window=tuple(one.length - one.median for one in compensator.window),
        cut=tuple(one.cut for one in compensator.window),
        running=len(compensator.flights),
    )
