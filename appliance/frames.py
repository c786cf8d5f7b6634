"""What `GET /events` says: three frames, each whole. The daemon makes them, consoles read them.

Names are a public interface and only ever added to; the ending is the unit. None: unknown, which a
console shows as `?` and never as 0. Pure: this module imports nothing of the box.
"""

import msgspec


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One KV pool. Tokens are KV cells."""

    cap_tok: int | None = None
    used_tok: int | None = None
    reserved_tok: int | None = None
    """Predicted to be used by what runs, and not used yet."""
    borrowed_tok: int | None = None
    """In use beyond `cap_tok`: they are the other pool's."""
    peak_tok: int | None = None
    """The most ever in use, of both pools together."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs an operator."""

    id: str
    code: str
    """What it is about, e.g. `engine_down`; consoles translate it with `args`."""
    screen: int
    """Where to look: 1 … 9."""
    prio: int
    """1: within minutes, 2: within an hour, 3: within a day."""
    text: str
    """In English: what, why, and what to do."""
    args: tuple[str, ...] = ()
    since_ms: int
    seen: bool = False
    snooze_ms: int = 0
    """Wall time until which it is snoozed; 0: it is not."""


class Live(msgspec.Struct, frozen=True, kw_only=True, tag="live"):
    """Ten times a second; also what `steelyard status --json` prints. Times in 60 s windows."""

    schema: int = 1
    seq: int
    boot_id: str
    host: str
    version: str
    state: str
    """STARTING, SERVING, DEGRADED, OVERLOAD, DRAINING, HOLDING, DOWN, STOPPING."""
    degraded: str = ""
    """Parts that do not run as they should, comma-separated."""
    ready: bool
    at_ms: int
    """Wall clock of the box."""
    out_tok_s: float | None = None
    prefill_tok_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p99_ms: float | None = None
    e2e_p50_ms: float | None = None
    e2e_p99_ms: float | None = None
    running: int
    waiting: int
    oldest_wait_ms: float | None = None
    last_eta_ms: float | None = None
    """Until the last of the queue starts, at the queue's own speed; an estimate."""
    kv_a_pct: float | None = None
    kv_b_pct: float | None = None
    prefix_hit_pct: float | None = None
    refused_min: float | None = None
    failed_min: float | None = None
    engine_state: str
    step_ms: float | None = None
    step_age_ms: float | None = None
    """Since the engine last proved that its loop turns."""
    restarts_5min: int = 0
    board_state: str = "none"
    dog_left_ms: float | None = None
    power_w: float | None = None
    temp_c: float | None = None
    j_per_tok: float | None = None
    tick_late_p99_ms: float | None = None
    tick_overrun_pct: float | None = None
    forecaster: str = ""
    forecast_state: str = "none"
    coverage_pct: float | None = None
    queue_order: str = ""
    """In force: expected-cost, fcfs, shuffled; empty: not known."""
    queue_fallback: str = ""
    """Why it is fcfs although expected-cost was asked for: off, missing, uncalibrated, broken."""
    ledger_state: str
    """ok, failing, off."""
    ledger_rows: int | None = None
    chain_ok: bool | None = None
    disk_free_gb: float | None = None
    tls_days: float | None = None
    """None: TLS is off."""
    tok_today: int | None = None
    cost_today: float | None = None
    currency: str = ""
    alarms_1: int = 0
    alarms_2: int = 0
    alarms_3: int = 0
    alarm_top: str = ""
    pool_a: Pool = Pool()
    pool_b: Pool = Pool()
    evictions: int = 0
    worst: Alarm | None = None


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One live request."""

    id: str
    key: str
    tenant: str
    scenario: str
    state: str
    """waiting, prefill, decode."""
    pool: str
    tier: str
    fc: str = ""
    """Which forecast its numbers are from; empty: none."""
    pos: int
    """Requests that start before it; 0 once it runs."""
    cost: float | None = None
    flags: tuple[str, ...] = ()
    """stream, schema, tools, exclusive, choices …"""
    prompt_tok: int
    cached_tok: int | None = None
    gen_tok: int
    limit_tok: int
    p10_tok: int | None = None
    p50_tok: int | None = None
    p90_tok: int | None = None
    first_p50_tok: int | None = None
    wait_ms: int
    prefill_ms: int | None = None
    run_ms: int | None = None
    eta_ms: int | None = None


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one key does now, over the last minute."""

    key: str
    tenant: str
    run: int
    wait: int
    tok_min: int
    limit_min: int | None = None
    share_pct: float


