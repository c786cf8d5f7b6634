"""Bounds that hold as often as they say: split conformal calibration, before anything is served.

The score of an answer at level tau is log(L / U), where U is the network's tau-quantile; the bound
told is U * exp(offset), and the offset is the score of rank ceil((n + 1) tau) among n calibration
answers of the same route (Romano and others, arXiv 1905.03222; tutorial 2107.07511). An answer that
was cut off counts by its own forecast: P(L > bound | L > where it was cut). (Kaplan and Meier's
estimate needs scores that do not depend on where answers are cut, which these do: measured on the
default model, its bounds were far too long.) Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from appliance.forecast.hazard import BINS, CAP, EDGES, LONGEST, SHIFT, Lengths

Floats = NDArray[np.float64]

TAUS = (0.1, 0.5, 0.7, 0.9, 0.95, 0.99)
"""Levels at which bounds are kept right; between them the offset is interpolated."""
MEDIAN, NINETY = TAUS.index(0.5), TAUS.index(0.9)
MOST = 1.5
"""Log units: no offset is larger, so that a strange calibration set cannot make bounds absurd."""
FEW = 32
"""Answers of a route below which it takes the offsets of all routes together."""

_LEVELS: Floats = np.array(TAUS)
_Z: Floats = -np.log1p(-np.array(TAUS))
"""TAUS as cumulative hazards, on which offsets are interpolated."""
_TRIED: Floats = np.linspace(-MOST, MOST, 121)
"""Offsets at which answers that were cut off are looked at."""
_KNOTS: Floats = np.concatenate([EDGES, CAP * 2.0 ** np.arange(1, 6)])
"""Tokens at which a distribution is moved."""
_LOG_EDGES: Floats = np.log(EDGES + SHIFT)
_BEYOND: Floats = (np.log(_KNOTS[BINS + 1 :] + SHIFT) - _LOG_EDGES[-1]) / np.diff(_LOG_EDGES)[-1]
"""How often the last bin's fall fits between CAP and the knots beyond."""
_GONE = 690.0
"""-log of the smallest chance that is told from none."""
_APART: Floats = np.arange(len(_KNOTS)) * np.float64(1e-9)


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The calibration of one route."""

    route: str
    """"" is all routes together."""
    answers: int
    cut: int
    """Of them, how many were cut off."""
    offsets: tuple[float, ...]
    """Log units, one for each of TAUS."""
    bounded: tuple[bool, ...]
    """Where the answers were enough for a bound at that level."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `fit` found; kept in a forecaster's manifest."""

    groups: tuple[Group, ...] = ()

    def group(self, route: str) -> Group | None:
        """The route's own, where it had FEW answers or more; else all routes'; None: no
        calibration at all."""
        found = {group.route: group for group in self.groups}
        own = found.get(route)
        return own if own is not None and own.answers >= FEW else found.get("")

    def offsets(self, route: str) -> tuple[float, ...]:
        group = self.group(route)
        return group.offsets if group is not None else (0.0,) * len(TAUS)

    def valid(self) -> bool:
        """Every group has a finite, bounded offset for each level."""
        return all(
            len(group.offsets) == len(group.bounded) == len(TAUS)
            and all(abs(offset) <= MOST for offset in group.offsets)
            for group in self.groups
        )


def fit(
    raw: Sequence[Lengths], lengths: ArrayLike, censored: ArrayLike, routes: Sequence[str]
) -> Table:
    """From forecasts of prompts that the network has not seen, and the answers that followed."""
    reached = np.maximum(np.asarray(lengths, dtype=np.float64), 1.0)
    cut = np.asarray(censored, dtype=bool)
    logs = np.array([log_quantiles(one) for one in raw]).reshape(len(raw), len(TAUS))
    scores = np.log(reached)[:, None] - logs
    beyond = np.zeros((len(raw), len(TAUS), len(_TRIED)))
    for at in np.flatnonzero(cut).tolist():
        beyond[at] = _beyond(raw[at], logs[at], float(reached[at]))
    names = np.asarray(routes, dtype=object)
    parts = [("", np.ones(len(cut), dtype=bool))]
    parts += [(name, names == name) for name in sorted(set(routes))]
    return Table(
        tuple(_group(name, scores[of], cut[of], beyond[of]) for name, of in parts if of.any())
    )


def _beyond(told: Lengths, logs: Floats, cut_at: float) -> Floats:
    """[TAUS, _TRIED]: P(L > U * exp(offset) | L > cut_at), as told."""
    bounds = np.exp(logs[:, None] + _TRIED)
    left = told.survival(np.append(np.maximum(bounds, cut_at).ravel(), cut_at))
    return (left[:-1] / max(float(left[-1]), 1e-12)).reshape(bounds.shape)


def _group(route: str, scores: Floats, cut: NDArray[np.bool_], beyond: Floats) -> Group:
    found = [_offset(scores[~cut, at], beyond[cut, at], tau) for at, tau in enumerate(TAUS)]
    offsets = tuple(
        _clip(offset if offset is not None else _at_least(scores[~cut, at]))
        for at, offset in enumerate(found)
    )
    return Group(route, len(cut), int(cut.sum()), offsets, tuple(o is not None for o in found))


