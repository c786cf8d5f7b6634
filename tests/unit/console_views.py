"""What a console may have been told, in the five states that every screen is drawn in."""

import math
from typing import Any

from msgspec.structs import replace

from appliance.frames import Alarm, Chain, KeyRow, Live, Model, Pool, Process, Rows, State
from tui.view import PAST, View
from tui.words import Words

STATES = ("empty", "normal", "overload", "degraded", "lost")
AT_MS = 1_764_500_000_000

LIVE = Live(
    seq=1234,
    boot_id="b0",
    host="box7",
    version="0.4.0",
    state="SERVING",
    ready=True,
    at_ms=AT_MS,
    out_tok_s=212.4,
    prefill_tok_s=1900.0,
    ttft_p50_ms=180.2,
    ttft_p99_ms=910.0,
    itl_p50_ms=28.1,
    itl_p99_ms=61.3,
    e2e_p50_ms=4100.0,
    e2e_p99_ms=12_700.0,
    running=6,
    waiting=3,
    oldest_wait_ms=2100.0,
    last_eta_ms=4000.0,
    kv_a_pct=60.9,
    kv_b_pct=22.0,
    prefix_hit_pct=74.2,
    refused_min=0.0,
    failed_min=0.0,
    engine_state="ready",
    step_ms=38.2,
    step_age_ms=40.0,
    board_state="armed",
    dog_left_ms=28_700.0,
    power_w=41.3,
    temp_c=68.0,
    j_per_tok=0.19,
    ledger_state="ok",
    ledger_rows=48213,
    chain_ok=True,
    disk_free_gb=41.0,
    tok_today=1_840_112,
    cost_today=0.42,
    currency="USD",
    pool_a=Pool(cap_tok=6144, used_tok=3744, reserved_tok=410, borrowed_tok=0, peak_tok=5000),
    pool_b=Pool(cap_tok=2048, used_tok=451, reserved_tok=0, borrowed_tok=0, peak_tok=900),
)
ROWS = Rows(
    total=6,
    keys=(
        KeyRow(
            key="crm-bot",
            tenant="sales",
            run=4,
            wait=2,
            tok_min=8500,
            limit_min=20000,
            share_pct=67.0,
        ),
        KeyRow(key="wiki", tenant="docs", run=2, wait=1, tok_min=4200, share_pct=33.0),
    ),
)
BANDS: dict[str, tuple[float | None, float | None]] = {
    "out": (150.0, None),
    "ttft_p99": (None, 2000.0),
    "itl_p99": (None, 80.0),
    "e2e_p99": (None, 30_000.0),
    "waiting": (None, 24.0),
    "kv_a": (None, 85.0),
    "kv_b": (None, 85.0),
    "prefix_hit": (50.0, None),
    "step": (None, 200.0),
    "dog_left": (15_000.0, None),
    "temp": (None, 85.0),
    "power": (None, 95.0),
}
STATE = State(
    chain=Chain(rows=48213, seals=12, head="9f3a", ok=True),
    bands=BANDS,
    model=Model(
        name="SmolLM2-135M",
        sha256="51c2",
        template="77ab",
        build="llama.cpp",
        kv="f16",
        ctx_tok=8192,
        seqs=8,
        layers_asked=0,
        layers_got=0,
    ),
    process=Process(up_s=259_200, rss_mb=412.0),
)
OVERLOAD = Alarm(
    id="overload",
    code="overload",
    screen=2,
    prio=2,
    text="OVERLOAD: 41 of 48 waiting, crm-bot holds 90 %. 2 shows them, T throttles",
    args=("41", "48", "crm-bot", "90"),
    since_ms=AT_MS,
)
GPU = Alarm(
    id="gpu_lost",
    code="gpu_lost",
    screen=7,
    prio=2,
    text="GPU: no device, CPU serves. 7 shows it",
    args=("gpu", "no device, CPU serves"),
    since_ms=AT_MS,
)


