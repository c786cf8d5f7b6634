"""How forecasts did over thirty days: their 90 % bounds and their loss, in steps of ten minutes.

Of final rows alone, so that a box which starts anew finds the same in its ledger. An answer counts
where its own forecast can be judged: it was the request's only one, its length was the model's own
choice, and it came to its own end or to its limit. Its bound counts where that lies below the
limit: at the limit it holds whatever the answer does. Pure: the time is an argument.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from appliance.forecast.telling import pinball
from appliance.ledger.lengths import REPLAYED
from appliance.ledger.rows import RequestRow

STEP_S = 600
DAY_S = 86_400
KEPT_S = 30 * DAY_S
MOST_STEPS = KEPT_S // STEP_S
SCALES = ((6 * 3600, STEP_S), (DAY_S, STEP_S), (7 * DAY_S, 3600), (KEPT_S, 6 * 3600))
"""What is told at a time, seconds, and in what steps: the first that reaches back far enough."""
WINDOWS_S = (DAY_S, 7 * DAY_S, KEPT_S)
ENOUGH = 100
"""Bounds that a share is told of: of fewer it says little."""
_TOLD = ("p10_tok", "p50_tok", "p90_tok", "p99_tok")


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one forecast."""

    wall_s: float
    made: bool
    """By the forecaster made for the model, not from all answers alike."""
    held: bool | None
    """The answer was within its 90 % bound; None: that was at the limit."""
    loss: float
    """Mean pinball loss of p10, p50, p90 and p99, tokens."""


def judged(row: RequestRow) -> Judged | None:
    """None where the row says nothing of a forecast."""
    told = row.forecast or {}
    bounds = _bounds(told)
    if not bounds or row.n != 1 or len(row.choices) != 1 or not _is_own(row):
        return None
    length, end = row.choices[0].completion_tokens, row.choices[0].stop_type
    if length < 1 or end not in ("eos", "limit"):
        return None
    told_p90 = bounds[2]
    held = length <= told_p90 if told_p90 < row.max_tokens else None
    return Judged(row.wall_ns / 1e9, bool(told.get("version")), held, pinball(bounds, length))


def _is_own(row: RequestRow) -> bool:
    """Whether the answer's length was the model's choice, and is known."""
    given = row.sampling.get("ignore_eos") or row.sampling.get("budget")
    return row.exact and not row.recovered and not given and REPLAYED not in row.route


def _bounds(told: Mapping[str, Any]) -> tuple[int, ...]:
    """p10, p50, p90 and p99; nothing where one is missing or no number of tokens."""
    found = [told.get(name) for name in _TOLD]
    bounds = tuple(bound for bound in found if isinstance(bound, int) and bound > 0)
    return bounds if len(bounds) == len(_TOLD) else ()


@dataclass(slots=True)
class Sums:
    """Of the answers of some time."""

    bounds: int = 0
    held: int = 0
    answers: int = 0
    loss: float = 0.0

    def add(self, one: Judged) -> None:
        self.bounds += one.held is not None
        self.held += one.held is True
        self.answers += 1
        self.loss += one.loss

    def take(self, other: "Sums") -> None:
        self.bounds += other.bounds
        self.held += other.held
        self.answers += other.answers
        self.loss += other.loss

    @property
    def coverage(self) -> float | None:
        """Share of bounds that held; None before there are enough."""
        return self.held / self.bounds if self.bounds >= ENOUGH else None

    @property
    def mean_loss(self) -> float | None:
        return self.loss / self.answers if self.answers else None


@dataclass(frozen=True, slots=True)
class Told:
    """Steps up to now, oldest first."""

    step_s: int
    until_s: int
    """Wall time at which the last step ends."""
    steps: tuple[Sums, ...]
    windows: tuple[tuple[int, Sums], ...]
    """As WINDOWS_S, each with its sums."""


class ForecastHistory:
    """Of the model that is served. Belongs to the event loop."""

    def __init__(self) -> None:
        self.model = ""
        """SHA-256 of the model that it is of."""
        self.since_ns = 0
        """Rows from then on come by themselves; earlier ones are in the ledger."""
        self._steps: dict[int, tuple[Sums, Sums]] = {}
        """By step since 1970: of forecasts from all answers alike, and of the forecaster's."""

    def serves(self, model_sha256: str, since_ns: int) -> None:
        """Another model is in: what is known of the former is of no use."""
        if model_sha256 != self.model:
            self.model, self.since_ns, self._steps = model_sha256, since_ns, {}

    def ended(self, row: RequestRow) -> None:
        """A request has its final row."""
        if row.model_sha256 == self.model and (one := judged(row)) is not None:
            self.add(one)

    def add(self, one: Judged) -> None:
        at = int(one.wall_s // STEP_S)
        if at not in self._steps:
            self._steps[at] = (Sums(), Sums())
            if len(self._steps) > MOST_STEPS:
                del self._steps[min(self._steps)]
        self._steps[at][one.made].add(one)

    def told(self, wall_s: float) -> Told:
        """The last days, hours or minutes: as far back as anything is known, 30 days at most."""
        end = int(wall_s // STEP_S) + 1
        known = {at: self._counted(at) for at in self._steps if 0 < end - at <= MOST_STEPS}
        first, until, step = _scale(min(known, default=end - 1) * STEP_S, end * STEP_S)
        steps = [Sums() for _ in range((until - first) // step)]
        windows = [Sums() for _ in WINDOWS_S]
        for at, sums in known.items():
            start = at * STEP_S
            if start >= first:
                steps[(start - first) // step].take(sums)
            windows[bisect_left(WINDOWS_S, end * STEP_S - start)].take(sums)
        for shorter, longer in pairwise(windows):
            longer.take(shorter)
        return Told(step, until, tuple(steps), tuple(zip(WINDOWS_S, windows, strict=True)))

    def _counted(self, at: int) -> Sums:
        """What is told when a forecaster fails does not count as its own."""
        alike, made = self._steps[at]
        return made if made.answers else alike


def _scale(oldest: int, now: int) -> tuple[int, int, int]:
    """From when to when, and in what steps, seconds: the first of SCALES that has `oldest`."""
    for span, step in SCALES:
        until = -(-now // step) * step
        if until - span <= oldest:
            break
    return until - span, until, step
