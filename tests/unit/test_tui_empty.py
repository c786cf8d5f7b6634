"""Screens 3 and 6: why there is nothing yet, and what they draw once there is."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Board as Board_
from appliance.frames import (
    BoardEvent,
    BoardLink,
    FirmwareSlot,
    FirmwareUpdate,
    Job,
    Output,
    Sensor,
    Step,
)
from tests.unit.console_views import LIVE, STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Go, Screen
from tui.screens.board import Board
from tui.screens.calibration import Calibration
from tui.view import View

SCREENS = (Board, Calibration)
JOB = Job(kind="calibrate", phase="train", done=612, total=1000, eta_ms=1_320_000, held=True)
SETUP = (Step(step="board", state="skip", detail="none; energy from RAPL"),)
texts = st.text(st.characters(blacklist_categories=()), max_size=60)
numbers = st.one_of(st.none(), st.floats())


BOARD = Board_(
    state="armed",
    device="/dev/appliance-mcu",
    firmware="1.0.0",
    reset_cause="power",
    timeout_ms=30_000,
    slots=(
        FirmwareSlot(slot="a", version="1.0.0", state="confirmed"),
        FirmwareSlot(slot="b", version="0.9.0", state="kept"),
    ),
    update=FirmwareUpdate(version="1.1.0", phase="files", done=400, total=1000),
    outputs=(
        Output(name="fan0", now_pct=45.0, safe_pct=70.0, unit="1", highest=1.0, left_ms=1800),
        Output(name="aux", now_pct=None, safe_pct=0.0),
    ),
    events=(BoardEvent(at_ms=1_790_000_000_000, code="button", argument=0),),
    link=BoardLink(
        samples=60_000, lost=2, bad=0, retries=0, resets=0, power_cycles=1, rtt_p99_ms=0.8,
        clock_ppm=3.2,
    ),
)  # fmt: skip


def bare(kind: str = "empty", **given: Any) -> View:
    """A box that has neither."""
    return changed(view(kind, **given), state=replace(STATE, setup=SETUP))


def equipped(**given: Any) -> View:
    """A box that has both."""
    live = replace(
        LIVE,
        forecaster="v3 CPU INT8",
        forecast_state="ok",
        coverage_pct=89.6,
        tick_late_p99_ms=0.4,
        tick_overrun_pct=0.01,
    )
    bands = {**STATE.bands, "coverage": (88.0, 92.0)}
    return changed(view(**given), live=live, state=replace(STATE, bands=bands, jobs=(JOB,)))


@given(
    st.sampled_from(SCREENS),
    texts,
    numbers,
    numbers,
    st.integers(0, 2**40),
    st.one_of(st.none(), st.integers(0, 2**40)),
    st.integers(60, 160),
    st.integers(16, 50),
    st.sampled_from(("en", "zh")),
)
def test_every_row_is_exact_whatever_the_box_says(
    kind: type[Screen],
    word: str,
    one: float | None,
    other: float | None,
    done: int,
    total: int | None,
    width: int,
    height: int,
    lang: str,
) -> None:
    live = replace(
        LIVE, board_state=word, temp_c=one, power_w=other, dog_left_ms=one, j_per_tok=other,
        forecaster=word, forecast_state=word, coverage_pct=one, tick_late_p99_ms=other,
        tick_overrun_pct=one,
    )  # fmt: skip
    job = Job(kind=word, phase=word, done=done, total=total, eta_ms=total)
    bands = {"temp": (one, other), "coverage": (other, one)}
    setup = (Step(step="board", state=word, detail=word),)
    sensor = Sensor(
        name=word, unit=word, source=word, quality="ok", value=one, lo=other, hi=one, why=word
    )
    state = replace(STATE, jobs=(job,) * 30, bands=bands, setup=setup, sensors=(sensor,) * 40)
    shown = view(width=width, height=height, lang=lang)
    exact(kind(), changed(shown, live=live, state=state))
    exact(kind(), changed(bare(width=width, height=height, lang=lang), state=state))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", ["empty", "lost", "degraded"])
@pytest.mark.parametrize("screen", SCREENS)
def test_looks_as_it_did(screen: type[Screen], kind: str, lang: str) -> None:
    agree(f"{screen.name}-{kind}-{lang}", printed(screen(), bare(kind, lang=lang)))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("screen", SCREENS)
def test_looks_as_it_did_with_data(screen: type[Screen], lang: str) -> None:
    agree(f"{screen.name}-normal-{lang}", printed(screen(), equipped(lang=lang, ascii=True)))


@pytest.mark.parametrize("screen", SCREENS)
def test_says_nothing_before_the_box_did(screen: type[Screen]) -> None:
    assert "Nothing has come" in printed(screen(), View())


def test_without_a_board_there_is_one_sentence_and_a_key() -> None:
    text = printed(Board(), bare())
    assert "No board is connected" in text
    assert "none; energy from RAPL" in text
    assert "Enter opens Set-up" in text
    assert Board().press("enter", bare()) == Go(9)


def test_a_board_that_was_lost_shows_what_is_unknown() -> None:
    text = printed(Board(), view("degraded"))
    assert "board    LOST" in text
    assert "No board is connected" not in text
    assert "temperature               ? <85" in text


def test_sensors_without_a_board_are_listed_with_where_they_come_from() -> None:
    sensors = (
        Sensor(
            name="package-0 power", unit="W", source="RAPL", quality="unknown", why="only root may"
        ),
        Sensor(
            name="coretemp Package id 0", unit="C", source="hwmon", quality="ok", value=61.0, hi=80
        ),
        Sensor(name="old", unit="C", source="hwmon", quality="stale", value=44.0),
    )
    shown = bare()
    assert shown.state is not None
    text = printed(Board(), changed(shown, state=replace(shown.state, sensors=sensors)))
    assert "No board is connected" not in text
    assert ">coretemp Package id 0       61 C <80       (====o=).. ok       hwmon" in text
    assert " package-0 power                ? -                    unknown  RAPL" in text
    assert "44" not in text


def test_a_reading_out_of_its_band_is_marked() -> None:
    shown = changed(view(), live=replace(LIVE, temp_c=91.0))
    assert "!" in printed(Board(), shown).splitlines()[2]
    assert Board().body(shown)[2][0].role == "bold"


def test_without_a_forecaster_the_order_is_told() -> None:
    text = printed(Calibration(), bare())
    assert "No forecaster is installed" in text
    assert "FCFS" in text
    assert Calibration().press("enter", bare()) == Go(2)


def test_jobs_show_how_far_they_are_and_those_of_other_screens_do_not() -> None:
    shown = bare()
    assert shown.state is not None
    verify = Job(kind="verify", phase="rows", done=1, total=2)
    text = printed(Calibration(), changed(shown, state=replace(shown.state, jobs=(JOB, verify))))
    assert "JOB  prepare > generate > TRAIN > compare > install if it wins" in text
    assert "[#########.....]  61 %  612/1000  ETA 22 min  HELD" in text
    assert "verify" not in text


def watched(**given: Any) -> View:
    """A box with a board that watches over it."""
    shown = view(**given)
    sensor = Sensor(
        name="reference", unit="V", source="board", quality="ok", value=1.0, sigma=0.0004,
        drift="ok", off=0.003, resid=(0.003,) * 64,
    )  # fmt: skip
    state = replace(STATE, board=BOARD, sensors=(sensor,))
    return changed(shown, live=replace(LIVE, board_state="armed", dog_left_ms=28_700), state=state)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_board_tells_of_its_watchdog_line_outputs_and_events(lang: str) -> None:
    shown = watched(lang=lang)
    exact(Board(), shown)
    agree(f"board-watched-{lang}", printed(Board(), shown))


def test_a_lost_board_says_why_and_what_to_do() -> None:
    lost = Board_(state="lost", problem="not opened yet (/dev/x): check the cable and board.device")
    shown = changed(
        watched(), live=replace(LIVE, board_state="lost"), state=replace(STATE, board=lost)
    )
    text = printed(Board(), shown)
    assert "LOST: not opened yet" in text
