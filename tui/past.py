"""What the console remembers of the live numbers: a sample a second, fifteen minutes long."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.frames import Live
from tui.view import PAST

LENGTH_S = 15 * 60
SHOWN_S = 60


@dataclass(frozen=True, slots=True)
class Moment:
    """One second: the frame that was in force, None where nothing came."""

    at: float
    live: Live | None


class Past:
    """A ring of seconds. Pure: the time is an argument."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=LENGTH_S)
        self._before: dict[str, Sequence[float | None]] = {}
        self._second: int | None = None
        self._shown: Mapping[str, tuple[float | None, ...]] = {}

    def add(self, now: float, live: Live | None) -> None:
        """The first call of each second counts; seconds without a call become gaps."""
        second = int(now)
        if second == self._second:
            return
        gap = 0 if self._second is None else min(second - self._second - 1, LENGTH_S)
        for back in range(gap, 0, -1):
            self._moments.append(Moment(now - back, None))
        self._second = second
        self._moments.append(Moment(now, live))
        self._shown = {name: self._series(name, SHOWN_S) for name in PAST}

    def before(self, answer: Any) -> None:
        """What the box itself remembers (GET /admin/past), from before this console started."""
        found = answer.get("values") if isinstance(answer, dict) else None
        self._before = {
            name: [_number(value) for value in found[name]]
            for name in PAST
            if isinstance(found, dict) and isinstance(found.get(name), list)
        }

    @property
    def shown(self) -> Mapping[str, tuple[float | None, ...]]:
        """The last minute of each number."""
        return self._shown

    @property
    def history(self) -> Mapping[str, Sequence[float | None]]:
        """The last fifteen minutes of each number."""
        return {name: self._series(name, LENGTH_S) for name in PAST}

    def at(self, when: float) -> Moment | None:
        """The second that was then; None: it is not remembered."""
        if not self._moments:
            return None
        back = round(self._moments[-1].at - when)
        return self._moments[-1 - max(0, back)] if back < len(self._moments) else None

    def __len__(self) -> int:
        return len(self._moments)

    def _series(self, name: str, length: int) -> tuple[float | None, ...]:
        count = min(length, len(self._moments))
        start = len(self._moments) - count
        ours = [_value(self._moments[at], name) for at in range(start, start + count)]
        earlier = list(self._before.get(name, ()))[-(length - count) :] if count < length else []
        return (*earlier, *ours)


def _value(moment: Moment, name: str) -> float | None:
    return None if moment.live is None else getattr(moment.live, name)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
