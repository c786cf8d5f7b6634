"""A box on an ordinary working day, for pictures: what its frames say and what it answers."""

import math
from typing import Any

from msgspec.structs import replace

from appliance.frames import (
    Board,
    BoardEvent,
    BoardLink,
    Chain,
    FirmwareSlot,
    Forecaster,
    Live,
    Output,
    RequestRow,
    Rows,
    Sensor,
    State,
    Step,
)
from tests.unit.console_box import make_live
from tests.unit.console_views import AT_MS, DAY_MS, FORECAST_PAST, ROWS, STATE

_HOUR_NS = 3_600_000_000_000
_SHARED = {"tenant": "sales", "scenario": "reply", "tier": "default", "fc": "net"}


def _request(id: str, key: str, state: str, **given: Any) -> RequestRow:
    told = {
        "prompt_tok": 420,
        "gen_tok": 0,
        "limit_tok": 512,
        "pool": "A",
        "pos": 0,
        "wait_ms": 200,
    }
    return RequestRow(id=id, key=key, state=state, **(_SHARED | told | given))  # type: ignore[arg-type]


ROWS_SHOWN: Rows = replace(
    ROWS,
    total=9,
    requests=(
        _request("8f2c", "crm-bot", "decode", cached_tok=380, gen_tok=96, p10_tok=84, p50_tok=131,
                 p90_tok=190, first_p50_tok=120, prefill_ms=90, run_ms=3400, eta_ms=3100,
                 cost=0.0004, flags=("stream", "schema")),
        _request("8f2e", "wiki", "prefill", prompt_tok=2048, cached_tok=512, p10_tok=60,
                 p50_tok=220, p90_tok=480, first_p50_tok=220, run_ms=150, eta_ms=9400),
        _request("8f30", "nightly", "decode", prompt_tok=300, cached_tok=0, gen_tok=711,
                 limit_tok=1024, pool="B", tier="flex", p10_tok=200, p50_tok=380, p90_tok=640,
                 first_p50_tok=360, wait_ms=8100, prefill_ms=210, run_ms=24_000),
        _request("8f31", "crm-bot", "waiting", pos=1, p10_tok=40, p50_tok=90, p90_tok=260,
                 first_p50_tok=90, wait_ms=4000, eta_ms=6200),
    ),
)  # fmt: skip
LIVE_SHOWN: Live = make_live(
    forecaster="v0007", forecast_state="ok", coverage_pct=89.6, queue_order="expected-cost",
    tick_late_p99_ms=0.4, tick_overrun_pct=0.01,
)  # fmt: skip
_BOARD = Board(
    state="armed", device="/dev/ttyACM0", firmware="1.4.2", uid="e6614c", timeout_ms=30_000,
    slots=(FirmwareSlot(slot="A", version="1.4.2", state="confirmed"),
           FirmwareSlot(slot="B", version="1.4.1", state="kept")),
    outputs=(Output(name="fan0", now_pct=45.0, safe_pct=70.0, unit="1", highest=1.0,
                    left_ms=1800),),
    events=(BoardEvent(at_ms=AT_MS - 60_000, code="button", argument=1),),
    link=BoardLink(samples=90_000, lost=0, bad=0, retries=0, resets=0, power_cycles=0,
                   rtt_p50_ms=0.4, rtt_p99_ms=0.8, clock_ppm=3.0),
)  # fmt: skip
_WAVE = tuple(math.sin(at / 5) / 4 for at in range(64))
STATE_SHOWN: State = replace(
    STATE,
    bands={**STATE.bands, "coverage": (85.0, 95.0), "tick_late_p99": (None, 2.0),
           "tick_overrun": (None, 0.1)},
    chain=Chain(rows=48_213, seals=12, age_ms=20, export_ms=AT_MS - 2 * DAY_MS, signer="k_1",
                tok_ledger=1_840_112, tok_engine=1_840_112, tok_sent=1_840_112,
                head="9f3a" + "0" * 58 + "c1", ok=True),
    forecaster=Forecaster(
        version="v0007", state="ok", provider="CPUExecutionProvider", precision="int8",
        encoder="tokens", skill=0.54, pinball_tok=11.8,
    ),
    settings={"server.host": '"127.0.0.1"', "server.port": "8421", "engine.threads": "2",
              "engine.context": "8192", "sampling.temperature": "0.8"},
    sensors=(
        Sensor(name="coretemp Package id 0", unit="C", source="hwmon", quality="ok", value=68.0,
               hi=85.0),
        Sensor(name="12V", unit="V", source="board", quality="ok", value=12.06, lo=11.4, hi=12.6,
               drift="ok", off=0.01, resid=_WAVE),
        Sensor(name="fan 2", unit="rpm", source="board", quality="unknown",
               why="no pulse: check its plug"),
    ),
    board=_BOARD,
    setup=(
        Step(step="engine", state="ok", detail="decodes, loaded in 0.4 s"),
        Step(step="model", state="ok", detail="SmolLM2-135M, 51c2aabbccdd"),
        Step(step="admin_key", state="ok", detail="alice, 30 days left"),
        Step(step="app_key", state="todo", detail="none: only this machine may ask"),
        Step(step="ledger", state="ok", detail="commit 3 ms, 41 GB free"),
        Step(step="network", state="todo", detail="127.0.0.1:8421, this machine only"),
        Step(step="tls", state="wait", detail="waits for the network"),
        Step(step="board", state="ok", detail="1.4.2, watches over the box"),
        Step(step="forecaster", state="ok", detail="v0007"),
    ),
)  # fmt: skip