DAY_MS = 86_400_000
FORECAST_PAST: dict[str, Any] = {
    "every_ms": DAY_MS // 4,
    "until_ms": AT_MS,
    "steps": [
        [bounds, round(bounds * (0.9 + 0.04 * math.sin(at / 9) - 0.06 * (60 < at < 80))),
         bounds + 5, (bounds + 5) * (11.0 + 3 * math.sin(at / 13))]
        for at in range(120)
        for bounds in [0 if at % 7 == 0 else 40]
    ],
    "windows": [
        {"span_ms": DAY_MS, "answers": 160, "coverage_pct": 89.1, "pinball_tok": 11.2},
        {"span_ms": 7 * DAY_MS, "answers": 1080, "coverage_pct": 90.0, "pinball_tok": 11.94},
        {"span_ms": 30 * DAY_MS, "answers": 4620, "coverage_pct": 90.2, "pinball_tok": 12.4},
    ],
}  # fmt: skip
"""GET /admin/forecasters/past of a month: too wide, right, too narrow, and right again."""


def past(seconds: int) -> dict[str, tuple[float | None, ...]]:
    """Numbers that go up and down below those of LIVE, one a second."""
    return {name: _wave(seconds, name, 4 + at) for at, name in enumerate(PAST)}


def _wave(seconds: int, name: str, times: int) -> tuple[float, ...]:
    top = float(getattr(LIVE, name))
    turn = 2 * math.pi * times / seconds
    return tuple(top * (0.75 + 0.25 * math.sin(at * turn)) for at in range(seconds))


def view(state: str = "normal", **given: Any) -> View:
    """A view in one of STATES; `given` changes it, `lang` its language."""
    told = _told(state) | given
    told["words"] = Words(told.pop("lang", "en"))
    return View(**told)


def _told(state: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "live": LIVE,
        "rows": ROWS,
        "state": STATE,
        "age_s": 0.1,
        "link": "ok",
        "operator": "alice",
        "url": "http://127.0.0.1:8421",
        "past": past(60),
    }
    return (
        told
        | {"normal": dict, "empty": _empty, "overload": _overload}.get(
            state, {"degraded": _degraded, "lost": _lost}.get(state, dict)
        )()
    )


def _empty() -> dict[str, Any]:
    live = replace(
        LIVE,
        **{name: None for name in Live.__struct_fields__ if name[:4] in ("ttft", "itl_", "e2e_")},
        out_tok_s=0.0,
        prefill_tok_s=0.0,
        running=0,
        waiting=0,
        oldest_wait_ms=None,
        last_eta_ms=None,
        kv_a_pct=0.0,
        kv_b_pct=None,
        prefix_hit_pct=None,
        step_ms=None,
        board_state="none",
        dog_left_ms=None,
        power_w=None,
        temp_c=None,
        j_per_tok=None,
        tok_today=0,
        cost_today=0.0,
        pool_a=Pool(cap_tok=8192, used_tok=0, reserved_tok=0, borrowed_tok=0, peak_tok=0),
        pool_b=Pool(),
    )
    return {"live": live, "rows": Rows(total=0), "past": {}}


def _overload() -> dict[str, Any]:
    live = replace(
        LIVE,
        state="OVERLOAD",
        ttft_p99_ms=14_200.0,
        waiting=41,
        oldest_wait_ms=31_000.0,
        last_eta_ms=95_000.0,
        kv_a_pct=98.7,
        refused_min=12.0,
        alarms_2=3,
        alarm_top="overload",
        worst=OVERLOAD,
    )
    return {"live": live, "rows": replace(ROWS, total=47)}


def _degraded() -> dict[str, Any]:
    live = replace(
        LIVE,
        state="DEGRADED",
        degraded="gpu,board",
        board_state="lost",
        dog_left_ms=None,
        temp_c=None,
        power_w=None,
        j_per_tok=None,
        alarms_2=2,
        alarm_top="gpu_lost",
        worst=GPU,
    )
    return {"live": live}


def _lost() -> dict[str, Any]:
    gaps = {name: (*series[:40], *[None] * 20) for name, series in past(60).items()}
    return {"age_s": 42.0, "lost_s": 42.0, "retry_s": 3.0, "link": "lost", "past": gaps}
