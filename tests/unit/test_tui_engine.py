"""Screen 7: facts, settings, log; restarting asks first and says why."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Alarm, Forecaster, Model, Process
from tests.unit.console_views import GPU, LIVE, STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Ask, Call, Query, Show, Tell
from tui.screens.engine import Engine
from tui.view import View

SETTINGS = {
    "server.host": '"127.0.0.1"',
    "server.port": "8421",
    "engine.threads": "2",
    "engine.gpu_layers": "30",
    "sampling.temperature": "0.8",
}
MODEL = replace(
    STATE.model, sha256="51c2" + "a" * 58 + "0e", build="steelyard 0.4.0, llama.cpp 0c1e570"
)
texts = st.text(st.characters(blacklist_categories=()), max_size=60)
counts = st.integers(0, 2**40)


def log(*said: str, level: str = "info") -> dict[str, Any]:
    rows = [
        {"seq": at, "at_ms": 1_764_500_000_000 + at * 1000, "level": level}
        | {"logger": "appliance.api", "text": text}
        for at, text in enumerate(said)
    ]
    return {"lines": rows, "next": len(rows)}


def seen(kind: str = "normal", *, alarms: tuple[Alarm, ...] = (), **given: Any) -> View:
    state = replace(STATE, model=MODEL, settings=SETTINGS, alarms=alarms)
    return changed(view(kind, **given), state=state)


def told(screen: Engine, data: Any, error: str | None = None) -> None:
    """The box answers what the screen asks for."""
    (query,) = screen.wants(seen())
    screen.receive(query, data, error)


def typed(screen: Engine, text: str) -> None:
    for sign in text:
        screen.press(sign, seen())


@given(
    texts,
    st.builds(Model, name=texts, sha256=texts, template=texts, build=texts, kv=texts,
              ctx_tok=counts, seqs=counts, layers_asked=counts, layers_got=counts),
    st.builds(Process, up_s=counts, rss_mb=st.floats(), restarts=counts, last_failure=texts),
    st.dictionaries(texts, texts, max_size=30),
    st.lists(texts, max_size=30),
    st.integers(60, 160),
    st.integers(16, 50),
    st.sampled_from(("en", "zh")),
    st.sampled_from(("DRAINING", "DOWN", "SERVING")),
)  # fmt: skip
def test_every_row_is_exact_whatever_the_box_says(
    word: str,
    model: Model,
    process: Process,
    settings: dict[str, str],
    lines: list[str],
    width: int,
    height: int,
    lang: str,
    box: str,
) -> None:
    alarm = replace(GPU, text=word, args=(word, word))
    state = replace(STATE, model=model, process=process, settings=settings, alarms=(alarm,))
    live = replace(LIVE, state=box, engine_state=word)
    screen = Engine()
    told(screen, log(*lines, level=word))
    screen.find(word)
    exact(screen, changed(view(lang=lang, width=width, height=height), state=state, live=live))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", ["normal", "empty", "overload", "degraded", "lost"])
def test_looks_as_it_did(kind: str, lang: str) -> None:
    screen = Engine()
    alarms = (GPU,) if kind == "degraded" else ()
    shown = seen(kind, alarms=alarms, lang=lang)
    if kind == "degraded":
        assert shown.state is not None
        model = replace(MODEL, layers_asked=30)
        shown = changed(shown, state=replace(shown.state, model=model))
    if kind != "empty":
        told(screen, log("key of app crm-bot", "cuda: no device \x1b[31m", "POST /v1 200"))
    agree(f"engine-{kind}-{lang}", printed(screen, shown))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_wide_terminals_have_settings_beside_the_log(lang: str) -> None:
    screen = Engine()
    told(screen, log(*(f"line {at}" for at in range(60))))
    agree(f"engine-wide-{lang}", printed(screen, seen(lang=lang, width=140, height=45)))


def test_says_why_fewer_layers_are_on_the_gpu() -> None:
    shown = seen(alarms=(GPU,))
    assert shown.state is not None
    state = replace(shown.state, model=replace(MODEL, layers_asked=30, layers_got=12))
    text = printed(Engine(), changed(shown, state=state))
    assert "asked 30 on the GPU, got 12" in text
    assert "no device, CPU serves" in text


def test_says_nothing_before_the_box_did() -> None:
    assert "Nothing has come" in printed(Engine(), View())


def test_draining_tells_what_still_runs() -> None:
    shown = changed(seen(), live=replace(LIVE, state="DRAINING"))
    assert "6 run, 3 wait; the last of the queue starts in ~4 s" in printed(Engine(), shown)


def test_an_engine_that_is_down_tells_its_failure() -> None:
    shown = changed(seen(), live=replace(LIVE, state="DOWN", engine_state="backoff"))
    assert shown.state is not None
    process = replace(STATE.process, restarts=2, last_failure="died: signal 9")
    text = printed(Engine(), changed(shown, state=replace(shown.state, process=process)))
    assert "DOWN, starts again by itself" in text
    assert "failed   died: signal 9" in text


# -- restart -------------------------------------------------------------------------------------


def test_restart_asks_for_a_reason_then_asks_whether() -> None:
    screen = Engine()
    assert screen.press("R", seen()) is None
    assert screen.typing
    typed(screen, "换驱动 7R")
    assert "换驱动 7R_" in printed(screen, seen())
    ask = screen.press("enter", seen())
    assert isinstance(ask, Ask)
    assert ask.effect == Call(
        "POST", "/admin/engine/restart", {"reason": "换驱动 7R"}, "The engine starts anew.", False
    )
    assert "What runs ends with an error: 6. What waits goes on after it: 3." in ask.lines
    assert not screen.typing


def test_restart_without_a_reason_sends_none() -> None:
    screen = Engine()
    screen.press("R", seen())
    ask = screen.press("enter", seen())
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    assert ask.effect.body is None


def test_restart_is_left_with_escape() -> None:
    screen = Engine()
    screen.press("R", seen())
    typed(screen, "no")
    assert screen.press("escape", seen()) is None
    assert not screen.typing


def test_a_reason_is_no_longer_than_the_box_takes() -> None:
    screen = Engine()
    screen.press("R", seen())
    screen.paste("x" * 500 + "\n", seen())
    ask = screen.press("enter", seen())
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    assert ask.effect.body == {"reason": "x" * 200}


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        (replace(LIVE, step_age_ms=31_000.0), "no step for 31 s"),
        (replace(LIVE, engine_state="failed"), "the engine is failed"),
    ],
)
def test_a_hung_engine_is_its_own_reason(live: Any, reason: str) -> None:
    ask = Engine().press("R", changed(seen(), live=live))
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    assert ask.effect.body == {"reason": reason}


@pytest.mark.parametrize("key", ["D", "H"])
def test_drain_and_hold_are_left_to_the_console(key: str) -> None:
    assert Engine().press(key, seen()) is None


def test_hints_name_what_the_keys_do_now() -> None:
    draining = changed(seen(), live=replace(LIVE, state="DRAINING"))
    holding = changed(seen(), live=replace(LIVE, state="HOLDING"))
    assert ("D", "drain") in Engine().hints(seen())
    assert ("D", "resume") in Engine().hints(draining)
    assert ("H", "release") in Engine().hints(holding)


# -- the log -------------------------------------------------------------------------------------


def test_the_log_is_followed_until_the_operator_goes_up() -> None:
    screen = Engine()
    told(screen, log("one", "two"))
    printed(screen, seen())
    told(screen, log("one", "two", "three"))
    printed(screen, seen())
    assert screen.log.current is not None
    assert screen.log.current.text == "three"
    screen.press("up", seen())
    assert not screen.following
    told(screen, log("one", "two", "three", "four"))
    printed(screen, seen())
    assert screen.log.current.text == "two"
    screen.press("f", seen())
    printed(screen, seen())
    assert screen.log.current.text == "four"


def test_a_log_that_is_not_followed_is_read_once_and_further_back() -> None:
    screen = Engine()
    (followed,) = screen.wants(seen())
    screen.press("f", seen())
    (kept,) = screen.wants(seen())
    assert followed == Query("/admin/log?level=info&filter=&limit=200", 1.0)
    assert kept == Query("/admin/log?level=info&filter=&limit=1000", 0.0)


def test_level_and_filter_are_the_boxs_to_apply() -> None:
    screen = Engine()
    screen.press("l", seen())
    screen.find("gpu & 显卡")
    (query,) = screen.wants(seen())
    assert query.path.startswith("/admin/log?level=warning&filter=gpu+%26+%E6")
    assert screen.found == "gpu & 显卡"


def test_the_filter_is_that_of_the_pane_with_the_focus() -> None:
    screen = Engine()
    printed(screen, seen())
    screen.press("tab", seen())
    screen.find("threads")
    text = printed(screen, seen())
    assert "engine.threads" in text
    assert "server.port" not in text
    assert screen.found == "threads"
    screen.press("tab", seen())
    assert screen.found == ""


def test_an_answer_to_an_earlier_filter_is_left() -> None:
    screen = Engine()
    (earlier,) = screen.wants(seen())
    screen.find("gpu")
    screen.receive(earlier, log("old"), None)
    assert screen.log.rows == ()


@pytest.mark.parametrize("data", [None, [], "x", {"lines": 3}, {"lines": [{"seq": "x"}]}])
def test_an_answer_of_another_shape_is_no_log(data: Any) -> None:
    screen = Engine()
    told(screen, data)
    assert "No line of this level" in printed(screen, seen())


def test_a_log_that_cannot_be_read_says_why() -> None:
    screen = Engine()
    told(screen, None, "the key has not the scope admin \x1b[2J")
    assert r"the key has not the scope admin \x1b[2J" in printed(screen, seen())


def test_enter_shows_a_line_whole_as_text() -> None:
    screen = Engine()
    told(screen, log("failed\\nTraceback \x1b]0;x\x07 " + "y" * 300))
    printed(screen, seen())
    shown = screen.press("enter", seen())
    assert isinstance(shown, Show)
    assert shown.lines[2] == "api: failed"
    assert shown.lines[3].startswith(r"Traceback \x1b]0;x\x07 yyy")
    assert "2025-11-30" in shown.lines[0]


def test_enter_shows_a_setting_and_how_it_is_changed() -> None:
    screen = Engine()
    printed(screen, seen())
    screen.press("tab", seen())
    screen.press("down", seen())
    shown = screen.press("enter", seen())
    assert isinstance(shown, Show)
    assert shown.lines[0] == "server.port = 8421"
    assert "steelyard config" in shown.lines[2]


def test_enter_on_nothing_says_so() -> None:
    assert isinstance(Engine().press("enter", seen()), Tell)


def test_what_computes_the_forecasts_is_named_and_nothing_where_no_network_runs() -> None:
    shown = seen()
    assert shown.state is not None
    now = Forecaster(state="ok", provider="CPUExecutionProvider", precision="int8", encoder="")
    state = replace(shown.state, forecaster=now)
    text = printed(Engine(), changed(shown, state=state))
    assert "onnx     forecasts CPU INT8, encoder -" in text
    state = replace(shown.state, forecaster=replace(now, provider=""))
    assert "onnx" not in printed(Engine(), changed(shown, state=state))
