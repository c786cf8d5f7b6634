"""Finding the fastest settings by paired measurements, one setting after the other. Pure.

A machine's speed drifts, so two settings are only ever compared by measuring them in turn (A B A B)
and looking at the ratio of neighbours. What is in use is left only for what is faster by more than
the noise: the median of the ratios below `BETTER`, and all pairs but one pointing that way.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from appliance.tune.settings import Mix, Sameness, Settings, Timing

BETTER = 0.97
"""Cost over the cost of what is in use. Below this a setting is taken."""
HOPELESS = 1.2
"""Nothing that is this much slower in the first pair gets a second one."""

Verdict = Literal["taken", "no faster", "slower", "other answers", "failed", "confirmed"]


class CannotRun(Exception):
    """The engine does not start or compute with these settings; says why."""


class Bench(Protocol):
    """Measures; raises CannotRun."""

    def measure(self, settings: Settings) -> Timing: ...

    def sameness(self, settings: Settings, base: Settings) -> Sameness:
        """How the answers of `settings` compare with those of `base`."""
        ...

    def keep(self, *wanted: Settings) -> None:
        """Only these will be measured from now on: engines of others may be closed."""
        ...


class Trial(msgspec.Struct, frozen=True):
    """One comparison, as it is kept and shown."""

    change: dict[str, int | str]
    """The settings tried that differ from those in use at the time."""
    ratio: float | None
    """Cost over the cost of what was in use, median of the pairs; None: not measured."""
    pairs: tuple[float, ...]
    answers: Sameness | None
    verdict: Verdict
    why: str = ""


class Found(msgspec.Struct, frozen=True):
    """The outcome of a search."""

    base: Settings
    best: Settings
    trials: tuple[Trial, ...]
    ratio: float
    """Cost with `best` over cost with `base`, paired; 1.0 where they are the same."""
    pairs: tuple[float, ...]
    base_timing: Timing
    best_timing: Timing


Dimension = tuple[str, Callable[[Settings], Sequence[Settings]]]
"""A name for people, and what to try instead of the settings in use."""


class Search:
    """One search. `run` yields after every measurement, so that a bar can be drawn."""

    def __init__(
        self,
        bench: Bench,
        base: Settings,
        dimensions: Sequence[Dimension],
        mix: Mix,
        *,
        pairs: int = 4,
        other_answers: bool = False,
    ) -> None:
        """`other_answers`: settings that change greedy answers may be taken."""
        self._bench = bench
        self._base = self._best = base
        self._dimensions = dimensions
        self._mix = mix
        self._pairs = pairs
        self._other_answers = other_answers
        self._trials: list[Trial] = []
        self._done = 0
        self.doing = ""
        self.found: Found | None = None

    def expected(self) -> int:
        """Measurements that the whole search takes at most, as far as it can be known."""
        tries = sum(len(of(self._best)) for _, of in self._dimensions)
        return (tries + 1) * 2 * self._pairs

    def run(self) -> Iterator[float]:
        """Yields the share that is done, 0 to 1. Raises CannotRun when the settings in use do not
        run themselves."""
        total = self.expected()
        left = [len(of(self._best)) for _, of in self._dimensions]
        for number, (name, candidates) in enumerate(self._dimensions):
            for candidate in candidates(self._best):
                self.doing = f"{name}: {candidate.label(self._best)}"
                for _ in self._try(candidate):
                    self._done += 1
                    yield min(0.99, self._done / total)
            # What was not needed counts as done.
            self._done = max(self._done, sum(left[: number + 1]) * 2 * self._pairs)
        self.doing = "all together, once more"
        for _ in self._confirm():
            self._done += 1
            yield min(0.99, self._done / total)

    def _try(self, candidate: Settings) -> Iterator[None]:
        change = candidate.differing(self._best)
        try:
            answers = self._bench.sameness(candidate, self._base)
            ratios: list[float] = []
            self._bench.keep(self._best, candidate)
            for ratio in self._ratios(self._best, candidate):
                ratios.append(ratio)
                yield
                if ratio > HOPELESS:
                    break
        except CannotRun as error:
            self._trials.append(Trial(change, None, (), None, "failed", str(error)))
            self._bench.keep(self._best)
            return
        verdict = self._judge(ratios, answers)
        ratio = statistics.median(ratios)
        self._trials.append(Trial(change, ratio, tuple(ratios), answers, verdict))
        if verdict == "taken":
            self._best = candidate
        self._bench.keep(self._best)

    def _judge(self, ratios: Sequence[float], answers: Sameness) -> Verdict:
        median = statistics.median(ratios)
        if not faster(ratios):
            return "slower" if median > 1 / BETTER else "no faster"
        if answers != "same bits" and not self._other_answers:
            return "other answers"
        return "taken"

    def _ratios(self, ours: Settings, theirs: Settings) -> Iterator[float]:
        """Cost of `theirs` over that of `ours`; each pair measured in the other order than the
        one before, so that a drift helps neither. The first measurement of an engine is thrown
        away: its pages and caches are cold."""
        for settings in (ours, theirs):
            self._bench.measure(settings)
        for number in range(self._pairs):
            order = (ours, theirs) if number % 2 == 0 else (theirs, ours)
            cost = {one: self._bench.measure(one).cost(self._mix) for one in order}
            yield cost[theirs] / cost[ours]

    def _confirm(self) -> Iterator[None]:
        """What was found against what was there, in one more set of pairs: gains of single steps
        that were luck do not survive it."""
        base, best = self._base, self._best
        base_timing = self._bench.measure(base)
        if best == base:
            self.found = Found(
                base, base, tuple(self._trials), 1.0, (), base_timing, base_timing
            )  # fmt: skip
            return
        self._bench.keep(base, best)
        ratios: list[float] = []
        for ratio in self._ratios(base, best):
            ratios.append(ratio)
            yield
        ratio, timing = statistics.median(ratios), self._bench.measure(best)
        if not faster(ratios):
            self._trials.append(
                Trial(best.differing(base), ratio, tuple(ratios), None, "no faster", "all together")
            )
            best, ratio, timing = base, 1.0, base_timing
        self.found = Found(
            base, best, tuple(self._trials), ratio, tuple(ratios), base_timing, timing
        )  # fmt: skip


def faster(ratios: Sequence[float]) -> bool:
    """Whether pairs of cost ratios show more than noise."""
    against = sum(ratio >= 1 for ratio in ratios)
    return statistics.median(ratios) < BETTER and against <= len(ratios) // 4
