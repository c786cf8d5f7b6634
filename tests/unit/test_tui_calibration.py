"""Screen 3: versions, the scatter, the job, and what may be done."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Forecaster, Job
from tests.unit.console_draws import anything, views
from tests.unit.console_views import DAY_MS, FORECAST_PAST, LIVE, STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.lines import text_of
from tui.screen import Ask, Call, Go, Show, Tell
from tui.screens.calibration import CONTROL, PAST, SCATTER, VERSIONS, Calibration
from tui.screens.calibration_job import LAST
from tui.screens.calibration_past import POOLED, SHORT, TALL, Step, coverages, losses
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


# -- over time -----------------------------------------------------------------------------------


def with_past(given: Any = FORECAST_PAST) -> Calibration:
    screen = told(V7, V6, PACKAGED)
    screen.receive(PAST, given, None)
    return screen


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 140])
def test_looks_as_it_did_with_a_month_behind_it(lang: str, width: int) -> None:
    shown = calibrated(JOB, lang=lang, width=width, height=24 if width == 80 else 45)
    agree(f"calibration-past-{width}-{lang}", printed(with_past(), shown))


def test_looks_as_it_did_without_braille() -> None:
    shown = calibrated(width=140, height=45, ascii=True)
    text = printed(with_past(), shown)
    assert text.isascii()
    agree("calibration-past-140-ascii", text)


def test_windows_of_the_corrections_go_before_the_height_of_the_plots() -> None:
    channels = [{"channel": f"smollm2/{at}", "n": 64, "window": [0.1] * 64} for at in range(9)]
    rows = {}
    for count in (2, 9):
        screen = with_past()
        screen.receive(CONTROL, {"channels": channels[:count]}, None)
        text = printed(screen, calibrated(JOB, width=140, height=45)).splitlines()
        assert sum("smollm2/" in row for row in text) == count
        head = next(at for at, row in enumerate(text) if row.startswith("P90 COVERS"))
        foot = next(at for at, row in enumerate(text) if row.startswith("    +"))
        rows[count] = foot - head - 1
    assert rows == {2: TALL, 9: SHORT}


def test_coverage_at_a_moment_is_of_the_newest_bounds_up_to_it() -> None:
    bad, good, none = Step(100, 70, 100, 500.0), Step(100, 90, 100, 100.0), Step()
    assert coverages([bad, good, good], 3) == [70.0, 80.0, 90.0]
    assert coverages([good, none, good], 3) == [90.0, None, 90.0]
    assert coverages([Step(99, 99, 99, 1.0)], 1) == [None], "too few to tell"
    assert coverages([bad, good], 1) == [80.0]
    assert coverages([Step(POOLED, POOLED, 9, 0.0)], 2) == [100.0, 100.0], "more cells than steps"
    assert losses([bad, good, good], 3) == [5.0, 1.0, 1.0]
    assert losses([none], 2) == [None, None]


@pytest.mark.parametrize(("share", "sign"), [(0.87, "_"), (0.90, "="), (0.93, "^")])
def test_the_goal_can_be_seen_without_colour(share: float, sign: str) -> None:
    steps = [[200, round(200 * share), 200, 900.0]] * 16
    screen = with_past({"every_ms": 600_000, "until_ms": DAY_MS, "steps": steps, "windows": []})
    small = printed(screen, calibrated())
    assert f"  {sign * 16}  = in 88-92" in small
    large = printed(screen, calibrated(width=140, height=45))
    assert ("!" in large) == (sign != "="), "88 to 92 is the band in force here"


def test_before_there_are_enough_answers_it_says_how_many_there_are() -> None:
    few = {"every_ms": 600_000, "until_ms": DAY_MS, "steps": [[42, 40, 60, 600.0]],
           "windows": [{"span_ms": DAY_MS, "answers": 60, "coverage_pct": None,
                        "pinball_tok": 10.0}]}  # fmt: skip
    text = printed(with_past(few), calibrated())
    assert " over time   24 h ? %  42 of 100 answers" in text
    assert " pinball     24 h 10 tok" in text


def test_nothing_is_drawn_before_the_first_answer() -> None:
    none = {"every_ms": 600_000, "until_ms": DAY_MS, "steps": [[0, 0, 0, 0.0]] * 36, "windows": []}
    for size in ((80, 24), (140, 45)):
        shown = calibrated(width=size[0], height=size[1])
        assert printed(with_past(none), shown) == printed(told(V7, V6, PACKAGED), shown)


@given(
    views(),
    st.lists(st.tuples(*[st.integers(-(10**12), 10**12)] * 3, st.floats()), max_size=200),
    st.integers(-(10**15), 10**15),
    st.none() | st.floats(),
)
def test_every_row_is_exact_whatever_the_past_says(
    shown: View, steps: list[tuple[int, int, int, float]], moment: int, number: float | None
) -> None:
    window = {"span_ms": moment, "answers": 3, "coverage_pct": number, "pinball_tok": number}
    given = {"every_ms": moment, "until_ms": moment, "steps": steps, "windows": [window]}
    exact(with_past(given), shown)


# -- the last calibration --------------------------------------------------------------------------


def after(shown: View | None = None, **last: Any) -> str:
    screen = told(V7)
    screen.receive(LAST, last, None)
    return printed(screen, shown or calibrated())


def test_why_a_calibration_failed_can_be_read_where_it_was_started() -> None:
    why = "0 answers to 0 prompts are too few: at least 30 prompts are needed, and more is better"
    text = after(state="failed", ended_ms=1_764_300_000_000, problem=why)
    assert "JOB  calibration FAILED 11-28 03:20: 0 answers to 0 prompts are too few" in text
    assert "more is better" in text


def test_what_a_calibration_came_to_is_told_until_another_one_runs() -> None:
    result = {"done": "v0008 is in use", "why": "its error is 12 % lower"}
    last = {"state": "done", "ended_ms": 1_764_300_000_000, "result": result, "pid": 7}
    line = "JOB  calibrated 11-28 03:20: v0008 is in use; its error is 12 % lower"
    assert line in after(**last)
    assert line not in after(calibrated(JOB), **last)
    assert "JOB  calibration stopped 11-28 03:20\n" in after(
        state="stopped", ended_ms=1_764_300_000_000
    )
    for state in ("none", "running"):
        assert "JOB" not in after(state=state)
