"""Requests that ended, the detail of one, and what may be done to it."""

import json

from tests.unit.requests_screen_parts import (
    NORMAL,
    answer_tokens,
    ended,
    ids,
    of,
    press,
    row,
    with_ended,
)
from tests.unit.screen_checks import printed
from tui.screen import Ask, Call, Choose, Copy, Query, Save, Show, Tell
from tui.screens.requests import Requests
from tui.screens.requests_past import NEWEST, older
from tui.throttle import LIMITS

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
