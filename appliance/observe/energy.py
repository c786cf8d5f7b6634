"""Measured energy, and whose it was. Pure: `now` is an argument, what was read comes in with it.

    measured = attributed + idle + pending                       to the microjoule, at any moment

The machine's energy between two looks is parted first: while nothing computes it is idle; while
requests run it is computing; where an interval has both, the time without device time is idle at
the draw that was last seen with nothing running (or, before there was one, at the interval's mean).
What was drawn for computing is `pending` until requests take their shares as they end:

    share    = device time x busy power
    power    = energy drawn for computing / device time, over the time in which the request ran

and never more than is pending: shares cannot sum to more than was measured.

Limits
1. The sensors measure the machine (packages and GPUs), so what other programs draw meanwhile is in.
2. The last look may be one poll old, so the first request after a pause can get up to one poll's
   energy less than it drew; the next one takes it. One of which less than half is measured gets no
   figure, not a wrong one.
3. Ten requests in one step share it as they share its device time, whatever each token drew.
4. When nothing has run for a minute, what nobody took (requests lost with the engine) is idle.
5. When a source comes or goes the reckoning begins anew, so a row's source names all of its energy.
"""

from collections import Counter, deque
from dataclasses import dataclass

from appliance.observe.readings import Draw, EnergyCounter, Found, grown

MOST_GAP_S = 10.0
"""Between two looks at a power that is multiplied with time: after more it says nothing."""
FRESH_S = 10.0
"""A measurement older than this tells nothing of a request that ends now."""
QUIET_S = 60.0
"""Without any device time, until what is pending is nobody's."""
_MARKS = 1200
"""Looks that are remembered: ten minutes at two a second. A longer request has their mean."""


@dataclass(slots=True)
class _Span:
    """Time between two looks, or more where a long step ended in none of them."""

    running: bool
    """Whether requests ran when it began."""
    uj: int = 0
    s: float = 0.0
    ns: int = 0
    """Device time that was told in it."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The sums at one look."""

    at: float
    uj: int
    ns: int


