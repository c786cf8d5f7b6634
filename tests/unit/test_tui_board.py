"""What the console does on screen 6: every act is asked, and says what it does."""

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.frames import Board as Told
from appliance.frames import BoardEvent, BoardLink, FirmwareSlot, FirmwareUpdate, Output, Sensor
from tests.unit.console_shop import Shop, open_shop
from tests.unit.console_views import STATE, view
from tests.unit.screen_checks import printed
from tui.link import Answer
from tui.screen import Ask, Call, Choose, Show, Tell
from tui.screens.all import every_screen
from tui.screens.board import Board
from tui.screens.board_acts import IMAGES
from tui.view import View

OUTPUTS = (
    Output(name="fan0", now_pct=45.0, safe_pct=70.0, unit="1", highest=1.0),
    Output(name="led", safe_pct=0.0, unit="1", highest=3.0),
    Output(name="aux", safe_pct=0.0, unit="1", highest=1.0),
)
READY = {"name": "new.fw", "version": "1.2.0", "problem": ""}
BAD = {"name": "bad.fw", "version": "", "problem": "it is no firmware image"}


def shown(lang: str = "en", **board: Any) -> View:
    told = Told(state="armed", firmware="1.1.0", outputs=OUTPUTS, timeout_ms=30_000)
    return changed(view(lang=lang), state=replace(STATE, board=replace(told, **board)))


def chosen(effect: Any, *values: str) -> Any:
    """Walk through lists."""
    for value in values:
        assert isinstance(effect, Choose)
        assert value in [one for one, _ in effect.options]
        effect = effect.then(value)
    return effect


def call_of(effect: Any) -> Call:
    assert isinstance(effect, Ask)
    assert isinstance(effect.effect, Call)
    return effect.effect


def board_with(*images: dict[str, str]) -> Board:
    screen = Board()
    screen.receive(IMAGES, {"images": list(images)}, None)
    return screen


def test_the_watchdog_is_inhibited_for_the_chosen_minutes() -> None:
    ask = chosen(Board().press("H", shown()), "15")
    call = call_of(ask)
    assert (call.path, call.body) == ("/admin/board/inhibit", {"minutes": 15})
    assert "15 min" in ask.lines[0]
    assert "ends by itself" in ask.lines[1]


def test_an_inhibited_watchdog_is_told_and_can_watch_again() -> None:
    waits = shown(inhibited_ms=590_000)
    assert "watchdog inhibited, watches again in 9.8 min" in printed(Board(), waits)
    assert call_of(Board().press("H", waits)).body == {"minutes": 0}


@pytest.mark.parametrize(
    ("name", "value", "sent"), [("fan0", "0.7", 0.7), ("led", "2", 2.0), ("aux", "1", 1.0)]
)
def test_an_output_is_set_for_the_chosen_time(name: str, value: str, sent: float) -> None:
    ask = chosen(Board().press("E", shown()), name, value, "30")
    call = call_of(ask)
    assert call.path == f"/admin/board/outputs/{name}"
    assert call.body == {"value": sent, "seconds": 30}
    assert "safe value" in ask.lines[1]


def test_an_output_is_let_go() -> None:
    call = call_of(chosen(Board().press("E", shown()), "fan0", ""))
    assert call.body == {"value": None}


def test_new_firmware_needs_its_version_typed() -> None:
    ask = chosen(board_with(BAD, READY).press("U", shown()), "new.fw")
    assert call_of(ask).body == {"name": "new.fw"}
    assert ask.typed == "1.2.0"
    assert "1.2.0 in place of 1.1.0" in ask.lines[0]


def test_an_image_that_cannot_be_used_says_why() -> None:
    told = chosen(board_with(BAD).press("U", shown()), "bad.fw")
    assert isinstance(told, Show)
    assert told.lines == ("it is no firmware image",)


def test_without_images_it_says_where_they_belong() -> None:
    told = Board().press("U", shown())
    assert isinstance(told, Show)
    assert "steelyard board update" in told.lines[0]


def test_a_second_update_is_not_offered() -> None:
    update = FirmwareUpdate(version="1.2.0", phase="files", done=1, total=2)
    told = board_with(READY).press("U", shown(update=update))
    assert isinstance(told, Tell)
    assert "on its way" in told.text


