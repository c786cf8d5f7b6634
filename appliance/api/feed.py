"""Frames for consoles: made once, encoded once, handed to all that listen.

Rules
1. Nothing is made that nobody wants; alarms and the past go on without listeners.
2. A listener holds the newest frame of each kind and no other: who reads slowly misses frames.
3. Never late twice: the next turn is due an interval after the last one was.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from appliance import frames
from appliance.api.watch import Watch
from appliance.errors import Unavailable
from appliance.frames import Frame

log = logging.getLogger(__name__)

Kind = Literal["live", "rows", "state"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_LISTENERS = 16
"""More consoles than a box has operators."""
KEPT_LISTENERS = 4
"""Of those, for operators alone: a dashboard's key must not lock them out."""
TURN_S = 0.1
_ROWS_S, _LOOK_S, _READ_S = 0.5, 1.0, 10.0
"""Between two frames of rows; two looks, each with a frame of the state; two questions to the
ledger's file."""


class Listener:
    """One console. `next` waits until there is something new."""

    def __init__(self, kinds: Collection[Kind], *, operator: bool = False) -> None:
        self.kinds = frozenset(kinds)
        self.operator = operator
        self._newest: dict[Kind, bytes] = {}
        self._arrived = asyncio.Event()
        self._over = False

    def offer(self, kind: Kind, data: bytes) -> None:
        """The newest frame of a kind, in place of one that was not taken."""
        if kind in self.kinds:
            self._newest[kind] = data
            self._arrived.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._over = True
        self._arrived.set()

    async def next(self) -> bytes | None:
        """All that is new; None at the end."""
        await self._arrived.wait()
        self._arrived.clear()
        if self._over:
            return None
        newest, self._newest = self._newest, {}
        return b"".join(newest.values())


@dataclass(frozen=True, slots=True)
class _Told:
    """A frame and its encoding."""

    kind: Kind
    data: bytes


class Feed:
    """The task that makes frames. Belongs to the event loop."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._done: dict[str, float] = {}
        """When each thing was last done."""
        self._over = False

    def start(self) -> None:
        """Begins to look. Again does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="feed")

    def end(self) -> None:
        """The box stops: all listeners are told so, and new ones end at once."""
        self._over = True
        for listener in self._listeners:
            listener.end()

    async def close(self) -> None:
        """Ends everything."""
        self.end()
        for task in (self._task, self._reading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.watch.verifying.close()
        await self.watch.calibrating.close()

    def listen(self, kinds: Collection[Kind], *, operator: bool = False) -> Listener:
        """A new listener, which has a frame of each kind already. Raises Unavailable."""
        if (full := self._full(operator)) is not None:
            raise Unavailable(full, retry_after=5, code="too_many_consoles")
        listener = Listener(kinds, operator=operator)
        self._tell(listener, self.made(kinds))
        self._listeners.add(listener)
        if self._over:
            listener.end()
        self.start()
        self._wake.set()
        return listener

    def _full(self, operator: bool) -> str | None:
        """Why there is no place; None where there is one."""
        if len(self._listeners) >= MOST_LISTENERS:
            return f"{MOST_LISTENERS} consoles are open already: close one"
        most = MOST_LISTENERS - KEPT_LISTENERS
        if operator or sum(not each.operator for each in self._listeners) < most:
            return None
        return (
            f"{most} consoles without the scope admin are open already, and the other "
            f"{KEPT_LISTENERS} places are kept for operators: close one of the {most}, or use a "
            "key with the scope admin"
        )

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def made(self, kinds: Collection[Kind]) -> list[_Told]:
        """Frames of now."""
        now, wall = time.monotonic(), time.time()
        if "look" not in self._done:
            self._look(now, wall)
        return [_Told(kind, event(kind, self._frame(kind, now, wall))) for kind in kinds]

    # -- the task --------------------------------------------------------------------------------

    async def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                self._one_turn()
            except Exception:  # a task's top: consoles must not go dark by one bug
                log.exception("a frame for the consoles could not be made")
            due = await self._pause(due)

    async def _pause(self, due: float) -> float:
        """Until the next turn: at once for a new listener, after a second without any. When that
        turn was due."""
        self._wake.clear()
        interval = TURN_S if self._listeners else _LOOK_S
        due = max(due + interval, time.monotonic() - interval)
        left = due - time.monotonic()
        if self._listeners:
            await asyncio.sleep(left)
            return due
        try:
            async with asyncio.timeout(left):
                await self._wake.wait()
        except TimeoutError:
            return due
        return time.monotonic()

    def _one_turn(self) -> None:
        now, wall = time.monotonic(), time.time()
        due: list[Kind] = ["live"]
        if self._is_due("look", _LOOK_S, now):
            self._look(now, wall)
            due.append("state")
        if self._is_due("rows", _ROWS_S, now):
            due.append("rows")
        wanted: set[Kind] = set().union(*(listener.kinds for listener in self._listeners))
        self.watch.number()
        told = self.made([kind for kind in due if kind in wanted])
        for listener in self._listeners:
            self._tell(listener, told)

    def _is_due(self, what: str, every_s: float, now: float) -> bool:
        """Whether it is to be done in this turn, rather than the next one."""
        if now - self._done.get(what, 0.0) < every_s - TURN_S / 2:
            return False
        self._done[what] = now
        return True

    def _look(self, now: float, wall: float) -> None:
        self._done["look"] = now
        self.watch.look(now, wall)
        idle = self._reading is None or self._reading.done()
        if idle and self._is_due("read", _READ_S, now):
            self._reading = asyncio.create_task(self.watch.read(), name="feed-reading")

    def _frame(self, kind: Kind, now: float, wall: float) -> Frame:
        if kind == "live":
            return self.watch.live(now, wall)
        return self.watch.rows(now, wall) if kind == "rows" else self.watch.state(now, wall)

    @staticmethod
    def _tell(listener: Listener, told: Collection[_Told]) -> None:
        for frame in told:
            listener.offer(frame.kind, frame.data)


def event(kind: Kind, frame: Frame) -> bytes:
    """The frame as a server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), frames.encode(frame))
