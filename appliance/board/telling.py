"""What the line knows of the board, as its snapshot tells it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal

from appliance.board.snapshot import Link, OutputState, Slot, State
from appliance.spread import spread
from firmware_bridge import link as bridge
from firmware_bridge import messages as m
from firmware_bridge.events import Fed, Slots
from firmware_bridge.update import dotted

_UNREADY: Mapping[str, State] = {
    "down": "lost",
    "greeting": "greeting",
    "describing": "greeting",
    "unusable": "unusable",
}
"""By the line's state."""
_WATCHING: Mapping[int, State] = {m.PRETIMEOUT: "warned", m.LATCHED: "latched"}
"""By the watchdog's; in all others it is armed."""


def state_of(told: bridge.Telemetry, fed: Fed | None, *, armed: bool, inhibited: bool) -> State:
    if told.state != "ready":
        return _UNREADY[told.state]
    if fed is None or not armed or fed.state == m.OFF:
        return "watching"
    known = _WATCHING.get(fed.state, "armed")
    return "inhibited" if inhibited and known == "armed" else known


def problem_of(told: bridge.Telemetry, device: str) -> str:
    if told.problem is None:
        return ""
    return f"{told.problem} ({device}): check the cable and board.device"


def outputs_of(told: bridge.Telemetry, until: Mapping[int, float]) -> tuple[OutputState, ...]:
    """`until`: when outputs go back that the box drives, by their number."""
    if told.board is None:
        return ()
    return tuple(
        OutputState(
            name=one.name,
            unit=one.unit,
            now=told.values.get(f"{one.name}_duty"),
            safe=one.offset * one.scale,
            highest=one.sigma * one.scale,
            until=until.get(number),
        )
        for number, one in enumerate(told.board.outputs)
    )


def slots_of(slots: Slots | None) -> tuple[Slot, ...]:
    """Empty where the board has none, or has not told yet."""
    if slots is None or not slots.slot:
        return ()
    here = Slot(slots.slot, dotted(slots.version), "trial" if slots.trial else "confirmed")
    there = "a" if slots.slot == "b" else "b"
    if not any(slots.other):
        return here, Slot(there, "", "empty")
    return here, Slot(there, dotted(slots.other), _other_state(slots))


def _other_state(slots: Slots) -> Literal["confirmed", "failed", "kept"]:
    if slots.trial:
        return "confirmed"
    return "failed" if slots.reverted else "kept"


def line_of(told: bridge.Telemetry, round_trips: Sequence[float], cycles: int) -> Link:
    counters = told.counters
    middle, high, _ = spread(round_trips)
    ppm = (told.clock.seconds_per_tick * 1e6 - 1) * 1e6 if told.clock is not None else None
    return Link(
        frames=counters.frames,
        bad=counters.bad,
        samples=counters.samples,
        lost=counters.lost,
        retries=counters.retries,
        resets=counters.resets,
        opened=told.opened,
        power_cycles=cycles,
        rtt_p50_ms=round(1000 * middle, 2) if round_trips else None,
        rtt_p99_ms=round(1000 * high, 2) if round_trips else None,
        clock_ppm=round(ppm, 1) if ppm is not None else None,
    )
