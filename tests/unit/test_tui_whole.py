"""At 80 cells no screen says half of what it was told, nor what means nothing."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from appliance.frames import Board as Told
from appliance.frames import Process, RequestRow, Rows, Sensor, Step
from tests.unit.console_box import make_rows
from tests.unit.console_states import DEGRADED, DOWN, EMPTY
from tests.unit.console_views import LIVE, STATE, view
from tests.unit.screen_checks import printed
from tui.screens.board import Board
from tui.screens.calibration import Calibration
from tui.screens.calibration_channels import Channel, Control, channels
from tui.screens.engine import Engine
from tui.screens.requests import Requests
from tui.screens.setup import Setup

WHY = "there is no such device (/dev/serial/by-id/usb-Pico): check the cable and board.device"


def squeezed(text: str) -> str:
    """As one line of single blanks."""
    return " ".join(text.split())


def test_why_a_board_is_lost_is_told_whole() -> None:
    lost = changed(
        view(live=replace(LIVE, board_state="lost")),
        state=replace(STATE, board=Told(state="lost", problem=WHY)),
    )
    assert f"board LOST: {WHY}" in squeezed(printed(Board(), lost))


def test_a_step_whose_row_is_too_short_is_told_whole_below() -> None:
    steps = (Step(step="board", state="todo", detail=WHY), Step(step="tls", state="ok", detail="-"))
    drawn = printed(Setup(), changed(view(), state=replace(STATE, setup=steps)))
    above, below = drawn.split("> 1")[1].split("\n", 1)
    assert WHY not in above
    assert WHY in squeezed(below)
    assert "Enter opens screen 6, Board." in below
    wide = printed(Setup(), changed(view(width=140), state=replace(STATE, setup=steps)))
    assert wide.count(WHY) == 1


def test_sockets_of_a_machine_are_told_apart() -> None:
    sensors = tuple(
        Sensor(name=f"coretemp Package id {at}", unit="C", source="hwmon", quality="ok", value=60.0)
        for at in (0, 1)
    )
    drawn = printed(Board(), changed(view(), state=replace(STATE, sensors=sensors)))
    assert ">coretemp Package id 0 " in drawn
    assert " coretemp Package id 1 " in drawn


@pytest.mark.parametrize("state", ["backoff", "failed"])
def test_an_engine_that_is_down_has_no_process_to_tell_of(state: str) -> None:
    down = changed(
        view(live=replace(LIVE, engine_state=state)),
        state=replace(STATE, process=Process(up_s=0, rss_mb=0.0, restarts=1)),
    )
    drawn = printed(Engine(), down)
    assert "process  none now, 1 restart\n" in drawn
    assert "0 MB" not in drawn
    assert "process  up 3 d, 412 MB" in printed(Engine(), view())


def test_a_head_does_not_stand_without_its_rows() -> None:
    told = Control(channels=(Channel(channel="a", n=64), Channel(channel="b", n=64)))
    for room, rows in ((0, 0), (1, 1), (2, 1), (3, 3), (9, 3)):
        assert len(channels(view(), told, room, wide=False)) == rows
    one = Control(channels=told.channels[:1])
    assert len(channels(view(), one, 2, wide=False)) == 2


def test_a_box_that_forecasts_nothing_shows_no_scores_of_it() -> None:
    drawn = printed(Calibration(), changed(view(), live=EMPTY.live, state=EMPTY.state))
    assert "N makes a forecaster" in drawn
    assert "p90 covers" not in drawn


def test_a_board_that_is_none_is_said_once() -> None:
    drawn = printed(Board(), changed(view(), live=EMPTY.live, state=EMPTY.state))
    assert "No board is connected" in drawn
    assert "The box says" not in drawn


def test_a_request_without_flags_shows_no_sign_of_them() -> None:
    for rows in (make_rows(1), Rows(total=1, requests=(flagged(),))):
        drawn = printed(Requests(), changed(view(), rows=rows))
        flags = "stream schema  " if rows.requests[0].flags else ""
        assert f"scenario reply  {flags}limit 512  tier default" in drawn


def flagged() -> RequestRow:
    return replace(make_rows(1).requests[0], flags=("stream", "schema"))


def test_scenes_are_told_as_a_box_tells_them() -> None:
    """What stands in row 23 is one of the alarms that the list has."""
    for scene in (DEGRADED, DOWN):
        assert scene.live.worst in scene.state.alarms
        assert scene.live.alarms_1 + scene.live.alarms_2 == len(scene.state.alarms)
