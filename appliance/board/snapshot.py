"""What the rest of the box may know of its board: frozen, replaced whole."""

from dataclasses import dataclass
from typing import Literal

from firmware_bridge import messages as m
from firmware_bridge.sensors import ChannelReading, RailEnergy
from firmware_bridge.update import Progress

State = Literal[
    "none", "lost", "greeting", "unusable", "watching", "armed", "inhibited", "warned", "latched"
]
"""none: not configured. watching: measures, the watchdog is off. armed: it watches over the box.
inhibited: it was asked not to act for some time.
warned: its pre-timeout has passed. latched: it acts no more until its button is pressed."""

RESETS = {m.RESET_POWER: "power", m.RESET_WATCHDOG: "own watchdog", m.RESET_OTHER: "other"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How the line does."""

    frames: int = 0
    bad: int = 0
    samples: int = 0
    lost: int = 0
    retries: int = 0
    resets: int = 0
    """Boots of the board that were seen."""
    opened: int = 0
    power_cycles: int = 0
    rtt_p50_ms: float | None = None
    rtt_p99_ms: float | None = None
    clock_ppm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputState:
    """One of the board's outputs, as it told its own duty."""

    name: str
    unit: str
    now: float | None
    safe: float
    highest: float
    until: float | None
    """Monotonic: when it goes back to the safe value; None where the box does not drive it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One of the board's two places for firmware. trial: it runs, and is not confirmed yet.
    confirmed: it boots. kept: the one before. failed: it was tried, and not confirmed."""

    slot: str
    version: str
    state: Literal["confirmed", "trial", "kept", "failed", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event of the board."""

    wall_ms: int
    code: str
    number: int
    argument: int
    ticks: int = 0
    """When, in microseconds of the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSnapshot:
    """`at` is monotonic."""

    state: State = "none"
    problem: str = ""
    """Why it is not there, and what to do."""
    device: str = ""
    simulated: bool = False
    firmware: str = ""
    uid: str = ""
    reset_cause: str = ""
    timeout_ms: int = 0
    left_until: float | None = None
    """Monotonic: when the watchdog will act unless it is fed."""
    fed_at: float | None = None
    unfed: int = 0
    """Heartbeats that the board did not take: an old challenge."""
    readings: tuple[ChannelReading, ...] = ()
    energies: tuple[RailEnergy, ...] = ()
    outputs: tuple[OutputState, ...] = ()
    events: tuple[Told, ...] = ()
    link: Link = Link()
    inhibited_until: float | None = None
    """Monotonic: until then the watchdog does not act; None: it does."""
    slots: tuple[Slot, ...] = ()
    update: Progress | None = None
    """The firmware update that runs, or ran last."""
    slowed: bool = False
    """The engine was told to do less per step, because the CPU is hot."""
    at: float = 0.0

    @property
    def present(self) -> bool:
        """There is one that talks to us."""
        return self.state in ("watching", "armed", "inhibited", "warned", "latched")

    @property
    def trouble(self) -> str:
        """What is wrong, and what to do; empty when all is well, or there is no board."""
        if self.state in ("lost", "unusable"):
            return self.problem
        if self.state == "latched":
            return "its watchdog has latched after three power cycles: press its button to rearm it"
        if self.slowed:
            return "the CPU is hot, so the engine does less per step: check fans and air"
        return ""

    def left_ms(self, now: float) -> float | None:
        """Until the watchdog acts; None where it is off or nobody knows."""
        return None if self.left_until is None else max(0.0, 1000 * (self.left_until - now))

    def value(self, name: str) -> float | None:
        """A channel's value; None where it is not known now."""
        for one in self.readings:
            if one.name == name and one.quality == "ok":
                return one.value
        return None
