"""Verification, conflicts and replays on the audit screen."""

import pytest

from tests.unit.audit_screen_parts import (
    ACTED,
    BOTH,
    RUNNING,
    fault,
    line_of,
    replayed,
    seen,
    told,
    verdict,
)
from tests.unit.screen_checks import printed
from tui.screen import Ask, Call, Query, Show, Tell
from tui.screens.audit import VERIFY

# -- verification ----------------------------------------------------------------------------------


def test_the_chain_is_verified_by_one_key_without_a_dialog() -> None:
    call = told().press("v", seen())
    assert call == Call("POST", "/admin/audit/ledger/verify", done="verification started")


def test_a_verification_that_runs_shows_how_far_it_is_and_is_not_started_twice() -> None:
    screen = told(verify=RUNNING)
    assert line_of(screen, "verify", seen()) == "[###########...] 81 %  61000 rows/s, 150 ms left"
    assert screen.press("v", seen()) == Tell("it runs already: 81 %")
    assert Query(VERIFY, 1.0) in screen.wants(seen())
    assert Query(VERIFY, 5.0) in told().wants(seen())


def test_a_verification_tells_what_it_found() -> None:
    intact = line_of(told(verify=verdict()), "verify", seen())
    assert intact == "ok  48213 rows, 900 requests, 12 seals, 10:53:20, 800 ms"
    broken = line_of(told(verify=verdict(fault())), "verify", seen())
    assert broken == "FAULTS: 1 in 48213 rows, 10:53:20"
    failed = told(verify={"state": "failed", "problem": "no file \x07"})
    assert line_of(failed, "verify", seen()) == "not verified: no file \\x07"
    assert line_of(told(), "verify", seen()).startswith("- not verified since")


def test_faults_that_were_just_found_get_the_focus_with_row_and_hashes() -> None:
    screen = told(*BOTH, verify=RUNNING)
    screen.receive(Query(VERIFY), verdict(fault(), fault(4712)), None)
    assert screen.table is screen.faults
    shown = screen.press("enter", seen())
    assert isinstance(shown, Show)
    assert shown.title == "row 4711: content: its body is not what was hashed"
    assert shown.lines[1:] == ("  stored    " + "9f" * 32, "  computed  " + "aa" * 32)
    assert "row 4711" in printed(screen, seen())
    screen.receive(Query(VERIFY), verdict(), None)
    assert screen.table is screen.conflicts


def test_the_answer_to_starting_is_taken_at_once() -> None:
    screen = told()
    call = screen.press("v", seen())
    assert isinstance(call, Call)
    assert screen.answered(call, RUNNING) is None
    assert "81 %" in printed(screen, seen())


# -- conflicts and replays -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("identical", "replay: the very tokens of the ledger"),
        ("differs", "replay: 2 of 388 differ"),
        ("inconclusive", "replay: nothing contradicts the ledger"),
        ("failed", "replay failed; N tries again"),
        ("new\x1b", "new\\x1b"),
    ],
)
def test_what_came_of_a_conflict_is_told(result: str, text: str) -> None:
    screen = told(*BOTH)
    query = Query("/v1/audit/chatcmpl-8e9012", 0)
    assert query in screen.wants(seen())
    screen.receive(query, replayed("8e9012", result), None)
    assert f"crm-bot      {text}" in printed(screen, seen())
    assert query not in screen.wants(seen())


def test_a_replay_under_way_is_told() -> None:
    screen = told(*BOTH)
    query = Query("/v1/audit/chatcmpl-8e9012", 5.0)
    screen.receive(query, replayed("8e9012", audits=[], replays_pending=[0]), None)
    assert "replay runs or waits" in printed(screen, seen())


def test_a_replay_asks_first_and_its_report_is_shown() -> None:
    screen = told(*BOTH)
    ask = screen.press("N", seen())
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    assert ask.effect.path == "/admin/audit/chatcmpl-8e9012/replay"
    assert ask.effect.body == {"id": "chatcmpl-8e9012", "choice": 0}
    report = {
        "id": "chatcmpl-8e9012",
        "result": "differs",
        "differing": 2,
        "positions": 388,
        "facts": {"reasons": ["it was preempted 3 times"]},
    }
    said = {"replay": "differs", "said": "a replay was differs", "report": report}
    shown = screen.answered(ask.effect, said)
    assert isinstance(shown, Show)
    assert shown.lines == (
        "a replay was differs",
        "replay: 2 of 388 differ",
        "what may explain it:",
        "- it was preempted 3 times",
    )


def test_a_replay_that_goes_on_without_us_says_so() -> None:
    screen = told(*BOTH)
    ask = screen.press("N", seen())
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    pending = {"id": "chatcmpl-8e9012", "replay": "pending", "said": "it waits", "report": None}
    shown = screen.answered(ask.effect, pending)
    assert shown == Show("Replay of chatcmpl-8e9012", ("it waits",))


def test_a_conflict_is_told_with_both_digests() -> None:
    shown = told(*BOTH).press("enter", seen())
    assert isinstance(shown, Show)
    assert shown.title == "chatcmpl-8e9012"
    assert f"client  {'a1' * 32}" in shown.lines
    assert f"ledger  {'b2' * 32}" in shown.lines
    assert "first difference at token 212" in shown.lines


def test_without_a_conflict_there_is_nothing_to_replay() -> None:
    assert told().press("N", seen()) == Tell("No request is selected: Tab goes to the conflicts.")
    on_actions = told(*BOTH, actions=ACTED)
    on_actions.press("tab", seen())
    assert isinstance(on_actions.press("N", seen()), Tell)