_KEY = {
    "id": "k_7Q2M", "name": "crm-bot", "tenant": "sales", "scopes": ["infer"], "state": "valid",
    "created": "2025-11-01T10:00:00Z", "created_by": "alice", "created_from": "10.0.4.12",
    "expires": None, "rotated": None, "grace_until": None, "revoked": None,
    "limits": {"requests_per_min": 60}, "used": {"requests_per_min": 44, "cost_per_month": "12.40"},
}  # fmt: skip
_COST = {"prefill": 0, "decode": 190_000_000, "cached": 0, "idle": 0, "total": 190_000_000}


def _action(seq: int, what: str, target: str, hours: int) -> dict[str, Any]:
    return {
        "seq": seq, "hash": "c3" * 32, "wall_ns": AT_MS * 1_000_000 - hours * _HOUR_NS,
        "action": what, "target": target, "key_id": "k_A1", "key_name": "alice",
        "operator": "alice", "host": "10.0.4.12", "detail": {},
    }  # fmt: skip


ANSWERS: dict[str, Any] = {
    "/admin/keys": {"keys": [_KEY]},
    "/admin/tenants": {"tenants": [{"name": "sales", "limits": {}, "used": {}}]},
    "/admin/cost?by=key": {
        "currency": "USD",
        "rows": [{"group": {"key": "k_7Q2M"}, "standard": _COST}],
        "total": {"group": {}, "standard": _COST},
    },
    "/admin/forecasters": {
        "in_use": "v0007",
        "forecasters": [
            {"version": "v0007", "in_use": True, "since_ms": AT_MS, "skill": 0.54,
             "coverage_pct": 89.6},
            {"version": "packaged", "packaged": True, "created": "2025-11-01T10:00:00Z",
             "skill": 0.5},
        ],
    },
    "/admin/calibration": {
        "state": "done",
        "ended_ms": AT_MS - 3_600_000,
        "result": {"done": "v0007 is in use", "why": "its mean error is 9 % lower on 180 prompts"},
    },
    "/admin/forecasters/past": FORECAST_PAST,
    "/admin/forecasters/scatter": {
        "points": [
            [12 + 7 * at, round((12 + 7 * at) * (1 + math.sin(at * at) / 2)), 0]
            for at in range(60)
        ],
    },
    "/admin/control": {
        "tau": 0.62,
        "channels": [
            {"channel": "smollm2/chat", "n": 64, "raw": 0.08, "filtered": 0.06, "valid": True,
             "sd_ratio": 0.71, "window": list(_WAVE)},
            {"channel": "smollm2/json", "n": 22, "raw": -0.02, "filtered": 0.0, "valid": False,
             "sd_ratio": 0.66, "window": list(_WAVE[:22])},
        ],
    },
    "/admin/audit/ledger/verify": {"state": "none"},
    "/admin/audit/conflicts": {
        "conflicts": [
            {"seq": 48_100, "kind": "conflict", "wall_ns": AT_MS * 1_000_000 - _HOUR_NS,
             "number": 7, "id": "chatcmpl-7c11", "trace_id": "ab" * 16, "key_id": "k_7Q2M",
             "choice": 0, "claimed": "a1" * 32, "digest": "b2" * 32, "first_difference": 212},
        ],
        "before": None,
    },
    "/admin/actions?limit=200": {
        "actions": [_action(48_190, "key.rotate", "wiki", 1), _action(47_020, "box.drain", "", 5)],
        "next": None,
    },
    "/admin/log?level=info&filter=&limit=200": {
        "lines": [
            {"seq": 1, "at_ms": AT_MS - 9000, "level": "info", "logger": "appliance.api",
             "text": "chatcmpl-8f2a 200 stop, 412 prompt, 66 tokens, 1.7 s"},
            {"seq": 2, "at_ms": AT_MS - 3000, "level": "warning", "logger": "appliance.engine",
             "text": "cuda: no device"},
        ],
        "next": 2,
    },
}  # fmt: skip
"""What the box answers, by path."""
