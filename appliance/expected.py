"""A distribution of lengths as the engine takes it: a short table. Pure."""

import math
from dataclasses import dataclass

from appliance.forecast.hazard import EDGES, SHIFT, Lengths, fall_at

KNOTS = (*(int(edge) for edge in EDGES[1:]), 8192, 16384, 32768)
"""Where it is told. EDGES ends at 4096 tokens."""
NEGLIGIBLE = 1e-4
"""Less than this is nothing, and ends the table."""

_KNOTS = (0, *KNOTS)
_GONE = -math.log(NEGLIGIBLE)
_LAST, _BEFORE = math.log(EDGES[-1] + SHIFT), math.log(EDGES[-2] + SHIFT)
_BEYOND = [(math.log(knot + SHIFT) - _LAST) / (_LAST - _BEFORE) for knot in KNOTS[-3:]]
"""How often the last bin's fall fits between its end and the knots beyond."""


@dataclass(frozen=True, slots=True)
class Table:
    """P(an answer becomes longer than tokens[i]) = survival[i]."""

    tokens: tuple[int, ...] = ()
    survival: tuple[float, ...] = ()


NOTHING = Table()
"""Nothing is known: what there is no table for counts with its limit."""


def table_of(lengths: Lengths) -> Table | None:
    """The table; None where the distribution is none (not a number)."""
    if lengths.given or lengths.log_factor:
        knots, fallen = _from(lengths)
    else:
        falls = lengths.falls
        knots = _KNOTS
        fallen = [*falls, *[falls[-1] + share * (falls[-1] - falls[-2]) for share in _BEYOND]]
    if not math.isfinite(sum(fallen)):
        return None
    alive = [round(math.exp(-fall), 4) for fall in fallen if fall < _GONE]
    if len(alive) < len(fallen):  # what is left at the last knot would never end
        alive.append(0.0)
    return Table(knots[: len(alive)], tuple(alive))


def _from(lengths: Lengths) -> tuple[tuple[int, ...], list[float]]:
    """Knots from what is known to be exceeded on, and -log of what is left at each."""
    if not (math.isfinite(lengths.given) and math.isfinite(lengths.log_factor)):
        return (), [math.nan]
    scale, given = math.exp(-lengths.log_factor), int(lengths.given)
    start = fall_at(lengths.falls, given * scale)
    knots = (given, *[knot for knot in KNOTS if knot > given])
    return knots, [fall_at(lengths.falls, knot * scale) - start for knot in knots]


def moved(told: int, now: int) -> bool:
    """Whether a refined median is so far from the one told last that the engine should know."""
    return abs(now - told) >= max(16, told // 4)
