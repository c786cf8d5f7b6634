"""Screen 3: versions, the scatter, the job, and what may be done."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Forecaster, Job
from tests.unit.console_draws import anything, views
from tests.unit.console_views import LIVE, STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.lines import text_of
from tui.screen import Ask, Call, Go, Show, Tell
from tui.screens.calibration import SCATTER, VERSIONS, Calibration
from tui.view import View

SHARED = {"created": "2026-11-14T02:30:00Z", "embedder": "tokens", "precision": "int8"}
V7 = SHARED | {
    "version": "v0007", "in_use": True, "since_ms": 1_764_300_000_000, "skill": 0.54,
    "coverage_pct": 89.6, "mae": 92.1, "prompts": 1800, "answers": 3600,
}  # fmt: skip
V6 = SHARED | {"version": "v0006", "since_ms": 1_763_100_000_000, "skill": 0.51,
               "coverage_pct": 90.2}  # fmt: skip
PACKAGED = SHARED | {"version": "packaged", "packaged": True, "skill": 0.5}
POINTS = [[60, 60, 0], [60, 70, 0], [300, 280, 0], [9, 400, 1], [500, 512, 1], [12, 10, 0]]
JOB = Job(kind="calibrate", phase="generate", done=612, total=1000, eta_ms=1_320_000)


def calibrated(*jobs: Job, **given: Any) -> View:
    live = replace(LIVE, forecaster="v0007", forecast_state="ok", coverage_pct=89.6)
    bands = {**STATE.bands, "coverage": (88.0, 92.0)}
    now = Forecaster(version="v0007", state="ok", skill=0.54, pinball_tok=11.8)
    state = replace(STATE, bands=bands, jobs=jobs, forecaster=now)
    return changed(view(**given), live=live, state=state)


def told(*versions: dict[str, Any], points: Any = POINTS) -> Calibration:
    screen = Calibration()
    screen.receive(VERSIONS, {"in_use": "", "forecasters": list(versions)}, None)
    screen.receive(SCATTER, {"points": points}, None)
    return screen


def pressed(screen: Calibration, *keys: str, shown: View | None = None) -> Any:
    shown = shown or calibrated()
    screen.body(shown)
    *before, last = keys
    for key in before:
        assert screen.press(key, shown) is None
    return screen.press(last, shown)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 140])
def test_looks_as_it_did_with_versions(lang: str, width: int) -> None:
    shown = calibrated(JOB, lang=lang, width=width, height=24 if width == 80 else 45)
    agree(f"calibration-versions-{width}-{lang}", printed(told(V7, V6, PACKAGED), shown))


@given(
    views(),
    st.lists(
        st.tuples(st.integers(-5, 10**9), st.integers(-5, 10**9), st.integers(0, 1)), max_size=9
    ),
    anything,
    st.none() | st.floats(),
)
def test_every_row_is_exact_whatever_the_versions_say(
    shown: View, points: list[tuple[int, int, int]], word: str, number: float | None
) -> None:
    strange = {"version": word, "created": word, "embedder": word, "skill": number,
               "coverage_pct": number, "problem": word}  # fmt: skip
    screen = told(strange, V7 | {"version": "v1"}, points=points)
    exact(screen, shown)
    screen.press("enter", shown)


def test_older_forecaster_is_three_keys_and_yes_away() -> None:
    found = pressed(told(V7, V6, PACKAGED), "tab", "down", "B")
    assert isinstance(found, Ask)
    assert found.typed is None
    assert isinstance(found.effect, Call)
    assert (found.effect.method, found.effect.path) == ("POST", "/admin/forecasters/v0006/use")


def test_b_on_the_one_in_use_takes_the_next_older_that_is_sound() -> None:
    bad = V6 | {"problem": "its file is damaged: roll back"}
    found = pressed(told(V7, bad, PACKAGED), "B")
    assert isinstance(found, Ask)
    assert isinstance(found.effect, Call)
    assert found.effect.path == "/admin/forecasters/packaged/use"


def test_b_without_an_older_one_says_so() -> None:
    found = pressed(told(V7), "B")
    assert found == Tell("There is no older forecaster.")


def test_a_damaged_one_is_not_put_into_use_and_says_why() -> None:
    found = pressed(told(V7, V6 | {"problem": "its file is damaged"}), "down", "B")
    assert found == Tell("its file is damaged")


@pytest.mark.parametrize(
    ("key", "job", "action"),
    [
        ("N", None, "start"),
        ("H", JOB, "hold"),
        ("H", replace(JOB, held=True), "resume"),
        ("X", JOB, "stop"),
    ],
)
def test_capitals_ask_before_they_act(key: str, job: Job | None, action: str) -> None:
    shown = calibrated(*([job] if job else []))
    found = pressed(told(V7), key, shown=shown)
    assert isinstance(found, Ask)
    assert isinstance(found.effect, Call)
    assert (found.effect.path, found.effect.body) == ("/admin/calibration", {"action": action})


@pytest.mark.parametrize(("key", "job"), [("N", JOB), ("H", None), ("X", None)])
def test_what_cannot_be_done_now_is_told_without_asking(key: str, job: Job | None) -> None:
    shown = calibrated(*([job] if job else []))
    assert isinstance(pressed(told(V7), key, shown=shown), Tell)


def test_enter_tells_all_of_a_version_and_without_one_goes_to_the_queue() -> None:
    found = pressed(told(V7), "enter")
    assert isinstance(found, Show)
    assert "skill 0.54, 90 % bound covers 89.6 %, mean error 92.1 tok" in found.lines
    assert "from 3600 answers to 1800 prompts, 2026-11-14T02:30:00Z" in found.lines
    assert pressed(Calibration(), "enter") == Go(2)


def test_a_refusal_of_the_box_is_shown_in_place_of_the_versions() -> None:
    screen = Calibration()
    screen.receive(VERSIONS, None, "no ledger")
    assert "not read: no ledger" in printed(screen, calibrated())


def test_why_a_forecaster_is_not_as_it_should_be_stands_below_it() -> None:
    shown = calibrated()
    assert shown.state is not None
    now = Forecaster(version="v0007", state="ok", problem="CUDA: no device, so the CPU computes")
    text = printed(told(V7), changed(shown, state=replace(shown.state, forecaster=now)))
    assert " CUDA: no device, so the CPU computes" in text


def test_scatter_marks_where_forecast_and_actual_are_equal() -> None:
    rows = printed(told(V7, points=[]), calibrated(ascii=True)).splitlines()
    plot = [row[5:25] for row in rows if "|" in row[:6]]
    assert [row.index("/") for row in plot] == [15, 10, 5, 0]


def test_the_phase_that_runs_stands_out_without_colour() -> None:
    for lang, sign in (("en", "GENERATE"), ("zh", "[生成]")):
        rows = told(V7).body(calibrated(JOB, lang=lang))
        assert any(sign in text_of(row) for row in rows)