class EnergyMeter:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self.source = ""
        """What measures, e.g. `NVML+RAPL`; `… power`: power times time. Empty: nothing yet."""
        self.watts: float | None = None
        """Drawn over the last interval, by all that measures."""
        self.computing_uj = 0
        """Ever drawn for computing."""
        self.joules: Counter[tuple[str, str]] = Counter()
        """Microjoules by source and kind, `attributed` and `idle`: they only grow."""
        self.measured_uj = 0
        self._pool = 0
        self._span = _Span(False)
        self._counters: dict[tuple[str, str], EnergyCounter] = {}
        self._draws: dict[tuple[str, str], Draw] = {}
        self._device_ns: int | None = None
        self._at = 0.0
        self._fresh_at: float | None = None
        self._quiet_s = 0.0
        self._idle_w: float | None = None
        self._device_sum = 0
        self._marks: deque[_Mark] = deque(maxlen=_MARKS)
        self._lately = (0, 0)
        """Energy and device time of the last span that had both."""

    @property
    def attributed_uj(self) -> int:
        return self._sum("attributed")

    @property
    def idle_uj(self) -> int:
        return self._sum("idle")

    @property
    def pending_uj(self) -> int:
        """Measured, and not yet anybody's."""
        return self._pool + self._span.uj

    def _sum(self, kind: str) -> int:
        return sum(uj for (_, of), uj in self.joules.items() if of == kind)

    # -- looks -----------------------------------------------------------------------------------

    def tick(self, found: Found, *, device_ns: int, running: bool, now: float) -> None:
        """One look. `device_ns`: device time ever told; `running`: whether requests run now."""
        gains = self._gains(found)
        told = max(0, device_ns - self._device_ns) if self._device_ns is not None else 0
        seconds, self._at, self._device_ns = now - self._at, now, device_ns
        if not gains or seconds <= 0:
            self.watts, self._span.running = None, running
            return
        self._name("+".join(sorted(gains)))
        uj = sum(gains.values())
        self.measured_uj += uj
        self.watts, self._fresh_at = uj / 1e6 / seconds, now
        span = self._span
        span.uj, span.s, span.ns = span.uj + uj, span.s + seconds, span.ns + told
        if span.ns or not running:
            self._span = _Span(running)
            self._part(span, running, now)

    def _gains(self, found: Found) -> Counter[str]:
        """Microjoules by source since the last look; what has no earlier one is left out."""
        gains: Counter[str] = Counter()
        counters = {(one.source, one.name): one for one in found.counters}
        draws = {(one.source, one.name): one for one in found.draws}
        for key, counter in counters.items():
            if (gain := grown(self._counters.get(key), counter)) is not None:
                gains[counter.source] += gain
        for key, draw in draws.items():
            if (gain := _drawn(self._draws.get(key), draw)) is not None:
                gains[f"{draw.source} power"] += gain
        self._counters, self._draws = counters, draws
        return gains

    def _name(self, source: str) -> None:
        if source != self.source:
            self.settle()
            self._marks.clear()
            self._lately, self._idle_w = (0, 0), None
            self.source = source

    def _part(self, span: _Span, running: bool, now: float) -> None:
        """A span ends: what of it was computing, what idle."""
        busy = _busy_uj(span, running, self._idle_w)
        if not span.ns:
            self._idle_w = span.uj / 1e6 / span.s
        self._pool += busy
        self.computing_uj += busy
        self._idle(span.uj - busy)
        if span.ns:
            self._device_sum += span.ns
            self._lately = busy, span.ns
        self._marks.append(_Mark(now, self.computing_uj, self._device_sum))
        self._quiet_s = 0.0 if span.ns else self._quiet_s + span.s
        if self._quiet_s >= QUIET_S:
            self.settle()

    def _idle(self, uj: int) -> None:
        if uj:
            self.joules[self.source, "idle"] += uj

    def settle(self) -> None:
        """What is pending is nobody's."""
        self._idle(self.pending_uj)
        self._pool, self._span = 0, _Span(self._span.running)

    # -- shares ----------------------------------------------------------------------------------

    def claim(self, *, device_ns: int, started: float, now: float) -> tuple[int | None, str]:
        """The energy of a request that ends now and ran since `started`, and its source. None:
        not measured."""
        if self._fresh_at is None or now - self._fresh_at > FRESH_S or device_ns <= 0:
            return None, ""
        uj, ns = self._power_since(started)
        due = device_ns * uj // ns if ns else 0
        share = min(due, self._pool)
        if share == 0 or 2 * share < due:
            return None, ""
        self._pool -= share
        self.joules[self.source, "attributed"] += share
        return share, self.source

    def _power_since(self, started: float) -> tuple[int, int]:
        """Energy drawn for computing, and its device time. Where none was told since, the last."""
        if not self._marks:
            return self._lately
        last = base = self._marks[-1]
        for base in reversed(self._marks):
            if base.at <= started:
                break
        uj, ns = last.uj - base.uj, last.ns - base.ns
        return (uj, ns) if ns else self._lately


def _busy_uj(span: _Span, running: bool, idle_w: float | None) -> int:
    """What of a span's energy was drawn for computing; never more than all."""
    if not span.ns:
        return 0
    if span.running and running:
        return span.uj
    mean_w = span.uj / 1e6 / span.s
    rest_w = mean_w if idle_w is None else min(idle_w, mean_w)
    rest_uj = round(rest_w * 1e6 * max(0.0, span.s - span.ns / 1e9))
    return max(0, span.uj - rest_uj)


def _drawn(before: Draw | None, after: Draw) -> int | None:
    """Microjoules between two looks at a power."""
    if before is None or not 0 < after.at - before.at <= MOST_GAP_S:
        return None
    return max(0, round((before.watts + after.watts) / 2 * (after.at - before.at) * 1e6))
