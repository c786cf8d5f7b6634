"""What the box does when its board tells something. Belongs to the event loop."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from appliance.board.snapshot import Told
from appliance.ledger.rows import Action
from firmware_bridge.update import Progress

log = logging.getLogger("appliance.board")

MOST = 60
WITHIN_S = 60.0
"""So many events in so long are chained; of a board that tells more, those are counted. The chain
is for ever, and a loose contact must not fill the disk with it."""


class Gate(Protocol):
    """`admission.Admission` is the real one."""

    @property
    def draining(self) -> bool: ...

    def drain(self, on: bool) -> None: ...


class Duty:
    """The button drains the box, and lets it serve again; held, it stops the box in stages. Every
    event is a chained entry, but for more of them than anything sound tells."""

    def __init__(
        self,
        gate: Gate,
        *,
        note: Callable[[Action], object],
        stop: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._note = note
        self._stop = stop
        self._clock = clock
        self._noted: deque[float] = deque(maxlen=MOST)
        self._unnoted = 0

    def updated(self, progress: Progress) -> None:
        """How a firmware update ended, told once."""
        self._note(
            Action(
                wall_ns=time.time_ns(),
                action=f"board.update_{progress.phase}",
                target=progress.version,
                operator="board",
                detail={"problem": progress.problem},
            )
        )

    def hear(self, told: Told) -> None:
        """One event, told once."""
        done = ""
        if told.code == "button":
            self._gate.drain(not self._gate.draining)
            done = "drain" if self._gate.draining else "resume"
        elif told.code == "button_long":
            done = "stop"
        if done:
            log.warning("%s, as the board's button says", done)
        if self._has_room() or done == "stop":
            self._chain(told, {"done": done} if done else {})
        else:
            self._unnoted += 1
        if done == "stop":
            self._stop()

    def _has_room(self) -> bool:
        now = self._clock()
        if len(self._noted) == MOST and now - self._noted[0] < WITHIN_S:
            return False
        self._noted.append(now)
        return True

    def _chain(self, told: Told, more: dict[str, Any]) -> None:
        if self._unnoted:
            more = {**more, "unnoted": self._unnoted}
            self._unnoted = 0
        self._note(
            Action(
                wall_ns=time.time_ns(),
                action=f"board.{told.code}",
                target=str(told.number),
                operator="board",
                detail={"argument": told.argument, "ticks": told.ticks, **more},
            )
        )
