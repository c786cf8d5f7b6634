"""Screen 2: live and ended requests, one of them in full, and what may be done to them."""

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import RequestRow, Rows
from tests.unit.console_draws import anything, count, maybe_count, views
from tests.unit.console_views import LIVE, view
from tests.unit.golden import agree
from tests.unit.requests_screen_parts import (
    NORMAL,
    answer_tokens,
    ended,
    ids,
    of,
    press,
    row,
    rows,
    waiting,
    with_ended,
)
from tests.unit.screen_checks import exact, printed
from tui.expected import expected
from tui.heat import Token, digit, heat
from tui.lines import text_of, width_of
from tui.screen import Query
from tui.screens.requests import Requests
from tui.view import View
from tui.words import Words

# -- looks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_requests_at_80x24_look_as_agreed(lang: str) -> None:
    many = tuple(row(f"aa{at:04x}", gen_tok=at) for at in range(8))
    many += tuple(waiting(f"bb{at:04x}", at) for at in range(192))
    agree(f"requests-empty-{lang}", printed(Requests(), of(lang=lang)))
    agree(f"requests-normal-{lang}", printed(Requests(), of(*NORMAL, lang=lang)))
    agree(f"requests-many-{lang}", printed(Requests(), of(*many, total=4711, lang=lang)))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_ended_requests_look_as_agreed(lang: str) -> None:
    screen = with_ended(
        ended(), ended("8f2c02", seq=48200, outcome="refused", count=12, started_ns=0), then=48200
    )
    agree(f"requests-ended-{lang}", printed(screen, of(lang=lang)))
    press(screen, of(lang=lang), "enter")
    answer_tokens(screen)
    agree(f"requests-detail-{lang}", printed(screen, of(lang=lang)))


def test_detail_stands_beside_the_table_where_there_is_room() -> None:
    agree("requests-wide-en", printed(Requests(), of(*NORMAL, width=140, height=45)))


lists = st.lists(rows, max_size=30, unique_by=lambda row: row.id).map(tuple)
terminals = views(least=60, most=160)


@given(terminals, lists, count, st.booleans())
def test_every_line_has_the_width_asked_for(
    view: View, shown: tuple[RequestRow, ...], total: int, opened: bool
) -> None:
    screen = Requests()
    seen = changed(view, rows=Rows(total=total, requests=shown))
    exact(screen, seen)
    press(screen, seen, *(["down", "enter"] if opened else ["s"]))
    exact(screen, seen)


pasts = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 10**12),
        "hash": anything,
        "id": anything,
        "wall_ns": st.integers(0, 2**63),
        "outcome": anything | st.sampled_from(["stop", "refused"]),
        "count": count,
        "key_name": anything,
        "started_ns": st.integers(0, 2**60),
        "ended_ns": st.integers(0, 2**60),
        "completion_tokens": count,
        "energy_uj": st.none() | count,
        "forecast": st.none() | st.fixed_dictionaries({"p50_tok": count, "p90_tok": count}),
    }
)


@given(
    terminals,
    st.lists(pasts, max_size=20, unique_by=lambda row: row["seq"]),
    st.lists(st.tuples(count, anything), max_size=80),
)
def test_ended_requests_have_the_width_asked_for(
    view: View, told: list[dict[str, Any]], tokens: list[tuple[int, str]]
) -> None:
    screen = with_ended(*told)
    exact(screen, view)
    press(screen, view, "enter")
    if screen.open is not None and screen.open.told is not None:
        one = {"seq": screen.open.told.seq, "kept": True, "prompt": [], "choices": [tokens]}
        screen.receive(screen.open.queries()[0], {"requests": [one]}, None)
    exact(screen, view)


# -- the bar and the heat --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "bar"),
    [
        ((96, 84, 131, 190), "#####(#.|...).."),
        ((None, 84, 131, 190), ".....(..|...).."),
        ((0, 84, 131, 190), ".....(..|...).."),
        ((190, 84, 131, 190), "#####(##|###).."),
        ((191, 84, 131, 190), "#####(##|###)!."),
        ((9999, 84, 131, 190), "#####(##|###)#!"),
        ((96, None, None, None), "-              "),
        ((96, None, 131, 190), "#######.|...).."),
    ],
)
def test_bar_shows_generated_against_forecast(told: tuple[int | None, ...], bar: str) -> None:
    assert expected(*told) == bar  # type: ignore[arg-type]


@given(maybe_count, maybe_count, maybe_count, maybe_count)
def test_bar_has_one_width(
    gen: int | None, p10: int | None, p50: int | None, p90: int | None
) -> None:
    assert len(expected(gen, p10, p50, p90)) == 15


def test_surprise_is_a_digit() -> None:
    assert [digit(value) for value in (0.0, -0.7, -1.4, -99.0, None)] == ["0", "1", "2", "9", " "]


