"""The box in one line, in one flat object, and in one exit code: for people, scripts, monitors."""

import math
from typing import Any

from appliance.frames import Live
from tui import figures
from tui.view import View

CALM, WARNED, DOWN, UNREACHABLE, REFUSED = range(5)
"""Exit codes of `steelyard status`. 1: degraded, or an alarm of priority 2 or 3; 2: one of
priority 1, or not serving; 3: no answer; 4: the key was refused."""

_APART = ("seq", "boot_id", "pool_a", "pool_b", "evictions", "worst")
"""Of `live`: what is no status."""
NAMES = tuple(name for name in Live.__struct_fields__ if name not in _APART)
"""Of the flat object, which has `age_ms` besides; a public interface: names are only added."""

_SERVING = ("SERVING", "DEGRADED", "OVERLOAD")


def summary(view: View) -> str:
    """One line in English, the same words in the same places for ever."""
    live = view.live
    if live is None:
        return f"{view.foreign(view.url)} ? age ?"
    alarms = f"{live.alarms_1}/{live.alarms_2}/{live.alarms_3}"
    age = figures.UNKNOWN if view.age_s is None else f"{view.age_s:.1f}"
    return (
        f"{view.foreign(live.host)} {view.foreign(live.state)} "
        f"{figures.number(live.out_tok_s)} t/s "
        f"run {live.running} wait {live.waiting} ttft {figures.duration(live.ttft_p99_ms)} "
        f"kvA {figures.percent(live.kv_a_pct)} {figures.number(live.temp_c)} C "
        f"al {alarms} age {age} s"
    )


def flat(live: Live, age_ms: float) -> dict[str, Any]:
    """One flat object; unknown is null."""
    return {name: _plain(getattr(live, name)) for name in NAMES} | {"age_ms": round(age_ms)}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def verdict(live: Live) -> int:
    """CALM, WARNED or DOWN."""
    if live.alarms_1 or not live.ready or live.state not in _SERVING:
        return DOWN
    warned = live.degraded or live.state != "SERVING" or live.alarms_2 or live.alarms_3
    return WARNED if warned else CALM
