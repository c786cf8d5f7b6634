"""The host's half of an update, without I/O and without a clock: events and `now` go in, commands
come out.

Whatever interrupts it (the line, a reset of the board, a power cut), it begins again with the
question of how the board stands, and goes on from there: what the board has is not sent twice, and
nothing is taken for done that the board has not told. It gives up when nothing comes forward.

asking → head → files → trying → confirming → done, or refused, reverted, failed.
"""

from dataclasses import dataclass
from typing import Literal

from firmware_bridge import messages as m
from firmware_bridge import parse
from firmware_bridge.commands import (
    Command,
    UpdateBegin,
    UpdateBoot,
    UpdateConfirm,
    UpdateData,
    UpdateState,
)
from firmware_bridge.events import Done, Event, Failed, Ready, Slots, Unusable, Version
from firmware_bridge.wire import WireError

Phase = Literal[
    "asking", "head", "files", "trying", "confirming", "done", "refused", "reverted", "failed"
]
OVER = ("done", "refused", "reverted", "failed")
WINDOW = 8
"""Pieces under way at once."""
LOOK_S = 0.25
"""Between two questions of how the board stands."""
STALL_S = 120.0
"""Without anything new it gives up: longer than a trial, and than a board takes to boot."""
LONGEST_S = 1800.0
"""A board that tells something new for ever is none."""
MOST_RESTARTS = 200
"""Of one update, so that two programs that fight over a line come to an end."""

WHY = {
    m.WHY_SIGNATURE: "no key that the board trusts has signed it",
    m.WHY_NO_KEY: "the board trusts no key: give it one when it is flashed (docs/board.md)",
    m.WHY_MANIFEST: "the board does not understand its manifest",
    m.WHY_BOARD: "it is for another kind of board",
    m.WHY_OLD: "it is not newer than what the board runs",
    m.WHY_MINIMUM: "what the board runs is too old for it: install a version in between",
    m.WHY_HASH: "what the board's flash holds is not what was sent: send it again",
    m.WHY_FLASH: "the board cannot write its flash",
}


@dataclass(frozen=True, slots=True)
class Image:
    """New firmware, as image.py reads it. `data` begins with the signed head."""

    data: bytes
    head_size: int
    version: Version
    minimum: Version
    board: str
    schema: int

    @property
    def name(self) -> str:
        return dotted(self.version)


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class Progress:
    """How it stands. `problem` says why it ended, or what it waits for."""

    phase: Phase
    version: str
    done: int
    total: int
    problem: str = ""

    @property
    def over(self) -> bool:
        return self.phase in OVER


