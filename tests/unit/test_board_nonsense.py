"""A board that describes what cannot be: it is told to be unusable, and nothing is counted. And an
order that comes too late for any board."""

import math
from collections import deque
from typing import Any

import pytest

from appliance.board.orders import Orders
from firmware_bridge import messages as m
from firmware_bridge.commands import Ping, Refusal
from firmware_bridge.events import BoardInfo, Unusable
from firmware_bridge.firmware import conversation
from firmware_bridge.sensors import MOST_WATTS
from tests.unit.board_parts import Pair
from tests.unit.test_board_sensors import greeted, told

Row = tuple[str, str, float, float, float]


def talk(monkeypatch: pytest.MonkeyPatch, row: Row) -> Pair:
    """With a board whose first channel is described so, under the hash that belongs to it."""
    rows = [m.describe(0, m.CHANNEL, row), *conversation.DESCRIPTIONS[1:]]
    monkeypatch.setattr(conversation, "DESCRIPTIONS", rows)
    monkeypatch.setattr(conversation, "SCHEMA", m.schema_hash(rows))
    pair = Pair(1)
    pair.run(0.2)
    return pair


def test_a_board_with_sound_numbers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = talk(monkeypatch, ("温度", "°C", -0.5, 1e6, 0.0))
    assert pair.session.state == "ready"
    board: BoardInfo | None = pair.session.board
    assert board is not None
    assert board.channels[0].name == "温度"


@pytest.mark.parametrize(
    "row",
    [
        ("rail_12v", "V", math.nan, 0.0, 0.0),
        ("rail_12v", "V", math.inf, 0.0, 0.0),
        ("rail_12v", "V", 1.0, -math.inf, 0.0),
        ("rail_12v", "V", 1.0, math.nan, 0.0),
        ("rail_12v", "V", 1.0, 0.0, math.nan),
        ("rail_12v", "V", 3e38, 0.0, 0.0),
        ("rail_12v", "V", 1.0, 1e7, 0.0),
        ("\x1b[2Krail", "V", 1.0, 0.0, 0.0),
        ("rail", "V\n", 1.0, 0.0, 0.0),
        ("", "V", 1.0, 0.0, 0.0),
    ],
)
def test_a_board_that_describes_what_cannot_be_is_unusable(
    monkeypatch: pytest.MonkeyPatch, row: Row
) -> None:
    pair = talk(monkeypatch, row)
    assert pair.session.state == "unusable"
    (event,) = [one for one in pair.events if isinstance(one, Unusable)]
    assert "no sensor measures" in event.reason


def test_power_that_no_box_draws_is_not_counted() -> None:
    """An absurd reading must not get into what requests are charged."""
    sensors = greeted()
    told(sensors, 0, 0, 32_767, 32_767, 0, 0)  # 33 V at 66 A: a lot, and possible
    (before,) = sensors.energies()
    assert 0 < before.watts < MOST_WATTS
    board = sensors._board
    assert board is not None
    for rail in sensors._rails:
        rail._channels = tuple(
            type(one)(one.kind, one.name, one.unit, 1e6, 0.0, one.sigma) for one in board.channels
        )
    told(sensors, 5, 0, 32_767, 32_767, 0, 0)
    assert sensors.energies() == ()
    told(sensors, 10, 0, 0, 0, 0, 0)
    (after,) = sensors.energies()
    assert after.uj == before.uj


def test_an_order_that_comes_at_the_very_end_gets_its_answer() -> None:
    """The thread that would carry it out may let go between two lines of whoever asks."""
    orders = Orders()

    class Waiting(deque[Any]):
        def append(self, one: Any) -> None:
            orders.close()
            super().append(one)

    orders._waiting = Waiting()
    outcome = orders.ask(Ping()).result(0)
    assert isinstance(outcome, Refusal)
    assert "stopping" in outcome.reason
