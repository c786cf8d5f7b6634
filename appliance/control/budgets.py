"""How the KV cells are parted between the two pools, and how cautiously peaks are predicted. Pure.

Rules of the split, looked at once a cycle (10 ms)
1. Pool B idle: after every `IDLE_CYCLES` cycles it keeps `GIVE_BACK` of its cells; A has all soon.
2. Pool A less than `TIGHT` free and its predicted peak over its cells: B gives what is missing.
3. Else B has its share again, as far as A's predicted peak leaves room. The share shrinks as A's
   forecasts get worse: what is uncertain needs more room.
4. A never has less than `a_least`, nobody less than nothing, and both together have all cells.

What a pool does not use the other one may; that is the engine's business (docs/budgets.md).
"""

import math
from dataclasses import dataclass, replace

IDLE_CYCLES = 3
GIVE_BACK = 0.8
TIGHT = 0.15
WORST_ERROR, BEST_ERROR = 2.0, 0.8
"""Bounds of the forecast error (standard deviation over that at calibration) that the split heeds:
below the lower one a good run would be taken for skill."""
GRAIN = 64
"""Cells are moved in this part of the cache: finer, every step of the engine would move some."""

TAU_LEAST, TAU_MOST = 0.5, 0.99
STEP = 0.05
"""What an overflow adds to tau; as many starts as the target allows take it away again."""
PRESS = 0.08
"""What a lasting excess of overflows adds at most."""
SATURATED = 3.0
"""Overflows in excess at which most of `PRESS` is in force."""
SCARCE = 0.5
"""Of the cells: while less is predicted to be in use, a start says nothing of tau."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cycle sees. Cells but for what says otherwise."""

    cells: int
    """In all; 0 before the engine has told."""
    a_used: int = 0
    a_peak: int = 0
    b_used: int = 0
    b_peak: int = 0
    batch: bool = False
    """Whether any request of pool B waits or runs."""
    starts: int = 0
    """Requests that have started, since the daemon began."""
    overflows: int = 0
    """Likewise, of cells that ran out although the predicted peak had fitted."""
    error: float | None = None
    """Of pool A's forecasts: standard deviation over that at calibration. None: unknown."""


@dataclass(frozen=True, slots=True)
class Split:
    """How the cells are parted. `idle`: cycles without any batch request."""

    b_cells: int
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Caution:
    """The quantile `tau`, and what it comes from."""

    level: float
    excess: float = 0.0
    """Overflows beyond the target so far, bounded."""

    @property
    def tau(self) -> float:
        pressed = self.level + PRESS * math.tanh(self.excess / SATURATED)
        return round(min(TAU_MOST, max(TAU_LEAST, pressed)), 3)


def first_split(cells: int, share: float) -> Split:
    """At the start of an engine."""
    return Split(int(cells * share))


def next_split(split: Split, seen: Seen, *, share: float, least: int) -> Split:
    """One cycle later. `least`: cells that A always has; `share`: B's at the error of
    calibration."""
    most = max(0, seen.cells - least)
    have = min(max(split.b_cells, 0), most)
    if not seen.batch and not seen.b_used:
        return _idle(Split(have, split.idle))
    missing = _missing(have, seen)
    if missing > 0:
        return Split(max(0, have - missing))
    return Split(_settled(have, min(most, _target(seen, share)), seen))


def _idle(split: Split) -> Split:
    idle = split.idle + 1
    if idle < IDLE_CYCLES:
        return replace(split, idle=idle)
    return Split(int(split.b_cells * GIVE_BACK))


def _missing(have: int, seen: Seen) -> int:
    """Cells that A lacks, where it is tight."""
    room = seen.cells - have
    tight = room - seen.a_used < TIGHT * room
    return math.ceil(max(0, seen.a_peak - room)) if tight else 0


def _target(seen: Seen, share: float) -> int:
    error = seen.error if seen.error is not None and math.isfinite(seen.error) else 1.0
    return int(seen.cells * share / min(WORST_ERROR, max(BEST_ERROR, error)))


def _settled(have: int, target: int, seen: Seen) -> int:
    """Towards the target, but never so far that A would be tight at once."""
    needed = max(seen.a_peak, math.ceil(seen.a_used / (1 - TIGHT)))
    wanted = max(0, min(target, seen.cells - needed))
    grain = max(1, seen.cells // GRAIN)
    if wanted > have:
        return wanted if wanted - have >= grain or wanted == target else have
    return target if have - target >= grain else have


def next_caution(caution: Caution, starts: int, overflows: int, *, target: float) -> Caution:
    """After so many starts, and so many times that cells ran out. Conformal PI: tau follows each
    event by a step (so that in the long run the target is met whatever the forecasts are worth),
    and leans against an excess that lasts."""
    if starts <= 0 and overflows <= 0:
        return caution
    off = overflows - target * starts
    bound = 3 * SATURATED
    return Caution(
        min(TAU_MOST, max(TAU_LEAST, caution.level + STEP * off)),
        min(bound, max(-bound, caution.excess + off)),
    )


class Budgets:
    """The split and the caution from cycle to cycle. One owner."""

    def __init__(self, *, share: float, target: float, least: int, tau: float = 0.6) -> None:
        """`least`: cells that pool A always has (of a smaller cache, half)."""
        self._share, self._target, self._least = share, target, least
        self.caution = Caution(tau)
        self.split: Split | None = None
        """None before the engine has told how many cells there are."""
        self._starts = 0
        self._overflows = 0

    def renew(self) -> None:
        """Another engine: its cells are free, and are parted as at the start."""
        self.split = None

    def tick(self, seen: Seen) -> None:
        """One cycle."""
        self._watch(seen)
        if seen.cells <= 0:
            return
        least = min(self._least, seen.cells // 2)
        split = self.split or first_split(seen.cells, self._share)
        self.split = next_split(split, seen, share=self._share, least=least)

    def _watch(self, seen: Seen) -> None:
        starts, overflows = seen.starts - self._starts, seen.overflows - self._overflows
        self._starts, self._overflows = seen.starts, seen.overflows
        scarce = seen.a_peak + seen.b_peak >= SCARCE * seen.cells
        starts = starts if scarce else 0
        self.caution = next_caution(
            self.caution, max(0, starts), max(0, overflows), target=self._target
        )


@dataclass(frozen=True, slots=True)
class Forecasting:
    """What the order of the queue could be made from."""

    state: str
    """Of the forecaster: ok, global, uncalibrated, off."""
    last_nan: float = -math.inf
    """When a forecast was last no number, monotonic seconds."""


FALLBACKS = {
    "off": "forecasts are off (forecast.enabled = false)",
    "missing": "there is no forecaster for this model: steelyard calibrate makes one",
    "uncalibrated": "the forecaster's bounds do not hold: steelyard calibrate mends it",
    "broken": "a forecast was no distribution; forecasts are trusted again 30 s after the last",
}
"""Why the queue goes by arrival, and what to do."""

NAN_S = 30.0
"""So long no forecast must have been broken for them to be trusted again."""


def fallback(now: float, found: Forecasting) -> str:
    """Why the queue goes by arrival although expected cost was asked for; empty where it does not.
    One word: off, missing, uncalibrated, broken."""
    if found.state == "off":
        return "off"
    if now - found.last_nan < NAN_S:
        return "broken"
    return {"ok": "", "uncalibrated": "uncalibrated"}.get(found.state, "missing")
