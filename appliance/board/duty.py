"""What the box does when its board tells something. Belongs to the event loop."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from appliance.board.snapshot import Told
from appliance.ledger.rows import Action
from firmware_bridge.update import Progress

log = logging.getLogger("appliance.board")


class Gate(Protocol):
    """`admission.Admission` is the real one."""

    @property
    def draining(self) -> bool: ...

    def drain(self, on: bool) -> None: ...


class Duty:
    """The button drains the box, and lets it serve again; held, it stops the box in stages. Every
    event is a chained entry."""

    def __init__(
        self, gate: Gate, *, note: Callable[[Action], object], stop: Callable[[], None]
    ) -> None:
        self._gate = gate
        self._note = note
        self._stop = stop

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
        self._note(
            Action(
                wall_ns=time.time_ns(),
                action=f"board.{told.code}",
                target=str(told.number),
                operator="board",
                detail={
                    "argument": told.argument,
                    "ticks": told.ticks,
                    **({"done": done} if done else {}),
                },
            )
        )
        if done == "stop":
            self._stop()