@given(st.lists(st.builds(Token, anything, st.none() | st.floats(-99, 0))), st.integers(2, 40))
def test_heat_stays_within_its_cells(tokens: list[Token], cells: int) -> None:
    assert all(width_of(line) <= cells for line in heat(tokens, cells))


def test_digits_stand_under_their_tokens() -> None:
    lines = heat([Token("You", -0.1), Token(" weigh", -4.9), Token("\n", -1.0)], 40)
    assert [text_of(line) for line in lines] == ["You weigh\\x0a", "0  7     1   "]


# -- cursor, sort, filter --------------------------------------------------------------------------


def test_sorting_goes_from_the_queue_to_the_longest_run() -> None:
    screen, seen = Requests(), of(row("a", run_ms=10), row("b", run_ms=900), waiting("c", 0))
    press(screen, seen)
    screen.body(seen)
    assert ids(screen) == ["a", "b", "c"]
    press(screen, seen, "s")
    assert ids(screen) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key:crm", ["8f2c01", "8f3104"]),
        ("state:wait", ["8f3104"]),
        ("wait>3", ["8f3003", "8f3104"]),
        ("key:crm wait>3", ["8f3104"]),
        ("8f2e", ["8f2e02"]),
        ("gen>700", ["8f3003"]),
        ("none of these", []),
    ],
)
def test_filter_takes_words_and_comparisons(text: str, found: list[str]) -> None:
    screen = Requests()
    screen.find(text)
    screen.body(of(*NORMAL))
    assert ids(screen) == found


def test_cursor_rests_on_the_first_row_then_follows_its_id() -> None:
    screen = Requests()
    press(screen, of(row("a"), row("b")))
    screen.body(of(row("x"), row("a"), row("b")))
    assert screen.live.current is not None
    assert screen.live.current.id.endswith("x")
    press(screen, of(row("x"), row("a"), row("b")), "down", "down")
    screen.body(of(row("b"), row("x")))
    assert screen.live.current.id.endswith("b")


def test_the_filter_goes_along_to_the_ended_requests_and_esc_clears_it() -> None:
    screen, seen = Requests(), of(*NORMAL)
    screen.find("wiki")
    press(screen, seen, "tab")
    assert screen.found == "wiki"
    press(screen, seen, "escape")
    assert screen.found == ""
    press(screen, seen, "escape")
    assert screen.table is screen.live


def test_what_matches_nothing_live_is_asked_of_the_ledger() -> None:
    screen, seen = Requests(), of(*NORMAL)
    screen.find("req_77")
    assert press(screen, seen, "enter") is None
    query = Query("/admin/requests/req_77", 0)
    assert query in screen.wants(seen)
    screen.find("")
    screen.receive(query, {"live": None, "entries": [ended("77")]}, None)
    screen.body(seen)
    assert ids(screen) == ["77"]
    assert query not in screen.wants(seen)


class Counted(Words):
    """Counts the words that a screen needs."""

    asked = 0

    def or_else(self, key: str, fallback: str) -> str:
        self.asked += 1
        return super().or_else(key, fallback)


def test_of_ten_thousand_rows_only_those_that_are_seen_are_drawn() -> None:
    words = Counted()
    rows = tuple(row(f"{at:06x}", wait_ms=at) for at in range(10_000))
    seen = changed(of(*rows), words=words)
    screen = Requests()
    press(screen, seen, "s", "end")
    words.asked = 0
    assert "00270f" in printed(screen, seen)
    assert 0 < words.asked < 30


def test_rows_are_sorted_when_they_are_new_and_not_with_every_frame_drawn() -> None:
    screen, seen = Requests(), of(*NORMAL)
    screen.body(seen)
    shown = screen.live.rows
    screen.body(seen)
    assert screen.live.rows is shown


# -- what is not known -----------------------------------------------------------------------------


def test_nothing_from_the_box_is_told_as_unknown() -> None:
    text = printed(Requests(), view("empty", rows=None, live=None))
    assert "? no rows from the box yet" in text


def test_too_many_waiting_stand_out_beside_their_band() -> None:
    seen = of(*NORMAL, live=replace(LIVE, waiting=41, refused_min=None))
    assert printed(Requests(), seen).startswith("6 run, 41 wait (<24)!, ?/min refused")


@pytest.mark.parametrize("link", ["lost", "connecting"])
def test_old_values_are_dim(link: Any) -> None:
    body = Requests().body(of(*NORMAL, link=link))
    assert {span.role for line in body for span in line} == {"dim"}


def test_every_state_keeps_cursor_and_filter() -> None:
    screen: Requests = Requests()
    draw: Callable[..., Any] = screen.body
    press(screen, of(*NORMAL), "down")
    screen.find("8f")
    draw(of(*NORMAL, link="lost"))
    assert screen.found == "8f"
    assert screen.live.at == 1
