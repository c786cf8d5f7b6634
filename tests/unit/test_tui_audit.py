"""Screen 5: chain, verification, conflicts and what operators did."""

from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Chain
from tests.unit.console_draws import anything, count, maybe_count, views
from tests.unit.console_views import AT_MS, LIVE, STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Ask, Call, Copy, Query, Show, Tell
from tui.screens.audit import ACTIONS, CONFLICTS, KEYS, VERIFY, Audit
from tui.view import View

WALL_NS = AT_MS * 1_000_000
HOUR_NS = 3600 * 10**9
CHAIN = Chain(
    rows=48213,
    seals=12,
    head="9f3a" + "0" * 58 + "c1",
    ok=True,
    age_ms=20,
    tok_ledger=1_840_112,
    tok_engine=1_840_112,
    tok_sent=1_840_112,
    export_ms=AT_MS - 2 * 86_400_000,
    signer="k_1",
)


def seen(
    kind: str = "normal", *, chain: Chain | None = CHAIN, running: int = 0, **given: Any
) -> View:
    state = None if chain is None else replace(STATE, chain=chain)
    return changed(view(kind, **given), state=state, live=replace(LIVE, running=running))


def conflict(seq: int, name: str, **given: Any) -> dict[str, Any]:
    told = {
        "seq": seq,
        "kind": "conflict",
        "wall_ns": WALL_NS - HOUR_NS,
        "number": 7,
        "id": f"chatcmpl-{name}",
        "trace_id": "ab" * 16,
        "key_id": "k_1",
        "choice": 0,
        "claimed": "a1" * 32,
        "digest": "b2" * 32,
        "first_difference": 212,
    }
    return told | given


def action(seq: int, what: str = "key.rotate", **given: Any) -> dict[str, Any]:
    told = {
        "seq": seq,
        "hash": "c3" * 32,
        "wall_ns": WALL_NS,
        "action": what,
        "target": "wiki",
        "key_id": "k_A1",
        "key_name": "alice",
        "operator": "alice",
        "host": "10.0.4.12",
        "detail": {"reason": "leaked \x1b[31m", "minutes": 5},
    }
    return told | given


def replayed(name: str, result: str = "differs", **given: Any) -> dict[str, Any]:
    """The answer to GET /v1/audit/{id}."""
    facts = {"reasons": ["up to 4 sequences shared a step with it"]}
    entry = {"seq": 48002, "kind": "replay", "choice": 0, "result": result, "facts": facts}
    record = {
        "request": {"id": f"chatcmpl-{name}"},
        "audits": [entry | {"positions": 388, "differing": 2, "report": None}],
        "replays_pending": [],
    }
    return {"requests": [record | given], "head": {}}


def fault(seq: int | None = 4711, **given: Any) -> dict[str, Any]:
    told = {
        "what": "content",
        "detail": "its body is not what was hashed",
        "seq": seq,
        "last_seq": None,
        "segment": None,
        "entry": "request chatcmpl-8f2c",
        "stored": "9f" * 32,
        "computed": "aa" * 32,
    }
    return told | given


def verdict(*faults: dict[str, Any]) -> dict[str, Any]:
    told = {"rows": 48213, "requests": 900, "seals": 12, "seconds": 0.8}
    return {
        "state": "faults" if faults else "intact",
        "ended_ms": AT_MS,
        "done": 48213,
        "total": 48213,
        "verdict": told | {"faults": list(faults), "fault_count": len(faults)},
    }


RUNNING = {"state": "running", "done": 39_052, "total": 48_213, "rate": 61_000.0, "eta_ms": 150}


def told(
    *conflicts: dict[str, Any],
    actions: tuple[dict[str, Any], ...] = (),
    verify: dict[str, Any] | None = None,
) -> Audit:
    """The screen after the box has told of these."""
    screen = Audit()
    screen.receive(CONFLICTS, {"conflicts": list(conflicts), "before": None}, None)
    screen.receive(ACTIONS, {"actions": list(actions), "next": None}, None)
    screen.receive(KEYS, {"keys": [{"id": "k_1", "name": "crm-bot"}]}, None)
    screen.receive(Query(VERIFY), verify or {"state": "none"}, None)
    return screen


BOTH = (
    conflict(48001, "8e9012"),
    conflict(47001, "7c1113", wall_ns=WALL_NS - 30 * HOUR_NS, key_id="k_9", first_difference=None),
)
ACTED = (
    action(48190),
    action(48100, "tls.make", target="", key_id="", key_name="", operator="", host="", detail={}),
)


def normal() -> Audit:
    screen = told(*BOTH, actions=ACTED, verify=RUNNING)
    screen.receive(Query("/v1/audit/chatcmpl-7c1113", 0), replayed("7c1113"), None)
    return screen


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
walls = st.integers(-(2**63), 2**63)
conflicts = st.builds(
    conflict,
    seq=count,
    name=anything,
    wall_ns=walls,
    key_id=anything,
    claimed=anything,
    digest=anything,
    first_difference=maybe_count,
)
details = st.dictionaries(anything, anything | count | st.none(), max_size=3)
actions = st.builds(
    action,
    seq=count,
    what=anything,
    wall_ns=walls,
    target=anything,
    key_name=anything,
    operator=anything,
    host=anything,
    detail=details,
)
faults = st.builds(
    fault,
    seq=maybe_count,
    last_seq=maybe_count,
    segment=maybe_count,
    what=anything,
    detail=anything,
    stored=anything,
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


def line_of(screen: Audit, label: str, shown: View) -> str:
    rows = printed(screen, shown).splitlines()
    return next(row.removeprefix(label).strip() for row in rows if row.startswith(label))


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
