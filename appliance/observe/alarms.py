"""Alarms: what needs an operator, from raised to over. Pure: clocks are arguments.

Rules
1. A condition must hold for 2 s before it is an alarm, and be gone for 10 s before it is over.
2. Effects are hidden while their cause is an alarm: a dead engine also fills the queue.
3. More than 10 of one kind within 10 minutes become one alarm that counts them.
4. Seen is forgotten when the alarm is over; snoozed holds until its time, whatever happens.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from appliance.frames import Alarm

ON_S, OFF_S = 2.0, 10.0
FLOOD, FLOOD_S = 10, 600.0
MANY = ":many"
"""Ends the id of an alarm that stands for many; its first argument is how many."""
KEPT = 200
"""Alarms of the past that are told."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is so now. `id` is `code`, or `code:which` where there can be several."""

    id: str
    screen: int
    prio: int
    text: str
    args: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    """Codes of what may be its cause."""

    @property
    def code(self) -> str:
        return self.id.partition(":")[0]


@dataclass(slots=True)
class _Standing:
    """One condition's life."""

    condition: Condition
    since: float
    since_ms: int
    last: float
    """When it was last so, monotonic seconds; the first two are of when it began."""
    raised: bool = False
    seen: bool = False


@dataclass(frozen=True, slots=True)
class Over:
    """An alarm that has ended."""

    alarm: Alarm
    ended_ms: int


@dataclass(slots=True)
class Alarms:
    """All alarms of the box."""

    past: deque[Over] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The newest last."""
    _standing: dict[str, _Standing] = field(default_factory=dict)
    _snoozed: dict[str, int] = field(default_factory=dict)
    """Until when, in milliseconds since 1970."""
    _raises: dict[str, deque[float]] = field(default_factory=dict)
    """When alarms of each code were raised."""
    _last: dict[str, Condition] = field(default_factory=dict)
    """The latest condition of each code."""

    def update(
        self, conditions: Sequence[Condition], now: float, wall_ms: int
    ) -> tuple[Alarm, ...]:
        """What is so now; returns the alarms, worst first."""
        self._snoozed = {id: until for id, until in self._snoozed.items() if until > wall_ms}
        for condition in self._folded(conditions, now):
            self._hold(condition, now, wall_ms)
        self._end(now, wall_ms)
        return self.active()

    def active(self) -> tuple[Alarm, ...]:
        """Raised and not over; worst first, then oldest."""
        raised = [standing for standing in self._standing.values() if standing.raised]
        codes = {standing.condition.code for standing in raised}
        shown = [
            self._alarm(standing)
            for standing in raised
            if not codes.intersection(standing.condition.under)
        ]
        return tuple(sorted(shown, key=lambda alarm: (alarm.prio, alarm.since_ms, alarm.id)))

    def see(self, id: str) -> Alarm | None:
        """An operator has seen it; None when there is no such alarm."""
        standing = self._standing.get(id)
        if standing is None or not standing.raised:
            return None
        standing.seen = True
        return self._alarm(standing)

    def snooze(self, id: str, until_ms: int) -> Alarm | None:
        """It is not shown as new before then; None when there is no such alarm."""
        standing = self._standing.get(id)
        if standing is None or not standing.raised:
            return None
        self._snoozed[id] = until_ms
        return self._alarm(standing)

    # -- a turn ----------------------------------------------------------------------------------

    def _hold(self, condition: Condition, now: float, wall_ms: int) -> None:
        standing = self._standing.get(condition.id)
        if standing is None:
            standing = self._standing[condition.id] = _Standing(condition, now, wall_ms, now)
        standing.condition, standing.last = condition, now
        if not standing.raised and now - standing.since >= ON_S:
            standing.raised = True
            if not condition.id.endswith(MANY):
                self._raises.setdefault(condition.code, deque()).append(now)

    def _end(self, now: float, wall_ms: int) -> None:
        for id, standing in list(self._standing.items()):
            gone_s = now - standing.last
            if gone_s >= OFF_S or (gone_s > 0 and not standing.raised):
                del self._standing[id]
                if standing.raised:
                    self.past.append(Over(self._alarm(standing), wall_ms))

    def _folded(self, conditions: Sequence[Condition], now: float) -> list[Condition]:
        """One condition in place of all whose kind floods."""
        by_code: dict[str, list[Condition]] = {}
        for condition in conditions:
            by_code.setdefault(condition.code, []).append(condition)
            self._last[condition.code] = condition
        kept: list[Condition] = []
        for code in {*by_code, *self._raises}:
            found = by_code.get(code, [])
            count = max(len(found), self._raised_lately(code, now))
            kept += [_flood(self._last[code], count)] if count > FLOOD else found
        return kept

    def _raised_lately(self, code: str, now: float) -> int:
        times = self._raises.get(code, deque())
        while times and now - times[0] >= FLOOD_S:
            times.popleft()
        return len(times)

    def _alarm(self, standing: _Standing) -> Alarm:
        condition = standing.condition
        alarm = Alarm(
            id=condition.id,
            code=condition.code,
            screen=condition.screen,
            prio=condition.prio,
            text=condition.text,
            args=condition.args,
            since_ms=standing.since_ms,
            seen=standing.seen,
        )
        return replace(alarm, snooze_ms=self._snoozed.get(condition.id, 0))


def _flood(one: Condition, count: int) -> Condition:
    """In place of so many like `one`."""
    text = f"{count} alarms of one kind within {FLOOD_S / 60:.0f} min, the latest: {one.text}"
    args = (str(count), *one.args)
    return Condition(f"{one.code}{MANY}", one.screen, one.prio, text, args, one.under)
