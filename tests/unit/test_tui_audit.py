"""Screen 5: chain, verification, conflicts and what operators did."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Chain
from tests.unit.audit_screen_parts import (
    ACTED,
    BOTH,
    CHAIN,
    RUNNING,
    action,
    actions,
    conflict,
    conflicts,
    fault,
    faults,
    line_of,
    normal,
    seen,
    told,
    verdict,
)
from tests.unit.console_draws import anything, count, maybe_count, views
from tests.unit.console_views import STATE
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Copy, Query, Show, Tell
from tui.screens.audit import ACTIONS, CONFLICTS, VERIFY, Audit
from tui.view import View

# -- looks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_audit_at_80x24_looks_as_agreed(lang: str) -> None:
    many = told(
        *(conflict(90_000 - at, f"{at:06x}") for at in range(100)),
        actions=tuple(action(80_000 - at, "request.cancel", target=f"r{at}") for at in range(200)),
        verify=verdict(),
    )
    broken = told(*BOTH, actions=ACTED, verify=RUNNING)
    broken.receive(Query(VERIFY), verdict(fault(), fault(4712), fault(None, segment=3)), None)
    bad = replace(CHAIN, ok=False, bad_row=4711)
    agree(f"audit-empty-{lang}", printed(told(), seen(lang=lang)))
    agree(f"audit-normal-{lang}", printed(normal(), seen(lang=lang)))
    agree(f"audit-many-{lang}", printed(many, seen(lang=lang)))
    agree(f"audit-broken-{lang}", printed(broken, seen(chain=bad, lang=lang)))


def test_the_row_under_the_cursor_is_told_beside_the_lists_where_there_is_room() -> None:
    agree("audit-wide-en", printed(normal(), seen(width=140, height=45)))


chains = st.builds(
    Chain,
    rows=count,
    seals=count,
    bad_row=maybe_count,
    age_ms=maybe_count,
    export_ms=st.none() | st.integers(-(2**60), 2**60),
    tok_ledger=maybe_count,
    tok_engine=maybe_count,
    tok_sent=maybe_count,
    head=anything,
    signer=anything,
    ok=st.booleans(),
)
verifications = (
    st.just(RUNNING)
    | st.builds(verdict)
    | st.lists(faults, min_size=1, max_size=9).map(lambda found: verdict(*found))
    | st.builds(lambda problem: {"state": "failed", "problem": problem}, anything)
)


@given(
    views(least=60, most=160),
    chains,
    st.lists(conflicts, max_size=9, unique_by=lambda row: row["seq"]),
    st.lists(actions, max_size=9, unique_by=lambda row: row["seq"]),
    verifications,
    st.sampled_from([(), ("tab",), ("tab", "tab"), ("down", "s")]),
)
def test_every_line_has_the_width_asked_for(
    drawn: View,
    chain: Chain,
    differ: list[dict[str, Any]],
    acted: list[dict[str, Any]],
    found: dict[str, Any],
    pressed: tuple[str, ...],
) -> None:
    screen = told(*differ, actions=tuple(acted), verify=found)
    told_of = changed(drawn, state=replace(STATE, chain=chain))
    for key in pressed:
        screen.press(key, told_of)
    exact(screen, told_of)
    exact(screen, drawn)


# -- chain, tokens, export -------------------------------------------------------------------------


def test_the_chain_tells_how_it_stands() -> None:
    text = line_of(Audit(), "chain", seen())
    assert text == "ok  48213 rows, 12 seals, head 9f3a..c1, 20 ms ago"
    broken = replace(CHAIN, ok=False, bad_row=4711)
    assert line_of(Audit(), "chain", seen(chain=broken)).startswith("BROKEN  row 4711 is not")
    somewhere = replace(CHAIN, ok=False)
    assert line_of(Audit(), "chain", seen(chain=somewhere)) == "BROKEN  v tells where"
    assert line_of(Audit(), "chain", seen(chain=None)) == "? no state from the box yet"


@pytest.mark.parametrize(
    ("counts", "running", "text"),
    [
        ((7, 7, 7), 0, "ok  ledger = engine = sent = 7"),
        ((7, 9, 9), 2, "ledger 7, engine 9, sent 9  requests run: equal when none does"),
        ((7, 9, 9), 0, "DIFFER  ledger 7, engine 9, sent 9"),
        ((None, 9, 9), 0, "?  ledger ?, engine 9, sent 9"),
        ((None, None, None), 0, "?  ledger ?, engine ?, sent ?"),
    ],
)
def test_three_counts_of_tokens_must_agree_when_nothing_runs(
    counts: tuple[int | None, ...], running: int, text: str
) -> None:
    ledger, engine, sent = counts
    chain = replace(CHAIN, tok_ledger=ledger, tok_engine=engine, tok_sent=sent)
    assert line_of(Audit(), "tokens", seen(chain=chain, running=running)) == text


def test_the_last_export_has_an_age() -> None:
    assert line_of(Audit(), "export", seen()) == "11-28, 2 d ago, signed k_1"
    none = replace(CHAIN, export_ms=None)
    text = line_of(Audit(), "export", seen(chain=none))
    assert text == "- none yet: steelyard audit export DIRECTORY"


# -- operators' actions ----------------------------------------------------------------------------


def test_an_action_is_told_with_who_from_where_and_its_hash() -> None:
    screen = told(actions=ACTED)
    screen.press("tab", seen())
    shown = screen.press("enter", seen())
    assert isinstance(shown, Show)
    assert shown.title == "key.rotate, row 48190"
    assert shown.lines == (
        "11-30 10:53:20, on wiki",
        "key alice (k_A1), operator alice, from 10.0.4.12",
        "reason = leaked \\x1b[31m",
        "minutes = 5",
        f"hash {'c3' * 32}",
    )
    screen.press("down", seen())
    shown = screen.press("enter", seen())
    assert isinstance(shown, Show)
    assert "the box itself" in shown.lines


def test_actions_are_filtered_and_sorted() -> None:
    screen = told(actions=(action(3, operator="zoe"), action(2), action(1, "box.drain")))
    screen.press("tab", seen())
    screen.find("what:key")
    assert [row.seq for row in screen.actions.rows] == [3, 2]
    screen.press("escape", seen())
    screen.press("s", seen())
    assert [row.seq for row in screen.actions.rows] == [2, 1, 3]


def test_the_pane_with_the_focus_alone_shows_its_cursor() -> None:
    screen = told(*BOTH, actions=ACTED)
    assert sum(row.startswith(">") for row in printed(screen, seen()).splitlines()) == 1
    screen.press("tab", seen())
    marked = [row for row in printed(screen, seen()).splitlines() if row.startswith(">")]
    assert [row.split()[1] for row in marked] == ["alice"]


def test_copying_takes_an_id_or_a_hash() -> None:
    screen = told(*BOTH, actions=ACTED)
    assert screen.press("c", seen()) == Copy("chatcmpl-8e9012")
    screen.press("tab", seen())
    assert screen.press("c", seen()) == Copy("c3" * 32)


def test_writing_a_bundle_names_the_command_that_does_it() -> None:
    told_of = told().press("w", seen())
    assert isinstance(told_of, Tell)
    assert "steelyard audit export DIRECTORY" in told_of.text


# -- what is not known -----------------------------------------------------------------------------


def test_lists_that_were_not_read_say_why() -> None:
    screen = Audit()
    assert printed(screen, seen()).count("reading ...") == 2
    screen.receive(CONFLICTS, None, "the ledger is away \u2066")
    screen.receive(ACTIONS, {"actions": 3}, None)
    text = printed(screen, seen())
    assert "not read: the ledger is away \\u2066" in text
    assert "otherwise than this console" in text
    assert line_of(screen, "verify", seen()) == "? reading"
    screen.receive(Query(VERIFY), None, "not allowed")
    assert line_of(screen, "verify", seen()) == "? not allowed"


def test_old_values_are_dim() -> None:
    body = normal().body(seen("lost"))
    assert {span.role for line in body for span in line} == {"dim"}
