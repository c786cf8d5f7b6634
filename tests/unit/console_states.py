"""A box in the states that change what its screens say, each told as a box tells it, whole: frames
and answers agree with each other."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from textual.pilot import Pilot

from appliance.frames import (
    Alarm,
    Board,
    Chain,
    Forecaster,
    Live,
    Pool,
    Process,
    RequestRow,
    Rows,
    Sensor,
    State,
    Step,
)
from tests.unit.console_picture import StillLink
from tests.unit.console_scene import ANSWERS, LIVE_SHOWN, ROWS_SHOWN, STATE_SHOWN
from tests.unit.console_views import AT_MS
from tui.app import Console
from tui.problem import Problem


@dataclass(frozen=True, slots=True)
class Scene:
    """What the box has told by then."""

    live: Live = LIVE_SHOWN
    rows: Rows = ROWS_SHOWN
    state: State = STATE_SHOWN
    answers: dict[str, Any] | None = None
    """Instead of the usual ones."""
    lost_s: float = 0.0

    def link(self) -> StillLink:
        """A link that has heard this, and hears nothing more."""
        return StillLink(self.live, self.rows, self.state, ANSWERS | (self.answers or {}))

    async def shown(self, console: Console, link: StillLink, pilot: Pilot[None]) -> None:
        """On the terminal, with all that the screen asked for; only then the line is lost."""
        if link.problem is None:
            await link.told(console)
        if self.lost_s:
            link.received, link.retry_at = 1000.0 - self.lost_s, 1000.0 + 3
            link.problem = Problem("link.refused", (link.url,))
        console._paint()
        await pilot.pause()


def _alarm(code: str, screen: int, prio: int, text: str, *args: str) -> Alarm:
    return Alarm(
        id=code,
        code=code.partition(":")[0],
        screen=screen,
        prio=prio,
        text=text,
        args=args,
        since_ms=AT_MS,
    )


def _alarmed(live: Live, *alarms: Alarm) -> Live:
    """The worst comes first."""
    counts = {f"alarms_{prio}": sum(one.prio == prio for one in alarms) for prio in (1, 2, 3)}
    return replace(live, worst=alarms[0], alarm_top=alarms[0].code, **counts)


# -- a box on its first day: nobody has asked, nothing is set up -----------------------------------

_UNMEASURED = ("ttft_", "itl_", "e2e_", "tick_")
_FIRST_DAY = replace(
    LIVE_SHOWN,
    **{name: None for name in Live.__struct_fields__ if name.startswith(_UNMEASURED)},
    out_tok_s=0.0, prefill_tok_s=0.0, running=0, waiting=0, oldest_wait_ms=None, last_eta_ms=None,
    kv_a_pct=0.0, kv_b_pct=None, prefix_hit_pct=None, step_ms=None, board_state="none",
    dog_left_ms=None, power_w=None, temp_c=None, j_per_tok=None, tok_today=0, cost_today=0.0,
    forecaster="", forecast_state="global", coverage_pct=None, queue_order="fcfs",
    queue_fallback="missing", ledger_rows=1,
    pool_a=Pool(cap_tok=8192, used_tok=0, reserved_tok=0, borrowed_tok=0, peak_tok=0),
    pool_b=Pool(),
)  # fmt: skip
_ADMIN = {
    "id": "k_A1", "name": "alice", "tenant": "default", "scopes": ["admin"], "state": "valid",
    "created": "2025-11-01T10:00:00Z", "created_by": "", "created_from": "",
    "expires": "2026-12-01", "rotated": None, "grace_until": None, "revoked": None,
    "limits": {}, "used": {},
}  # fmt: skip
_FREE = {"prefill": 0, "decode": 0, "cached": 0, "idle": 0, "total": 0}
EMPTY = Scene(
    live=_FIRST_DAY,
    rows=Rows(total=0),
    state=replace(
        STATE_SHOWN,
        chain=Chain(rows=1, seals=0, age_ms=60_000, tok_ledger=0, tok_engine=0, tok_sent=0,
                    head="9f3a" + "0" * 58 + "c1", ok=True),
        process=Process(up_s=61, rss_mb=392.0),
        sensors=(),
        board=Board(state="none"),
        forecaster=Forecaster(state="global"),
        setup=(
            Step(step="engine", state="ok", detail="decodes, loaded in 0.4 s"),
            Step(step="model", state="ok", detail="SmolLM2-135M, 51c2aabbccdd"),
            Step(step="admin_key", state="ok", detail="alice, 365 days left"),
            Step(step="app_key", state="todo", detail="none: only this machine may ask"),
            Step(step="ledger", state="ok", detail="commit 3 ms, 41 GB free"),
            Step(step="network", state="todo", detail="127.0.0.1:8421, this machine only"),
            Step(step="tls", state="wait", detail="waits for the network"),
            Step(step="board", state="skip", detail="none"),
            Step(step="forecaster", state="skip",
                 detail="none for this model: steelyard calibrate makes one"),
        ),
    ),
    answers={
        "/admin/keys": {"keys": [_ADMIN]},
        "/admin/tenants": {"tenants": [{"name": "default", "limits": {}, "used": {}}]},
        "/admin/cost?by=key": {"currency": "USD", "rows": [],
                               "total": {"group": {}, "standard": _FREE}},
        "/admin/forecasters": {"in_use": "", "forecasters": []},
        "/admin/calibration": {"state": "none"},
        "/admin/forecasters/past": {
            "every_ms": 600_000, "until_ms": AT_MS, "steps": [], "windows": [],
        },
        "/admin/forecasters/scatter": {"points": []},
        "/admin/control": {"tau": None, "channels": []},
        "/admin/audit/conflicts": {"conflicts": [], "before": None},
        "/admin/actions?limit=200": {"actions": [], "next": None},
        "/admin/log?level=info&filter=&limit=200": {
            "lines": [{"seq": 1, "at_ms": AT_MS - 60_000, "level": "info",
                       "logger": "appliance.daemon", "text": "ready after 0.9 s"}],
            "next": 1,
        },
    },
)  # fmt: skip

# -- overload: more asks than it serves, most of it one key's --------------------------------------


def _asked(number: int) -> RequestRow:
    key = "wiki" if number % 10 == 9 else "crm-bot"
    given = {"state": "decode", "run_ms": 2400, "eta_ms": 3000, "gen_tok": 40 + 9 * number}
    if number >= 8:
        given = {"state": "waiting", "gen_tok": 0, "eta_ms": 400 * number}
    return RequestRow(
        id=f"8f{number:02x}", key=key, tenant="sales", scenario="reply", pool="A", tier="default",
        fc="net", pos=max(0, number - 7), prompt_tok=400 + number, limit_tok=512, p10_tok=40,
        p50_tok=90, p90_tok=260, first_p50_tok=90, wait_ms=130 * number, **given,
    )  # type: ignore[arg-type]  # fmt: skip


_MANY = _alarm("overload", 2, 2,
               "OVERLOAD: 233 of 256 waiting, crm-bot holds 90 %. 2 shows them, T throttles",
               "233", "256", "crm-bot", "90")  # fmt: skip
_LATE = _alarm("ticks_overrun", 3, 2,
               "TICKS OVERRUN: 1.8 % of 10 ms ticks are late, so budgets lag. Free a core or lower "
               "engine.threads. 3 shows it", "1.8")  # fmt: skip
OVERLOAD = Scene(
    live=_alarmed(
        replace(
            LIVE_SHOWN, state="OVERLOAD", ttft_p99_ms=14_200.0, e2e_p99_ms=96_000.0, running=8,
            waiting=233, oldest_wait_ms=31_000.0, last_eta_ms=95_000.0, kv_a_pct=98.7,
            refused_min=12.0, tick_overrun_pct=1.8, tick_late_p99_ms=14.0,
            pool_a=Pool(cap_tok=6144, used_tok=6064, reserved_tok=1410, borrowed_tok=0,
                        peak_tok=6144),
        ),
        _MANY, _LATE,
    ),
    rows=replace(
        ROWS_SHOWN, total=241, requests=tuple(map(_asked, range(200))),
        keys=(replace(ROWS_SHOWN.keys[0], run=7, wait=210, tok_min=31_000, share_pct=90.0),
              replace(ROWS_SHOWN.keys[1], run=1, wait=23, share_pct=10.0)),
    ),
    state=replace(
        STATE_SHOWN, alarms=(_MANY, _LATE), bands=STATE_SHOWN.bands | {"waiting": (None, 128.0)}
    ),
)  # fmt: skip

# -- degraded: it serves without its GPU, its board and its forecaster's bounds --------------------

_UNPLUGGED = "there is no such device (/dev/ttyACM0): check the cable and board.device"
_KILLED = "was ended by SIGKILL (most likely by the kernel, for lack of memory)"
_NO_GPU = _alarm(
    "gpu_lost",
    7,
    2,
    "GPU: 30 layers were asked for and no device was found, the CPU serves. 7 shows it",
    "gpu",
    "30 layers were asked for and no device was found, the CPU serves",
)
_NO_BOARD = _alarm("degraded:board", 6, 2,
                   f"BOARD: {_UNPLUGGED}. 6 shows it", "board",
                   _UNPLUGGED)  # fmt: skip
DEGRADED = Scene(
    live=_alarmed(
        replace(
            LIVE_SHOWN, state="DEGRADED", degraded="gpu,board,forecast", board_state="lost",
            dog_left_ms=None, power_w=None, j_per_tok=None, forecast_state="uncalibrated",
            coverage_pct=71.0, queue_order="fcfs", queue_fallback="uncalibrated",
            restarts_5min=1,
        ),
        _NO_GPU, _NO_BOARD,
    ),
    state=replace(
        STATE_SHOWN,
        alarms=(_NO_GPU, _NO_BOARD),
        model=replace(STATE_SHOWN.model, layers_asked=30, layers_got=0),
        process=Process(up_s=40, rss_mb=412.0, restarts=1, last_failure=_KILLED),
        board=Board(
            state="lost", device="/dev/ttyACM0", firmware="1.4.2", uid="e6614c",
            problem=_UNPLUGGED,
        ),
        sensors=(
            STATE_SHOWN.sensors[0],
            Sensor(name="12V", unit="V", source="board", quality="unknown", lo=11.4, hi=12.6,
                   why="the board is lost"),
        ),
        forecaster=Forecaster(
            version="v0007", state="uncalibrated", provider="CPUExecutionProvider",
            precision="int8", encoder="tokens", skill=0.54, pinball_tok=31.4,
            problem="its 90 % bounds held for 71 % of the newest 200 answers: calibrate anew",
        ),
        setup=tuple(
            Step(step="board", state="todo", detail=_UNPLUGGED)
            if step.step == "board" else step
            for step in STATE_SHOWN.setup
        ),
    ),
)  # fmt: skip

# -- down: the engine has died and is started again ------------------------------------------------

_DOWN = _alarm("engine_down", 7, 1,
               f"ENGINE DOWN: it {_KILLED}; next start in 4 s. 7 shows it, R restarts",
               _KILLED, "4")  # fmt: skip
DOWN = Scene(
    live=_alarmed(
        replace(
            LIVE_SHOWN, state="DOWN", ready=False, engine_state="backoff", out_tok_s=0.0,
            running=0, waiting=12, step_ms=None, step_age_ms=None, restarts_5min=2,
            failed_min=6.0, last_eta_ms=None,
        ),
        _DOWN,
    ),
    state=replace(
        STATE_SHOWN, alarms=(_DOWN,),
        process=Process(up_s=0, rss_mb=0.0, restarts=2, last_failure=_KILLED),
        setup=(Step(step="engine", state="wait", detail=_KILLED),
               *STATE_SHOWN.setup[1:]),
    ),
)  # fmt: skip

# -- disconnected: the daemon was there 42 s ago ---------------------------------------------------

LOST = Scene(lost_s=42.0)

SCENES = {"empty": EMPTY, "overload": OVERLOAD, "degraded": DEGRADED, "down": DOWN, "lost": LOST}
