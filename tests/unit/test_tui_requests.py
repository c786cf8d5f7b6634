"""Screen 2: live and ended requests, one of them in full, and what may be done to them."""

import json
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import RequestRow, Rows
from tests.unit.console_draws import anything, count, maybe_count, views
from tests.unit.console_views import AT_MS, LIVE, ROWS, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.expected import expected
from tui.heat import Token, digit, heat
from tui.lines import text_of, width_of
from tui.screen import Ask, Call, Choose, Copy, Query, Save, Show, Tell
from tui.screens.requests import Requests
from tui.screens.requests_past import NEWEST, older
from tui.throttle import LIMITS
from tui.view import View
from tui.words import Words

WALL_NS = AT_MS * 1_000_000


def row(name: str = "8f2c01", **given: Any) -> RequestRow:
    told: dict[str, Any] = {
        "id": f"chatcmpl-{name}",
        "key": "crm-bot",
        "tenant": "sales",
        "scenario": "reply",
        "state": "decode",
        "pool": "A",
        "tier": "default",
        "pos": 0,
        "flags": ("stream", "schema"),
        "prompt_tok": 412,
        "cached_tok": 380,
        "gen_tok": 96,
        "limit_tok": 512,
        "wait_ms": 200,
        "prefill_ms": 90,
        "run_ms": 3490,
    }
    return RequestRow(**(told | given))


def waiting(name: str, pos: int, **given: Any) -> RequestRow:
    none = {"cached_tok": None, "gen_tok": 0, "prefill_ms": None, "run_ms": None}
    return row(name, state="waiting", pos=pos, wait_ms=4000, **(none | given))


FORECAST: dict[str, Any] = {"p10_tok": 84, "p50_tok": 131, "p90_tok": 190, "first_p50_tok": 120}
NORMAL = (
    row(**FORECAST, eta_ms=3100, cost=0.0004),
    row("8f2e02", key="wiki", state="prefill", gen_tok=0, prefill_ms=None, run_ms=100),
    row("8f3003", key="nightly", gen_tok=711, cached_tok=0, wait_ms=8100, **FORECAST),
    waiting("8f3104", 0, p10_tok=20, p50_tok=60, p90_tok=100, eta_ms=6200),
)


def of(*rows: RequestRow, total: int | None = None, **given: Any) -> View:
    """A view of those rows."""
    shown = Rows(total=len(rows) if total is None else total, requests=rows, keys=ROWS.keys)
    return view(**({"rows": shown} | given))


def ended(name: str = "8f2c01", **given: Any) -> dict[str, Any]:
    second = 1_000_000_000
    told = {
        "seq": 48210,
        "hash": "9f" * 32,
        "id": f"chatcmpl-{name}",
        "wall_ns": WALL_NS,
        "outcome": "stop",
        "key_name": "crm-bot",
        "tenant": "sales",
        "scenario": "reply",
        "route": "/v1/chat/completions",
        "model": "SmolLM2-135M",
        "tier": "default",
        "max_tokens": 512,
        "status": 200,
        "stream": True,
        "prompt_tokens": 412,
        "cached_tokens": 380,
        "prefill_tokens": 32,
        "completion_tokens": 4,
        "hidden_tokens": 1,
        "received_ns": 100 * second,
        "submitted_ns": 100 * second + 20_000_000,
        "started_ns": 108 * second,
        "first_token_ns": 109 * second,
        "ended_ns": 112 * second,
        "parallel": 4,
        "costs": {"currency": "USD", "prefill": 10**5, "decode": 2 * 10**5, "cached": 0, "idle": 9},
        "choices": [{"digest": "5b" * 32, "completion_tokens": 4, "outcome": "stop"}],
        "sampling": {"temperature": 0.7},
    }
    return told | given


def with_ended(*rows: dict[str, Any], then: int | None = None) -> Requests:
    """The screen on its ended requests."""
    screen = Requests()
    screen.press("tab", view())
    screen.receive(NEWEST, {"requests": list(rows), "next": then}, None)
    return screen


def press(screen: Requests, view: View, *keys: str) -> Any:
    """The effect of the last key."""
    effect = None
    for key in keys:
        screen.body(view)
        effect = screen.press(key, view)
    return effect


def ids(screen: Requests) -> list[str]:
    assert screen.table is not None
    return [one.id.removeprefix("chatcmpl-") for one in screen.table.rows]


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


