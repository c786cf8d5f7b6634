"""What a session tells: facts about the board, its samples, and what became of commands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Description:
    """A channel or an output. value = raw · scale + offset, with the given σ; of an output,
    `offset` is the safe value and `sigma` the highest."""

    kind: int
    name: str
    unit: str
    scale: float
    offset: float
    sigma: float


@dataclass(frozen=True, slots=True)
class BoardInfo:
    """What the board told about itself at HELLO, and in its descriptions."""

    major: int
    minor: int
    boot_id: int
    period_us: int
    schema: int
    channel_count: int
    description_count: int
    firmware: str
    reset_cause: int
    power_cycles: int
    uid: str
    channels: tuple[Description, ...] = ()
    outputs: tuple[Description, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """Greeted and described: commands are taken, samples can be read."""

    board: BoardInfo


@dataclass(frozen=True, slots=True)
class Unusable:
    """Another version or another schema: only heartbeats are possible."""

    reason: str


@dataclass(frozen=True, slots=True)
class BoardReset:
    """The board booted since it was last heard: its clock and its sample index begin anew."""

    old_boot_id: int
    new_boot_id: int


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing valid was heard for `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reference:
    """The truth about one sample of one channel, in the channel's raw steps."""

    index: int
    channel: int
    value: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Consecutive samples, a row of raw steps per sample. `first` counts from the board's boot."""

    first: int
    rows: tuple[tuple[int, ...], ...]
    references: tuple[Reference, ...]
    ticks: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Samples that were missing when a later one arrived. They may still come, late."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the board (kinds in messages.py). Told once, however often it was sent."""

    kind: int
    number: int
    argument: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Fed:
    """The answer to a heartbeat. `fed` is false when the challenge was not the board's last."""

    fed: bool
    state: int
    timeout_ms: int
    left_ms: int


Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Slots:
    """How the board's firmware stands. `slot` is empty where it has none; phases and reasons are in
    messages.py; `other` is 0.0.0 where the other slot holds nothing."""

    slot: str
    trial: bool
    phase: int
    reason: int
    reverted: bool
    version: Version
    other: Version
    received: int
    total: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The board's own counters, once a second."""

    accepted: int
    refused: int
    unsent: int
    late: int
    skipped: int
    longest_turn_us: int


@dataclass(frozen=True, slots=True)
class Done:
    """The board obeyed command `id`."""

    id: int
    payload: bytes
    round_trip: float


@dataclass(frozen=True, slots=True)
class Failed:
    """Command `id` was refused by the board (`code`), or its outcome is unknown (`code` is None):
    it was carried out at most once."""

    id: int
    reason: str
    code: int | None = None


Event = (
    Ready | Unusable | BoardReset | Silent | Samples | Lost | Happened | Fed | Stats | Done | Failed
)