def _offset(ended: Floats, beyond: Floats, tau: float) -> float | None:
    """The smallest offset that at most a share 1 - tau of answers exceeds, one more answer at
    infinity counted. None: none of those tried."""
    n = len(ended) + len(beyond)
    tried = np.unique(np.concatenate([ended, _TRIED])) if len(beyond) else np.sort(ended)
    longer = len(ended) - np.searchsorted(np.sort(ended), tried + 1e-12, side="right")
    hidden = np.interp(tried, _TRIED, beyond.sum(axis=0)) if len(beyond) else 0.0
    enough = np.flatnonzero(longer + hidden + 1 <= (n + 1) * (1 - tau) + 1e-6)
    return float(tried[enough[0]]) if enough.size else None


def _at_least(ended: Floats) -> float:
    """Where answers are too few for a bound: no shorter than the network says, or than was seen."""
    return max(0.0, float(ended.max(initial=0.0)))


def _clip(offset: float) -> float:
    return float(np.clip(offset, -MOST, MOST))


def log_quantiles(raw: Lengths) -> Floats:
    """log of the quantiles at TAUS, float64[6]."""
    return np.log(np.array(raw.quantiles(TAUS), dtype=np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Corrected:
    """A distribution after correction."""

    raw: Lengths
    """Before it."""
    logs: Floats
    """Of the quantiles before it, at TAUS."""
    bounds: tuple[float, ...]
    """Tokens, at TAUS, never falling; not cut to any limit."""
    lengths: Lengths
    """Equal to the bounds but for what 24 bins cannot hold."""


def correct(raw: Lengths, offsets: ArrayLike) -> Corrected:
    """Each tau-quantile multiplied by exp(offset), where `offsets` are log units at TAUS."""
    return corrected(raw, log_quantiles(raw), offsets)


def corrected(raw: Lengths, logs: Floats, offsets: ArrayLike) -> Corrected:
    """As `correct`, where `logs` are those of the quantiles at TAUS."""
    moved = np.exp(np.maximum.accumulate(logs + np.asarray(offsets, dtype=np.float64)))
    bounds = tuple([min(max(bound, 1.0), float(LONGEST)) for bound in moved.tolist()])
    return Corrected(raw, logs, bounds, warped(raw, offsets))


def warped(raw: Lengths, offsets: ArrayLike) -> Lengths:
    """The whole distribution so moved, on the same bins, exact at their edges; below the median as
    the median is: offsets of lower levels are those of few short answers, and would bend the rest.
    `raw`: without a `given` or a `log_factor` of its own.
    """
    upper = np.asarray(offsets, dtype=np.float64)[MEDIAN:]
    if not upper.any():
        return raw
    falls = np.array(raw.falls)
    beyond = falls[-1] + _BEYOND * (falls[-1] - falls[-2])
    gone = np.minimum(np.concatenate((falls, beyond)), _GONE)
    moved = _KNOTS * np.exp(np.interp(gone, _Z[MEDIAN:], upper))
    places = np.maximum.accumulate(np.log(moved + SHIFT)) + _APART
    left = np.interp(_LOG_EDGES, places, gone)
    return Lengths(-np.expm1(-np.maximum(left[1:] - left[:-1], 1e-6)))


def misses(bounds: Floats, told: Lengths, length: int, censored: bool) -> Floats:
    """For each bound (tokens, at TAUS): 1 where the answer is longer, 0 where not. An answer that
    was cut off within a bound counts P(L > bound | L > length) as told: 1 - tau over the chance to
    come that far. So a forecast that is right misses 1 - tau of the time, wherever limits lie; to
    count what reached its limit as held would flatter every bound beyond the limit."""
    reached = max(1, length)
    if not censored:
        return np.asarray(reached > bounds + 1e-6, dtype=np.float64)
    beyond = reached >= bounds - 1e-6  # it would have gone on
    came_so_far = max(float(told.survival(reached)), 1e-9)
    return np.where(beyond, 1.0, np.minimum(1.0, (1.0 - _LEVELS) / came_so_far))


_ONE_SIDED = (
    "P(L <= bound) >= {percent} % for an answer of this kind, on average over answers that are "
    "exchangeable with the {answers} that it was calibrated with{routes}; not for any one prompt, "
    "and not after a change of model, template, sampling or use"
)
_CUT = "; {cut} of them were cut off and count as the forecast expects, so it rests on that too"
_TOO_FEW = (
    "no bound at {percent} % is guaranteed: {answers} calibration answers{routes} are too few"
)
ONLINE = (
    "in the long run, whatever comes, the share of answers longer than the bound in force when "
    "they end approaches what it says; not for any one prompt, nor within any given stretch"
)
"""What quantile tracking gives (conformal PI, arXiv 2307.16895; ACI, 2106.00170)."""


def guarantee(table: Table, route: str, tau: float) -> str:
    """What may be claimed of a bound as calibrated, and no more (docs/forecast.md)."""
    group = table.group(route)
    percent = f"{tau * 100:g}"
    if group is None:
        return _TOO_FEW.format(percent=percent, answers=0, routes="")
    routes = " on all routes together" if group.route == "" else f" on {group.route}"
    if not group.bounded[TAUS.index(tau)]:
        return _TOO_FEW.format(percent=percent, answers=group.answers, routes=routes)
    told = _ONE_SIDED.format(percent=percent, answers=group.answers, routes=routes)
    return told + (_CUT.format(cut=group.cut) if group.cut else "")
