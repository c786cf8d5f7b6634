"""The audit screen."""

from dataclasses import replace as changed
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Chain
from tests.unit.console_draws import anything, count, maybe_count
from tests.unit.console_views import AT_MS, LIVE, STATE, view
from tests.unit.screen_checks import printed
from tui.screen import Query
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


def line_of(screen: Audit, label: str, shown: View) -> str:
    rows = printed(screen, shown).splitlines()
    return next(row.removeprefix(label).strip() for row in rows if row.startswith(label))