states = st.sampled_from(["waiting", "prefill", "decode"]) | anything
rows = st.builds(
    RequestRow,
    id=anything,
    key=anything,
    tenant=anything,
    scenario=anything,
    state=states,
    pool=anything,
    tier=anything,
    pos=count,
    cost=st.none() | st.floats(0, 1e9),
    flags=st.lists(anything, max_size=3).map(tuple),
    prompt_tok=count,
    cached_tok=maybe_count,
    gen_tok=count,
    limit_tok=count,
    p10_tok=maybe_count,
    p50_tok=maybe_count,
    p90_tok=maybe_count,
    first_p50_tok=maybe_count,
    wait_ms=count,
    prefill_ms=maybe_count,
    run_ms=maybe_count,
    eta_ms=maybe_count,
)
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


# -- ended requests --------------------------------------------------------------------------------


def test_the_end_of_the_list_reads_the_next_page() -> None:
    screen = with_ended(ended("a", seq=900), ended("b", seq=800), then=800)
    press(screen, of(), "end")
    assert older(800) in screen.wants(of())
    screen.receive(older(800), {"requests": [ended("c", seq=700)], "next": None}, None)
    screen.body(of())
    assert ids(screen) == ["a", "b", "c"]
    press(screen, of(), "end")
    assert screen.wants(of()) == (LIMITS, NEWEST)


def test_newly_ended_requests_join_what_was_read() -> None:
    screen = with_ended(ended("a", seq=900), then=900)
    screen.receive(
        NEWEST, {"requests": [ended("b", seq=950), ended("a", seq=900)], "next": 900}, None
    )
    screen.body(of())
    assert ids(screen) == ["b", "a"]


def test_a_gap_in_what_was_read_is_never_shown_as_none() -> None:
    screen = with_ended(ended("a", seq=900), then=900)
    screen.receive(NEWEST, {"requests": [ended("z", seq=5000)], "next": 5000}, None)
    screen.body(of())
    assert ids(screen) == ["z"]
    press(screen, of(), "end")
    assert older(5000) in screen.wants(of())


def test_why_ended_requests_cannot_be_read_is_said() -> None:
    screen = Requests()
    press(screen, of(), "tab")
    screen.receive(NEWEST, None, "the ledger is away \x1b[31m")
    assert "not read: the ledger is away \\x1b[31m" in printed(screen, of())
    screen.receive(NEWEST, {"requests": [{"seq": "?"}], "next": None}, None)
    assert "other version?" in printed(screen, of())


# -- detail ----------------------------------------------------------------------------------------


def answer_tokens(screen: Requests) -> None:
    """The box tells the open request's tokens, and the report of a replay."""
    assert screen.open is not None
    tokens, audits = screen.open.queries()
    choices = [[[5, "It"], [6, " weighs"], [7, " \x1b[31m"], [8, "称"]]]
    one = {"id": "x", "seq": 48210, "kept": True, "prompt": [[1, "<s>"]], "choices": choices}
    screen.receive(tokens, {"requests": [one]}, None)
    steps = [
        {"position": 2 + at, "logprob": value} for at, value in enumerate((-0.1, -1.5, -9.0, -4.0))
    ]
    report = {"id": "chatcmpl-8f2c01", "choice": 0, "steps": steps}
    record = {"audits": [{"kind": "replay", "report": report}]}
    screen.receive(audits, {"requests": [record]}, None)


def test_detail_of_an_ended_request_has_stages_tokens_digest_and_its_row() -> None:
    screen = with_ended(ended())
    press(screen, of(), "enter")
    answer_tokens(screen)
    text = printed(screen, of())
    assert "prepare 20 ms > queue 8.0 s > prefill 1 s > decode 3 s > end 12 s" in text
    assert "digest " + "5b" * 32 in text
    assert f"row 48210  {'9f' * 32}" in text
    assert "It weighs \\x1b[31m称\n0 2      9        5" in text


def test_a_live_request_turns_into_its_ended_one_under_the_reader() -> None:
    screen = Requests()
    press(screen, of(row()), "enter")
    assert screen.wants(of(row())) == (LIMITS,)
    screen.body(of())
    query = Query("/admin/requests/chatcmpl-8f2c01", 1.0)
    assert query in screen.wants(of())
    assert "in a moment" in printed(screen, of())
    screen.receive(query, {"live": None, "entries": [ended()]}, None)
    assert "row 48210" in printed(screen, of())


def test_a_request_without_a_streamed_first_token_says_no_more_than_is_known() -> None:
    screen = Requests()
    text = printed(screen, of(row(prefill_ms=None)))
    assert "queue 200 ms > prefill ? > DECODE <3.5 s > end" in text


