"""Screen 1, drawn from data alone."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from appliance.frames import KeyRow, Rows
from tests.unit.console_draws import views
from tests.unit.console_views import LIVE, STATES, past, view
from tests.unit.golden import agree
from tests.unit.test_tui_frame import SCREENS
from tui.cells import drawn, letter
from tui.frame import whole
from tui.lines import text_of, width_of
from tui.screen import Ask, Call, Choose, Go, Query, Tell
from tui.screens.overview import Overview
from tui.throttle import LIMITS
from tui.view import View

KEYS = {"keys": [{"name": "crm-bot", "limits": {"concurrent": 4, "tokens_per_min": 20000}}]}


def texts(view: View, screen: Overview | None = None) -> list[str]:
    return [text_of(row).rstrip() for row in (screen or Overview()).body(view)]


def row_of(view: View, label: str) -> str:
    return next(row for row in texts(view) if row.startswith(label))


def page(view: View) -> str:
    rows = whole(view, Overview(), SCREENS)
    return "".join(f"{text_of(row).rstrip()}\n" for row in rows)


@pytest.mark.parametrize("state", STATES)
def test_overview_at_80x24_looks_as_agreed(state: str) -> None:
    agree(f"overview_{state}_80x24", page(view(state, ascii=True)))


@pytest.mark.parametrize("state", STATES)
def test_overview_at_140x45_looks_as_agreed(state: str) -> None:
    history: dict[str, Any] = {} if state == "empty" else {"history": past(900)}
    agree(f"overview_{state}_140x45", page(view(state, width=140, height=45, **history)))


def test_overview_in_chinese_looks_as_agreed() -> None:
    agree("overview_degraded_80x24_zh", page(view("degraded", ascii=True, lang="zh")))


@settings(max_examples=75, suppress_health_check=list(HealthCheck), deadline=None)
@given(views(least=40, most=200))
def test_every_line_of_the_overview_has_the_width_asked_for(view: View) -> None:
    rows = Overview().body(view)
    assert len(rows) == view.body_height
    assert {width_of(row) for row in rows} <= {view.width}
    loose = view.words.lang != "zh" and not view.ascii
    assert all(drawn(sign) or (loose and letter(sign)) for row in rows for sign in text_of(row))


def test_unknown_is_a_question_mark_and_never_zero() -> None:
    unknown = view(live=replace(LIVE, out_tok_s=None, kv_a_pct=None, tok_today=None))
    assert row_of(unknown, "output")[17:25] == "   ? t/s"
    assert row_of(unknown, "KV pool A")[17:23] == "   ? %"
    assert row_of(unknown, "today")[17:25] == "   ? tok"


def test_what_there_is_none_of_is_a_dash_with_its_reason() -> None:
    row = row_of(view("empty"), "KV pool B")
    assert row.split(maxsplit=5) == [
        "KV",
        "pool",
        "B",
        "-",
        "-",
        "no batch request: A has every cell",
    ]
    assert row_of(view("empty"), "TTFT").split()[:4] == ["TTFT", "-", "-", "<2000"]


def test_an_idle_box_is_not_out_of_its_band() -> None:
    assert "!" not in "".join(texts(view("empty")))


def test_a_value_outside_its_band_shows_without_colour() -> None:
    assert "(======)!." in row_of(view("overload"), "KV pool A")
    assert "(======).!" in row_of(view("overload"), "waiting")


def test_value_and_band_change_their_unit_together() -> None:
    assert row_of(view("overload"), "TTFT")[11:43] == " 0.18 14.2 s      <2  (======).!"


def test_a_number_that_does_not_fit_is_left_out_whole() -> None:
    assert row_of(view(width=60), "KV pool A").endswith("3744/6144 tok")


def test_lost_dims_every_value_and_leaves_gaps_in_plots() -> None:
    lost = view("lost", ascii=True)
    assert {span.role for row in Overview().body(lost) for span in row} == {"dim"}
    assert len(row_of(lost, "output")) < len(row_of(view(ascii=True), "output"))


def test_no_keys_is_one_sentence_with_the_key_that_changes_it() -> None:
    assert "No key has asked in the last 60 s. 8 tries a prompt." in texts(view("empty"))


def test_the_cursor_rests_on_the_first_row_until_moved_then_follows_its_key() -> None:
    screen, now = Overview(), view()
    assert any(row.startswith(">crm-bot") for row in texts(now, screen))
    assert now.rows is not None
    turned = replace(now.rows, keys=now.rows.keys[::-1])
    assert any(row.startswith(">wiki") for row in texts(view(rows=turned), screen))
    screen.press("down", now)
    assert any(row.startswith(">crm-bot") for row in texts(view(rows=turned), screen))
    assert any(row.startswith(">crm-bot") for row in texts(now, screen))


def test_throttling_opens_at_half_the_rate_and_keeps_the_other_limits() -> None:
    screen, now = Overview(), view()
    screen.body(now)
    screen.receive(LIMITS, KEYS, None)
    choose = screen.press("T", now)
    assert isinstance(choose, Choose)
    assert choose.options[choose.chosen] == ("4250", "4250 tok/min, 50 % of its rate now")
    ask = choose.then("4250")
    assert isinstance(ask, Ask)
    assert ask.effect == Call(
        "POST",
        "/admin/keys/crm-bot/limits",
        {"concurrent": 4, "tokens_per_min": 4250},
        done="crm-bot: 4250 tok/min.",
    )


def test_a_key_whose_limits_are_unknown_is_not_throttled() -> None:
    screen, now = Overview(), view()
    screen.body(now)
    assert isinstance(screen.press("T", now), Tell)
    screen.body(view("empty"))
    assert isinstance(screen.press("T", view("empty")), Tell)


@pytest.mark.parametrize(
    ("key", "state", "path"),
    [
        ("D", "SERVING", "/admin/drain"),
        ("D", "DRAINING", "/admin/resume"),
        ("H", "SERVING", "/admin/hold"),
        ("H", "HOLDING", "/admin/release"),
    ],
)
def test_drain_and_hold_are_undone_by_the_same_key(key: str, state: str, path: str) -> None:
    ask = Overview().press(key, view(live=replace(LIVE, state=state)))
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    assert (ask.effect.method, ask.effect.path) == ("POST", path)


def test_enter_on_a_key_goes_to_the_accounts() -> None:
    screen, now = Overview(), view()
    screen.body(now)
    assert screen.press("enter", now) == Go(4)


def test_limits_are_asked_for_while_the_screen_is_shown() -> None:
    assert Overview().wants(view()) == (Query("/admin/keys", 10.0),)


def test_twenty_keys_scroll_with_the_cursor() -> None:
    keys = tuple(
        KeyRow(key=f"key-{at}", tenant="t", run=0, wait=0, tok_min=at, share_pct=5.0)
        for at in range(20)
    )
    screen, now = Overview(), view(rows=Rows(total=0, keys=keys))
    screen.body(now)
    screen.press("end", now)
    assert any(row.startswith(">key-19") for row in texts(now, screen))
    assert not any("key-0 " in row for row in texts(now, screen))
