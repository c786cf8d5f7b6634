"""The requests screen."""

from typing import Any

from hypothesis import strategies as st

from appliance.frames import RequestRow, Rows
from tests.unit.console_draws import anything, count, maybe_count
from tests.unit.console_views import AT_MS, ROWS, view
from tui.screens.requests import Requests
from tui.screens.requests_past import NEWEST
from tui.view import View

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