def test_long_answers_scroll() -> None:
    screen = with_ended(ended())
    press(screen, of(), "enter")
    assert screen.open is not None
    tokens = [[at, f" word{at}"] for at in range(2000)]
    one = {"seq": 48210, "kept": True, "choices": [tokens]}
    screen.receive(screen.open.queries()[0], {"requests": [one]}, None)
    before = printed(screen, of())
    press(screen, of(), "pagedown")
    assert printed(screen, of()) != before
    press(screen, of(), "end")
    assert "word1999" in printed(screen, of())
    press(screen, of(), "escape")
    assert screen.open is None


# -- what may be done ------------------------------------------------------------------------------


def test_cancelling_asks_first_and_names_whom_it_hits() -> None:
    ask = press(Requests(), of(row(key="crm\x1bbot")), "X")
    assert isinstance(ask, Ask)
    assert ask.title == "Cancel request 8f2c01?"
    assert "key crm\\x1bbot, tenant sales, decode, 96 tok generated" in ask.lines
    call = ask.effect
    assert isinstance(call, Call)
    assert (call.method, call.path) == ("DELETE", "/admin/requests/chatcmpl-8f2c01")


def test_the_longest_run_is_cancelled_in_four_keys() -> None:
    ask = press(Requests(), of(row("a", run_ms=1), row("b", run_ms=9)), "s", "X")
    assert ask.effect.path.endswith("/chatcmpl-b")


def test_ids_of_others_cannot_lead_to_another_route() -> None:
    ask = press(Requests(), of(row(id="../../drain?x=1")), "X")
    assert ask.effect.path == "/admin/requests/..%2F..%2Fdrain%3Fx%3D1"


def test_what_has_ended_cannot_be_cancelled() -> None:
    told = press(with_ended(ended()), of(), "X")
    assert told == Tell("chatcmpl-8f2c01 has ended: there is nothing to cancel.")
    assert press(Requests(), of(), "X") == Tell("No request is selected.")


def test_throttling_opens_a_list_at_half_of_what_the_key_uses() -> None:
    screen = Requests()
    screen.receive(LIMITS, {"keys": [{"name": "crm-bot", "limits": {"concurrent": 4}}]}, None)
    chosen = press(screen, of(row()), "T")
    assert isinstance(chosen, Choose)
    assert chosen.options[chosen.chosen][0] == "4250"


def test_a_key_that_uses_nothing_is_not_throttled() -> None:
    screen = Requests()
    screen.receive(LIMITS, {"keys": [{"name": "idle", "limits": {}}]}, None)
    told = press(screen, of(row(key="idle")), "T")
    assert told == Tell("idle uses nothing now: E on screen 4 sets its limits.")


def test_a_request_that_runs_is_not_replayed() -> None:
    told = press(Requests(), of(row()), "N")
    assert told == Tell("It still runs: a replay needs its end.")


def test_an_ended_answer_can_be_replayed_and_its_heat_is_shown_at_once() -> None:
    screen = with_ended(ended())
    press(screen, of(), "enter")
    answer_tokens(screen)
    ask = press(screen, of(), "N")
    assert ask.effect == Call(
        "POST",
        "/admin/audit/chatcmpl-8f2c01/replay",
        {"id": "chatcmpl-8f2c01", "choice": 0},
        done="replay of chatcmpl-8f2c01 asked for",
    )
    steps = [{"position": 2, "logprob": -3.0}]
    report = {"id": "chatcmpl-8f2c01", "choice": 0, "result": "identical", "steps": steps}
    told = screen.answered(ask.effect, {"replay": "identical", "said": "it was", "report": report})
    assert isinstance(told, Show)
    assert told.lines[0] == "it was"
    assert "It weighs \\x1b[31m称\n4" in printed(screen, of())


def test_copying_takes_the_whole_id() -> None:
    assert press(Requests(), of(row()), "c") == Copy("chatcmpl-8f2c01")


def test_the_list_is_written_as_it_is_filtered() -> None:
    screen = Requests()
    screen.find("wiki")
    saved = press(screen, of(*NORMAL), "w")
    assert isinstance(saved, Save)
    assert saved.name == "requests-live.json"
    assert [one["id"] for one in json.loads(saved.text)["requests"]] == ["chatcmpl-8f2e02"]


def test_an_open_request_is_written_with_its_tokens() -> None:
    screen = with_ended(ended())
    press(screen, of(), "enter")
    answer_tokens(screen)
    written = json.loads(press(screen, of(), "w").text)
    assert written["request"]["hash"] == "9f" * 32
    assert written["tokens"]["choices"][0][1] == [6, " weighs"]
    assert written["logprobs"]["0"]["2"] == -0.1


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
