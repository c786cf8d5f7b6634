"""What the box does, and chains, when its board tells something."""

import pytest

from appliance.board.duty import MOST, WITHIN_S, Duty
from appliance.board.snapshot import Told
from appliance.ledger.rows import Action
from firmware_bridge.update import Progress


class Gate:
    def __init__(self) -> None:
        self.draining = False

    def drain(self, on: bool) -> None:
        self.draining = on


class House:
    def __init__(self) -> None:
        self.gate, self.rows, self.stopped = Gate(), list[Action](), 0
        self.now = 0.0
        self.duty = Duty(self.gate, note=self.rows.append, stop=self.stop, clock=lambda: self.now)

    def stop(self) -> None:
        self.stopped += 1

    def hear(self, code: str, argument: int = 0) -> None:
        self.duty.hear(Told(wall_ms=1, code=code, number=7, argument=argument, ticks=123_456))


def test_the_button_drains_and_resumes_and_says_which() -> None:
    house = House()
    house.hear("button")
    assert house.gate.draining
    house.hear("button")
    assert not house.gate.draining
    assert [row.detail["done"] for row in house.rows] == ["drain", "resume"]


def test_the_button_held_stops_the_box_once_it_is_chained() -> None:
    house = House()
    house.hear("button_long")
    assert house.stopped == 1
    assert house.rows[0].action == "board.button_long"


@pytest.mark.parametrize("code", ["power_cycle", "pretimeout", "updated", "reverted", "kind_99"])
def test_every_event_is_chained_with_the_boards_own_time(code: str) -> None:
    house = House()
    house.hear(code, 66_048)
    (row,) = house.rows
    assert (row.action, row.target, row.operator) == (f"board.{code}", "7", "board")
    assert row.detail == {"argument": 66_048, "ticks": 123_456}
    assert not house.gate.draining
    assert not house.stopped


def test_a_board_that_never_ends_to_tell_does_not_fill_the_chain() -> None:
    house = House()
    for _ in range(MOST + 500):
        house.hear("fan")
    assert len(house.rows) == MOST
    house.hear("button")
    assert house.gate.draining, "what it asks for is done all the same"
    house.now = WITHIN_S
    house.hear("fan")
    assert house.rows[-1].detail["unnoted"] == 501
    house.hear("fan")
    assert "unnoted" not in house.rows[-1].detail


def test_a_stop_is_chained_whatever_came_before() -> None:
    house = House()
    for _ in range(MOST + 1):
        house.hear("fan")
    house.hear("button_long")
    assert house.stopped == 1
    assert house.rows[-1].action == "board.button_long"
    assert house.rows[-1].detail["unnoted"] == 1


@pytest.mark.parametrize("phase", ["done", "refused", "reverted", "failed"])
def test_the_end_of_an_update_is_chained_with_its_reason(phase: str) -> None:
    house = House()
    house.duty.updated(Progress(phase, "1.2.0", 5, 9, "it is not newer"))  # type: ignore[arg-type]
    (row,) = house.rows
    assert (row.action, row.target) == (f"board.update_{phase}", "1.2.0")
    assert row.detail == {"problem": "it is not newer"}