class Rows(msgspec.Struct, frozen=True, kw_only=True, tag="rows"):
    """Twice a second."""

    total: int
    """Live requests in all; the table holds the first 200, running ones first."""
    requests: tuple[RequestRow, ...] = ()
    keys: tuple[KeyRow, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Something long that runs beside the serving."""

    kind: str
    phase: str
    done: int
    total: int | None = None
    eta_ms: int | None = None
    rate: float | None = None
    held: bool = False


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """How the ledger stands."""

    rows: int
    seals: int
    bad_row: int | None = None
    age_ms: int | None = None
    export_ms: int | None = None
    """Wall time of the last export."""
    tok_ledger: int | None = None
    tok_engine: int | None = None
    tok_sent: int | None = None
    head: str
    signer: str = ""
    ok: bool


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the set-up list."""

    step: str
    """engine, model, admin_key, app_key, ledger, network, tls, board, forecaster."""
    state: str
    """ok, todo, wait, skip."""
    detail: str


class Model(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str
    template: str
    """SHA-256 of the chat template."""
    build: str
    kv: str
    ctx_tok: int
    seqs: int
    layers_asked: int
    layers_got: int


class Process(msgspec.Struct, frozen=True, kw_only=True):
    up_s: int
    rss_mb: float
    restarts: int = 0
    last_failure: str = ""


class Sensor(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the machine's own sensors, or of a board's."""

    name: str
    unit: str
    """C, V, A, W, rpm."""
    source: str
    """Where it comes from: hwmon, RAPL, NVML."""
    quality: str
    """ok, stale, unknown. Unknown: not read, and without a value."""
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    """The sensor's own band."""
    sigma: float | None = None
    why: str = ""
    """Why it is unknown, and what to do."""
    drift: str = ""
    """How far its own references bear: ok, sparse, holdover; empty: it has none."""
    off: float | None = None
    """What was taken off the raw value, in `unit`."""
    resid: tuple[float | None, ...] = ()
    """The newest 64 raw values minus the truth; None: no reference came with it."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What the board drives."""

    name: str
    now_pct: float | None = None
    safe_pct: float | None = None
    """Where it goes by itself when the host is silent."""
    unit: str = ""
    highest: float | None = None
    """What it can be set to, in `unit`."""
    left_ms: int | None = None
    """Until it goes back, where the box drives it."""


class BoardEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What the board told."""

    at_ms: int
    code: str
    argument: int


class BoardLink(msgspec.Struct, frozen=True, kw_only=True):
    """How the line to the board does, since the daemon began."""

    samples: int
    lost: int
    bad: int
    retries: int
    resets: int
    power_cycles: int
    rtt_p50_ms: float | None = None
    rtt_p99_ms: float | None = None
    clock_ppm: float | None = None


class FirmwareSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One of the board's two places for firmware; the one that runs comes first."""

    slot: str
    version: str = ""
    state: str
    """trial, confirmed, kept, failed, empty."""


class FirmwareUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The update that runs, or ran last."""

    version: str
    phase: str
    """asking, head, files, trying, confirming, done, refused, reverted, failed."""
    done: int
    total: int
    """Bytes."""
    problem: str = ""


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """The microcontroller that watches the box."""

    state: str
    """none, lost, greeting, unusable, watching, armed, inhibited, warned, latched."""
    device: str = ""
    simulated: bool = False
    problem: str = ""
    firmware: str = ""
    uid: str = ""
    reset_cause: str = ""
    timeout_ms: int = 0
    unfed: int = 0
    """Heartbeats that the board did not take."""
    inhibited_ms: int | None = None
    """So long the watchdog does not act yet; None: it does."""
    slots: tuple[FirmwareSlot, ...] = ()
    update: FirmwareUpdate | None = None
    slowed: bool = False
    """The engine does less per step because the CPU is hot."""
    outputs: tuple[Output, ...] = ()
    events: tuple[BoardEvent, ...] = ()
    link: BoardLink | None = None


class Forecaster(msgspec.Struct, frozen=True, kw_only=True):
    """What forecasts, and how well."""

    version: str = ""
    """Empty: none for this model, or none at all."""
    state: str
    """ok, global, uncalibrated, off."""
    provider: str = ""
    precision: str = ""
    encoder: str = ""
    skill: float | None = None
    """Share of the gap between the global median and the noise floor that it closes, as measured
    when it was made."""
    coverage_pct: float | None = None
    """Of the newest answers, those within their 90 % bound."""
    pinball_tok: float | None = None
    bias: float | None = None
    """Natural logarithm of the factor that lengths are multiplied by now."""
    encode_p50_ms: float | None = None
    encode_p99_ms: float | None = None
    answer_p50_ms: float | None = None
    answer_p99_ms: float | None = None
    answered: int = 0
    observed: int = 0
    failed: int = 0
    neighbours: int = 0
    problem: str = ""
    """Why the state is not ok, and what to do."""


class State(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """Once a second, and when something changes."""

    alarms: tuple[Alarm, ...] = ()
    jobs: tuple[Job, ...] = ()
    chain: Chain
    setup: tuple[Step, ...] = ()
    bands: dict[str, tuple[float | None, float | None]] = {}
    """Of a number of `live`, its name without the unit's ending: from, to. None: open."""
    model: Model
    process: Process
    settings: dict[str, str] = {}
    """What the box runs with, as `section.key`; never a secret."""
    sensors: tuple[Sensor, ...] = ()
    forecaster: Forecaster | None = None
    board: Board = Board(state="none")


Frame = Live | Rows | State

encode = msgspec.json.Encoder().encode
decode: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