@pytest.mark.parametrize("state", ["none", "lost", "greeting"])
def test_a_board_that_is_not_there_is_not_asked(state: str) -> None:
    gone = shown(state=state)
    for key in "EHU":
        assert isinstance(Board().press(key, gone), Tell)
    assert not Board().wants(gone)
    assert [key for key, _ in Board().hints(gone)] == ["Enter"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_an_update_that_was_refused_is_told_whole(lang: str) -> None:
    why = "no key that the board trusts has signed it, and this is a long sentence to wrap"
    update = FirmwareUpdate(version="1.2.0", phase="refused", done=0, total=2, problem=why)
    slots = (
        FirmwareSlot(slot="a", version="1.1.0", state="confirmed"),
        FirmwareSlot(slot="b", state="empty"),
    )
    text = printed(Board(), shown(lang=lang, update=update, slots=slots))
    assert "to wrap" in text
    assert "a 1.1.0" in text


@pytest.mark.parametrize(
    "data", [None, [], {}, {"images": [3, {"name": 4}, {}]}, {"images": "x"}, "text"], ids=str
)
def test_an_answer_of_another_kind_holds_no_images(data: Any) -> None:
    screen = Board()
    screen.receive(IMAGES, data, None)
    assert isinstance(screen.press("U", shown()), Show)


async def keys(it: Shop, *pressed: str) -> None:
    for key in pressed:
        await it.armed()
        await it.press(key)


async def test_keys_on_the_console_end_in_a_call_after_the_question(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        it.link.state = shown().state
        it.link.answers["/admin/board"] = Answer({"images": [READY]})
        await keys(it, "6", "H", "enter")
        await it.until(lambda: "Inhibit the watchdog" in it.screen)
        await keys(it, "y")
        await it.until(lambda: it.link.acted)
        assert it.link.acted == [("POST", "/admin/board/inhibit", {"minutes": 5})]
        it.link.acted.clear()
        await it.until(lambda: "/admin/board" in it.link.asked and not it.desk.errands._asking)
        await keys(it, "U", "enter", *"1.2.0", "enter")
        await it.until(lambda: it.link.acted)
        assert it.link.acted == [("POST", "/admin/board/update", {"name": "new.fw"})]


# -- sensors -------------------------------------------------------------------------------------


def with_sensors(*sensors: Sensor, **given: Any) -> View:
    return changed(view(**given), state=replace(STATE, sensors=sensors))


def volts(at: int, **given: Any) -> Sensor:
    told = {"name": f"rail {at}", "unit": "V", "source": "board", "quality": "ok", "value": 12.0}
    return Sensor(**(told | given))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "ok"),
        ({"drift": "sparse"}, "sparse"),
        ({"drift": "holdover"}, "holdover"),
        ({"quality": "stale", "drift": "ok"}, "stale"),
        ({"quality": "unknown", "value": None}, "unknown"),
    ],
)
def test_quality_is_the_worse_of_the_reading_and_its_references(
    given: dict[str, Any], word: str
) -> None:
    row = next(
        row
        for row in printed(Board(), with_sensors(volts(1, **given))).splitlines()
        if "rail 1" in row
    )
    assert f" {word} " in f"{row} "
    assert ("12 V" in row) == (word not in ("stale", "unknown")), "what is not known is no number"


def test_residuals_are_drawn_around_their_zero() -> None:
    resid = (*[0.2] * 32, *[-0.2] * 32)
    for width, size in ((80, 8), (140, 32)):
        shown = with_sensors(volts(1, resid=resid), width=width, height=24, ascii=True)
        text = printed(Board(), shown)
        row = next(row for row in text.splitlines() if "rail 1" in row)
        curve = row.split("board")[1].strip()
        assert len(curve) == size
        assert curve.startswith("####")
        assert curve.endswith("....")


def test_sensor_at_the_cursor_tells_why_it_is_unknown_or_what_was_taken_off() -> None:
    screen = Board()
    shown = with_sensors(
        volts(1, off=0.01, sigma=0.004), volts(2, quality="unknown", why="no pulse: check its plug")
    )
    assert "rail 1  0.010 V taken off  sigma 0.0040 V" in printed(screen, shown)
    screen.press("down", shown)
    assert "rail 2: no pulse: check its plug" in printed(screen, shown)


def test_many_sensors_are_walked_and_filtered() -> None:
    screen, shown = Board(), with_sensors(*(volts(at) for at in range(32)))
    assert "rail 31" not in printed(screen, shown)
    screen.press("end", shown)
    assert ">rail 31" in printed(screen, shown)
    screen.find("31")
    text = printed(screen, shown)
    assert ">rail 31" in text
    assert "rail 30" not in text
    screen.find("nothing of the kind")
    assert "None matches. Esc clears the filter." in printed(screen, shown)
    screen.press("escape", shown)
    assert "rail 30" in printed(screen, shown)


def test_sensors_keep_their_place_when_the_board_has_much_to_tell() -> None:
    events = tuple(BoardEvent(at_ms=1000 + at, code="boot", argument=0) for at in range(8))
    board = Told(
        state="armed", firmware="1.1.0", outputs=OUTPUTS, timeout_ms=30_000, events=events,
        link=BoardLink(samples=1, lost=0, bad=0, retries=0, resets=0, power_cycles=0),
    )  # fmt: skip
    state = replace(STATE, board=board, sensors=tuple(volts(at) for at in range(32)))
    text = printed(Board(), changed(view(), state=state))
    assert sum("rail" in row for row in text.splitlines()) >= 3
    assert text.count("the board booted") == 1
    large = printed(Board(), changed(view(width=140, height=45), state=state))
    assert large.count("the board booted") > 1