class Update:
    """Ask `due` for the next command, tell `sent` its number, and `take` every event."""

    def __init__(self, image: Image, now: float) -> None:
        self.phase: Phase = "asking"
        self.problem = ""
        self.received = 0
        self._image = image
        self.told: Slots | None = None
        """How the board stood when it was asked last."""
        self._flying: dict[int, Command] = {}
        self._next: Command | None = None
        """What the last answer calls for."""
        self._offset = 0
        """Of the next piece."""
        self._tried = False
        """The board was told to try it."""
        self._usable = True
        self._look_at = now
        self._moved = now
        self._begun = now
        self._restarts = 0

    @property
    def progress(self) -> Progress:
        image = self._image
        return Progress(self.phase, image.name, self.received, len(image.data), self.problem)

    def due(self, now: float) -> Command | None:
        """What to send now, if anything; call it until it has nothing."""
        self.expire(now)
        if self.phase in OVER:
            return None
        if self._next is not None:
            command, self._next = self._next, None
            return command
        if self.phase in ("head", "files") and (piece := self._piece()):
            return piece
        if self._flying or now < self._look_at:
            return None
        self._look_at = now + LOOK_S
        return UpdateConfirm(self._image.version) if self._confirms() else UpdateState()

    def expire(self, now: float) -> None:
        """Give up what stands still; call it while the board cannot be asked, too."""
        stands = now - self._moved > STALL_S or self._restarts > MOST_RESTARTS
        if (stands or now - self._begun > LONGEST_S) and self.phase not in OVER:
            self._end("failed", f"it came to a stop: {self.problem or 'the board does not answer'}")

    def sent(self, number: int, command: Command) -> None:
        """The command of `due` went out under this number."""
        self._flying[number] = command

    def unsent(self, why: str) -> None:
        """The line did not take the command of `due`."""
        self._restart(why)

    def take(self, event: Event, now: float) -> None:
        """What the line tells; events of other commands are left alone."""
        match event:
            case Done(number, payload) if number in self._flying:
                try:
                    self._done(self._flying.pop(number), payload, now)
                except WireError:
                    self._restart("the board's answer was garbled")
            case Failed(number, reason, code) if number in self._flying:
                self._failed(self._flying.pop(number), reason, code)
            case Ready(board):
                as_promised = board.schema == self._image.schema
                self._usable = as_promised or board.firmware != self._image.name
                self._restart("")
            case Unusable(reason):
                self._usable = False
                self.problem = reason

    # -- what comes of commands ------------------------------------------------------------------

    def _done(self, command: Command, payload: bytes, now: float) -> None:
        match command:
            case UpdateState():
                self._hear(parse.slots(payload), now)
            case UpdateBegin():
                self._offset = self.received = 0
                self._go("head", now)
            case UpdateData():
                self._advance(parse.received(payload), now)
            case UpdateBoot():
                self._tried = True
                self._go("trying", now)
            case UpdateConfirm():
                self._end("done", "")

    def _failed(self, command: Command, reason: str, code: int | None) -> None:
        if isinstance(command, UpdateConfirm) and code == m.NOT_YET:
            return  # it watches itself; asked again later
        if code == m.UNKNOWN_TYPE:
            self._end("refused", "its firmware cannot be updated over the line: flash it anew")
        elif code == m.DENIED and isinstance(command, UpdateBegin):
            self._end("refused", "another firmware is on trial: wait until that is over")
        else:
            self._restart(reason)

    def _restart(self, why: str) -> None:
        """How does the board stand?"""
        if self.phase in OVER:
            return
        self._flying.clear()
        self._next = None
        self._restarts += bool(why)
        self.phase, self.problem = "asking", why

    def _hear(self, told: Slots, now: float) -> None:
        before, self.told = self.told, told
        if told != before:
            self._moved = now
        if self.phase == "asking":
            self._resume(told, now)
        elif self.phase in ("head", "files"):
            self._follow(told, now)
        elif self.phase == "trying" and told.trial:
            self._go("confirming", now)
        elif told.phase == m.UP_IDLE and not told.trial:  # it has booted since
            self._conclude(told)

    def _resume(self, told: Slots, now: float) -> None:
        """The board was asked how it stands, after whatever happened."""
        if told.phase == m.UP_NO_SLOTS:
            self._end("refused", "its flash has no slots: flash it as docs/board.md says")
        elif told.trial:
            self._tried = True
            self._go("confirming", now)
        elif told.version == self._image.version or (self._tried and told.phase == m.UP_IDLE):
            self._conclude(told)
        else:
            self._next = UpdateBegin(self._image.head_size, len(self._image.data))

    def _conclude(self, told: Slots) -> None:
        """No firmware is on trial any more."""
        if told.version == self._image.version:
            self.received = len(self._image.data)
            self._end("done", "")
        else:
            self._end("reverted", "it was not confirmed in time, and the board went back")

    def _follow(self, told: Slots, now: float) -> None:
        """While it takes the image: what it has, and what it thinks of it."""
        if told.phase == m.UP_REFUSED:
            self._end("refused", WHY.get(told.reason, f"reason {told.reason}"))
        elif told.phase == m.UP_FILES and self.phase == "head":
            self.received = self._offset = min(told.received, len(self._image.data))
            self._go("files", now)
        elif told.phase == m.UP_COMPLETE:
            self.received = len(self._image.data)
            self._next = UpdateBoot()
        elif told.phase == m.UP_IDLE:
            self._restart("the board has forgotten the update")

    def _advance(self, received: int, now: float) -> None:
        if self.received < received <= len(self._image.data):
            self.received, self._moved = received, now

    # -- what is to be sent ------------------------------------------------------------------------

    def _piece(self) -> UpdateData | None:
        """The next bytes of the head, or of the files; they are not mixed."""
        end = self._image.head_size if self.phase == "head" else len(self._image.data)
        if self._offset >= end or len(self._flying) >= WINDOW:
            return None
        piece = self._image.data[self._offset : min(end, self._offset + m.UPDATE_PIECE)]
        offset, self._offset = self._offset, self._offset + len(piece)
        return UpdateData(offset, piece)

    def _confirms(self) -> bool:
        """Only where this host understands the new firmware, which is the one it sent."""
        told = self.told
        return (
            self.phase == "confirming"
            and self._usable
            and told is not None
            and told.trial
            and told.version == self._image.version
        )

    def _go(self, phase: Phase, now: float) -> None:
        self.phase, self.problem, self._moved = phase, "", now

    def _end(self, phase: Phase, problem: str) -> None:
        self.phase, self.problem = phase, problem
        self._flying.clear()
