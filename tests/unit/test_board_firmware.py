"""What the daemon knows of the board's slots: asked when the board is greeted, and no more."""

import struct
from dataclasses import dataclass, field
from typing import Any

from appliance.board.firmware import Firmware
from appliance.board.telling import slots_of
from firmware_bridge import messages as m
from firmware_bridge.commands import Command, Refusal, UpdateConfirm, UpdateState
from firmware_bridge.events import BoardInfo, Done, Failed, Ready, Unusable
from firmware_bridge.update import Progress
from tests.unit.update_parts import small_image

BOARD = BoardInfo(1, 1, 1, 1000, 1, 1, 1, "1.1.0", 1, 0, "")


@dataclass
class Line:
    """Takes commands, and does nothing with them."""

    state: str = "ready"
    sent: list[Command] = field(default_factory=list)
    refusal: Refusal | None = None

    @property
    def telemetry(self) -> "Line":
        return self

    def send(self, command: Command) -> int | Refusal:
        if self.refusal is not None:
            return self.refusal
        self.sent.append(command)
        return len(self.sent)


def told(*, trial: int = 0, phase: int = m.UP_IDLE, slot: int = 0, reverted: int = 0) -> bytes:
    version, other = b"\1\2\0", b"\1\1\0"
    return struct.pack(m.UPDATE_TELL, slot, trial, phase, 0, reverted, version, other, 0, 0, 0)


def greeted(line: Any, *, usable: bool = True) -> Firmware:
    firmware = Firmware()
    firmware.take(Ready(BOARD) if usable else Unusable("another schema"), 0.0)
    firmware.turn(line, 0.0)
    return firmware


def test_a_greeted_board_is_asked_once() -> None:
    line: Any = Line()
    firmware = greeted(line)
    firmware.take(Done(1, told(), 0.001), 0.1)
    for now in range(1, 50):
        firmware.turn(line, float(now))
    assert line.sent == [UpdateState()]
    assert [one.state for one in slots_of(firmware.slots)] == ["confirmed", "kept"]


def test_a_board_that_is_too_old_is_not_asked_again_and_one_that_was_silent_is() -> None:
    for code, asked in ((m.UNKNOWN_TYPE, 1), (None, 2)):
        line: Any = Line()
        firmware = greeted(line)
        firmware.take(Failed(1, "no", code), 0.1)
        for now in range(1, 5):
            firmware.turn(line, float(now))
        assert len(line.sent) == asked
        assert slots_of(firmware.slots) == ()


def test_firmware_on_trial_is_confirmed_by_a_host_that_understands_it() -> None:
    for usable in (True, False):
        line: Any = Line()
        firmware = greeted(line, usable=usable)
        firmware.take(Done(1, told(trial=1), 0.001), 0.1)
        firmware.turn(line, 2.0)
        assert (UpdateConfirm((1, 2, 0)) in line.sent) is usable


def test_slots_say_what_the_other_one_is() -> None:
    line: Any = Line()
    for given, states in (
        ({"trial": 1, "slot": 1}, ["trial", "confirmed"]),
        ({"reverted": 1}, ["confirmed", "failed"]),
        ({"slot": 255}, []),
    ):
        firmware = greeted(line)
        firmware.take(Done(len(line.sent), told(**given), 0.001), 0.1)
        assert [one.state for one in slots_of(firmware.slots)] == states


def test_a_line_that_takes_nothing_ends_the_update_with_its_reason() -> None:
    line: Any = Line(refusal=Refusal("too many commands wait"))
    over: list[Progress] = []
    firmware = Firmware(over.append)
    assert firmware.begin(small_image()) is None
    for turn in range(400):
        firmware.turn(line, turn * 0.5)
    (ended,) = over
    assert ended.phase == "failed"
    assert "too many commands wait" in ended.problem
    assert firmware.begin(small_image()) is None, "the next may come"


def test_garbled_slots_are_unknown() -> None:
    line: Any = Line()
    firmware = greeted(line)
    firmware.take(Done(1, b"short", 0.001), 0.1)
    assert firmware.slots is None
