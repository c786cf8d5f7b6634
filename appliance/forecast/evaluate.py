"""A forecaster beside every baseline, on answers that neither has seen."""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.forecast import reliability, scores
from appliance.forecast.baselines import GLOBAL, GLOBAL_HAZARD, RIVALS, Told, baselines
from appliance.forecast.bootstrap import interval
from appliance.forecast.progress import Ends, Step, ends_within, steps
from appliance.forecast.rows import Rows

Floats = NDArray[np.float64]

OURS = "forecaster"
IN_USE = "version in use"
SLACK = 1.02
"""A rival's MAE that ours may exceed by, where the difference is within the noise."""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method on the test answers. Tokens, but for shares (0 to 1) and rankings."""

    mae: float
    medae: float
    bias: float
    medre: float
    log_error: float
    within_3: float
    within_10_percent: float
    within_25_percent: float
    within_50: float
    kendall: float
    rank_accuracy: float
    crps: float | None
    skill: float | None
    """None where there is no noise floor."""
    behind: tuple[float, float]
    """95 % interval of its MAE less ours, by families: above 0, ours is better."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The forecaster on the answers of one source, or of one third of the lengths."""

    name: str
    answers: int
    mae: float
    bias: float
    global_mae: float
    coverage: float
    """Of the 90 % upper bound."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All figures that need no second model or stream."""

    cap: int
    train_answers: int
    answers: int
    prompts: int
    families: int
    cut: float
    """Share of the test answers that were cut."""
    floor: float | None
    """Noise floor: the MAE of the median of the other answers to the same prompt."""
    methods: dict[str, Method]
    skill_interval: tuple[float, float] | None
    pinball: dict[str, float]
    upper_90: dict[str, float]
    upper_95: dict[str, float]
    central_90: dict[str, float]
    reliability: tuple[tuple[float, float], ...]
    """(level, share of answers at or below the told quantile), without any cap."""
    sources: tuple[Source, ...]
    thirds: tuple[Source, ...]
    progress: tuple[Step, ...]
    ends: tuple[Ends, ...]
    wins: bool
    why: str
    """The verdict in a sentence."""

    @property
    def ours(self) -> Method:
        return self.methods[OURS]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Quantiles told after the conformal correction, tokens, one per test answer."""

    low_5: Floats
    upper_90: Floats
    upper_95: Floats


def compare(
    train: Rows,
    test: Rows,
    hazards: Floats,
    *,
    cap: int,
    bounds: Bounds | None = None,
    in_use: Floats | None = None,
    floor: float | None = None,
    seed: int = 0,
) -> Comparison:
    """`hazards`[n, 24] are ours, for the n rows of `test`; `in_use` those of the version that
    would be replaced. `train` is what both sides learned from. Without `bounds` the network's own
    quantiles are judged. Without `floor` it is taken from the test prompts with several answers."""
    truth = np.minimum(test.lengths, cap)
    told = {OURS: told_by(hazards, test, cap)}
    if in_use is not None:
        told[IN_USE] = told_by(in_use, test, cap)
    told |= baselines(train, test, cap, seed=seed)
    level = floor if floor is not None else _floor(test, cap)
    methods = {name: _method(one, told, truth, test, level) for name, one in told.items()}
    limits = bounds or _own(hazards, cap)
    wins, why = verdict(methods)
    quantiles = scores.quantiles(hazards, scores.TAUS, cap)
    alone = told[GLOBAL].point
    return Comparison(
        cap=cap,
        train_answers=len(train),
        answers=len(test),
        prompts=len(np.unique(test.prompts)),
        families=len(np.unique(test.families)),
        cut=float(test.censored.mean()),
        floor=level,
        methods=methods,
        skill_interval=_skill_interval(told, truth, test, level),
        pinball=scores.pinball(truth, quantiles, scores.TAUS),
        upper_90=reliability.upper(truth, _at_most(limits.upper_90, cap), list(test.sources)),
        upper_95=reliability.upper(truth, _at_most(limits.upper_95, cap), list(test.sources)),
        central_90=reliability.central(
            truth, _at_most(limits.low_5, cap), _at_most(limits.upper_95, cap), 0.9
        ),
        reliability=tuple(reliability.curve(hazards, test.lengths, test.censored, scores.TAUS)),
        sources=_parts(test.sources, truth, told[OURS].point, alone, limits.upper_90),
        thirds=_parts(_thirds(truth), truth, told[OURS].point, alone, limits.upper_90),
        progress=steps(hazards, train, test, cap),
        ends=ends_within(hazards, train, test, cap),
        wins=wins,
        why=why,
    )


def verdict(methods: dict[str, Method]) -> tuple[bool, str]:
    """Whether ours is to be installed, and why. It must beat one distribution for all, be no worse
    than the best rival that sees the same features, and tell lengths better than what is in use."""
    ours = methods[OURS]
    best = min((name for name in RIVALS if name in methods), key=lambda name: methods[name].mae)
    rival, alone, hazard = methods[best], methods[GLOBAL], methods[GLOBAL_HAZARD]
    current = methods.get(IN_USE)
    if ours.mae >= alone.mae or _crps(ours) >= _crps(hazard):
        return False, (
            f"it tells lengths no better than one distribution for all (MAE {ours.mae:.1f} against "
            f"{alone.mae:.1f}, CRPS {_crps(ours):.1f} against {_crps(hazard):.1f})"
        )
    if ours.mae > SLACK * rival.mae and rival.behind[1] < 0:
        return False, f"{best} is better: MAE {rival.mae:.1f} against {ours.mae:.1f}"
    if current is not None and _crps(ours) >= _crps(current):
        return False, (
            f"the version in use is as good: CRPS {_crps(current):.1f} against {_crps(ours):.1f}"
        )
    return True, (
        f"MAE {ours.mae:.1f} against {alone.mae:.1f} of the global median and {rival.mae:.1f} of "
        f"{best}; CRPS {_crps(ours):.1f}"
    )


def _crps(method: Method) -> float:
    return method.crps if method.crps is not None else float("inf")


def told_by(hazards: Floats, test: Rows, cap: int) -> Told:
    crps = scores.crps(hazards, test.lengths, cap)
    return Told(scores.medians(hazards, cap), crps, scores.means(hazards, cap))


def _floor(test: Rows, cap: int) -> float | None:
    found = scores.noise_floor(
        {prompt: [min(n, cap) for n in said] for prompt, said in test.groups().items()}
    )
    return found if np.isfinite(found) else None


def _method(
    one: Told, told: dict[str, Told], truth: NDArray[np.int64], test: Rows, floor: float | None
) -> Method:
    off, ours = (np.abs(part.point - truth) for part in (one, told[OURS]))
    base = float(np.abs(told[GLOBAL].point - truth).mean())
    return Method(
        **scores.points(truth, one.point),
        kendall=scores.kendall(truth, one.point if one.order is None else one.order),
        rank_accuracy=scores.rank_accuracy(truth, one.point if one.order is None else one.order),
        crps=float(one.crps.mean()) if one.crps is not None else None,
        skill=scores.skill(base, float(off.mean()), floor) if floor is not None else None,
        behind=interval(off - ours, test.families),
    )


def _skill_interval(
    told: dict[str, Told], truth: NDArray[np.int64], test: Rows, floor: float | None
) -> tuple[float, float] | None:
    """With the floor taken as known."""
    if floor is None:
        return None
    base, ours = (np.abs(told[name].point - truth) for name in (GLOBAL, OURS))
    low, high = interval(base - ours, test.families)
    gap = float(base.mean()) - floor
    return (low / gap, high / gap) if gap > 0 else None


def _own(hazards: Floats, cap: int) -> Bounds:
    return Bounds(*scores.quantiles(hazards, (0.05, 0.9, 0.95), cap).T)


def _at_most(bound: Floats, cap: int) -> Floats:
    return np.minimum(bound, cap)


def _thirds(truth: NDArray[np.int64]) -> NDArray[np.str_]:
    low, high = np.quantile(truth, (1 / 3, 2 / 3))
    names = np.where(truth <= low, "shortest third", "middle third")
    return np.where(truth >= high, "longest third", names)


def _parts(
    names: NDArray[np.str_], truth: NDArray[np.int64], ours: Floats, alone: Floats, upper: Floats
) -> tuple[Source, ...]:
    return tuple(
        Source(
            name=str(name),
            answers=int(chosen.sum()),
            mae=float(np.abs(ours - truth)[chosen].mean()),
            bias=float((ours - truth)[chosen].mean()),
            global_mae=float(np.abs(alone - truth)[chosen].mean()),
            coverage=float((truth <= upper)[chosen].mean()),
        )
        for name in np.unique(names)
        for chosen in [names == name]
    )
