"""What daemon and engine say to each other.

Frames are `u32le length ‖ msgpack` over a Unix socketpair: typed structs, never pickle. One hop in
per request, one `Batch` out per engine step. Times are CLOCK_MONOTONIC seconds, which both
processes share because they run on one machine.
"""

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

MAX_FRAME = 64 * 1024 * 1024
"""Bytes. A larger length prefix means the stream is out of step: the peer is treated as dead."""

SIGNAL_TOKENS = 8
"""Generated tokens from one `Signals` to the next."""
FIRST_LOGITS = 128
"""Logits that `FirstLogits` tells: about as many random views of the model's state."""

_LENGTH = struct.Struct("<I")

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]
StopType = Literal["none", "eos", "word", "limit"]
RequestState = Literal["waiting", "prefill", "decode"]
Landing = Literal["", "natural", "steered", "forced", "closed", "gave_way"]
"""How an answer with a budget ended (docs/contract.md); empty without one, or where it failed."""
Pool = Literal["a", "b"]
"""a: interactive; b: batch."""
Policy = Literal["fcfs", "expected-cost", "shuffled"]
Admission = Literal["peak", "reserve", "fill"]
LoraSet = tuple[tuple[int, float], ...]
"""LoRA adapters by their place in `Load.lora`, each with how strongly it is applied: ascending,
none twice, none with 0. Empty: the model alone."""


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one request picks its tokens. Every value was bounded by the API before it got here."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    seed: int | None = None
    """None: a fresh seed per choice. With a seed, choice i of `n` uses seed + i."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, bias added to its logit); -inf forbids the token."""
    ignore_eos: bool = False
    logprobs: int = -1
    """-1: none. k >= 0: the sampled token's log-probability and the k likeliest alternatives,
    taken from the model's own distribution before temperature and truncation."""


class Budget(msgspec.Struct, frozen=True):
    """Where the answer is to end: within 3 tokens of `tokens`, EOS counted."""

    tokens: int
    mode: Literal["soft", "strict"] = "soft"


class Submit(msgspec.Struct, frozen=True, omit_defaults=True, tag="submit"):
    """One request: a prompt and the `n` choices to draw from it."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    """Tokens per choice, >= 0 (0 generates nothing), already clamped to the context."""
    sampling: Sampling = Sampling()
    n: int = 1
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    """A grammar that llguidance's matcher accepts, proven to compile by the prepare process."""
    scope: str = ""
    """Prefix reuse happens only between requests of one scope (the API key's id)."""
    stream: bool = False
    """False: tokens travel in one `Delta` right before `Finished`; true: one a step."""
    cache_prompt: bool = True
    progress: bool = False
    """Send `Prefill` after every chunk."""
    priority: int = 0
    """Lower runs first."""
    deadline: float | None = None
    special: bool = False
    """Render control tokens as text (llama-server's `special` of /completion)."""
    number: int = 0
    """Its number in the ledger, under which the token journal knows it."""
    key: int = 0
    """The API key's id as a number, for the journal (0: none)."""
    exclusive: bool = False
    """Run it alone, on an emptied cache and without drafts: what it computes then depends on
    nothing but the request, the settings and the machine."""
    forced: tuple[int, ...] = ()
    """Replay: these tokens are appended whatever is sampled; the log-probabilities tell what the
    engine would have picked."""
    signals: bool = True
    """Send `FirstLogits` once, and `Signals` every `SIGNAL_TOKENS` tokens of each choice."""
    budget: Budget | None = None
    """Only with n = 1 and without `ignore_eos`; at most `max_tokens`. With `forced`: that of the
    answer which is replayed."""
    pool: Pool = "a"
    """Whose share of the cells it may use, and whose turn it waits for."""
    lora: LoraSet = ()
    """What it is computed with. Sequences of different sets share neither a step nor a prefix."""


class Expect(msgspec.Struct, frozen=True, tag="expect"):
    """How long each choice of a request may become; replaces what was known of it."""

    id: str
    """Of a request; empty in `Steer`, where it stands for all that have no such table."""
    tokens: tuple[int, ...]
    """Lengths, ascending."""
    survival: tuple[float, ...]
    """P(a choice becomes longer than tokens[i]), falling. Without `max_tokens`, which the engine
    applies. A table that is none (NaN, rising, of another size) counts as not sent."""


class Steer(msgspec.Struct, frozen=True, tag="steer"):
    """How the queue is ordered, who is let in and how the cells are parted; replaces the former."""

    policy: Policy = "fcfs"
    admission: Admission = "peak"
    """peak: the predicted peak must fit; reserve: the sum of all `max_tokens` must; fill: start
    while less than `FILL` of the pool is in use (the last two are there to be compared with)."""
    forecast: bool = False
    """False: there is no predictor, or it is out of calibration: order of arrival, and `expected`
    for all."""
    tau: float = 0.6
    """The quantile of what a sequence still generates that the predicted peak counts with."""
    b_cells: int = 0
    """Cells of pool B; A has the others, `A_LEAST` of them at least."""
    ageing: float = 0.3
    """Cost, in tokens, forgiven for each token that a running sequence makes meanwhile."""
    max_wait_s: float = 120.0
    """Whoever waits longer goes first."""
    fairness: bool = True
    """Whether a key that had more than others goes after them."""
    expected: Expect = Expect("", (), ())
    """For requests without a table of their own. Empty: they count with `max_tokens`."""


class Reprioritise(msgspec.Struct, frozen=True, tag="reprioritise"):
    """Moves a request that waits or runs to another priority and pool."""

    id: str
    priority: int
    pool: Pool


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    id: str
    reason: Literal["cancelled", "deadline"] = "cancelled"


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Answered between steps, so the answer proves that the loop turns."""

    at: float


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """Hold (true) or release (false) the waiting queue; running requests go on."""

    on: bool


class Slow(msgspec.Struct, frozen=True, tag="slow"):
    """Compute less (true): the machine is hot. A quarter of the tokens per step, no drafts, and a
    rest as long as the step after each; or as fast as can be (false)."""

    on: bool


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    pass


class Load(msgspec.Struct, frozen=True, tag="load", omit_defaults=True):
    """The first message: which model to open and how. Numbers were bounded by config.py."""

    model_path: str
    n_ctx: int
    max_sequences: int
    n_batch: int
    n_ubatch: int
    threads: int
    threads_batch: int
    n_gpu_layers: int
    flash_attention: Literal["auto", "on", "off"]
    kv_type: Literal["f16", "bf16", "q8_0", "q4_0", "f32"]
    cached_sequences: int
    """Finished sequences kept for prefix reuse, at most."""
    draft_tokens: int
    """Prompt-lookup draft length, at most; 0 turns drafting off."""
    prefill_tokens: int
    """Prompt tokens per step, at most, while others decode."""
    mlock: bool = False
    lora: tuple[tuple[str, float], ...] = ()
    """Adapter files, and the scales that the configuration gives them. None is applied but by
    `Submit.lora`, which names them by their place here."""
    journal_dir: str = ""
    """Where the token journal goes; empty: none is kept (self-tests)."""


Command = Submit | Expect | Steer | Reprioritise | Cancel | Ping | Pause | Slow | Shutdown | Load


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens, likeliest first; with a forced token, the picked one is among them."""
    picked: int = -1
    """With a forced token: what would have been picked; -1 where nothing could be."""


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The request left the queue: from here on it is in flight."""

    id: str
    at: float
    cached_tokens: int


class Prefill(msgspec.Struct, frozen=True, array_like=True, tag="prefill"):
    id: str
    total: int
    cached: int
    processed: int
    """Prompt tokens in the KV cache by now, `cached` included."""
    ms: float


class Delta(msgspec.Struct, frozen=True, array_like=True, tag="delta"):
    """New tokens of one choice. `text` never splits a character and never holds part of a stop
    string, so it may lag behind `token_ids`, which holds every token sampled, EOS included."""

    id: str
    choice: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


class Signals(msgspec.Struct, frozen=True, array_like=True, tag="signals"):
    """What the model's own distribution tells of one choice, every `SIGNAL_TOKENS` tokens. All of
    it is of the raw logits: before bias, penalties, temperature and grammar. It goes out with the
    step that made the token, for requests that stream and for those that do not."""

    id: str
    choice: int
    generated: int
    """Tokens of the choice so far, the one this is about included: 8, 16, 24, ..."""
    eos_margin: float
    """Nats. The largest of (logit of the likeliest end-of-generation token - largest logit) over
    the tokens since the last signal: 0 where the answer could have ended; -inf where the model has
    no such token."""
    entropy: float
    """Nats, of the distribution this token was drawn from."""
    logprob: float
    """Nats, of this token in that distribution."""


class FirstLogits(msgspec.Struct, frozen=True, array_like=True, tag="first"):
    """What the model's own distribution tells at the end of the prompt, once a request with
    `signals` on; it goes out with the step that made the first token."""

    id: str
    values: bytes
    """float32, little-endian: the raw logits of `FIRST_LOGITS` tokens spread evenly over the
    vocabulary, the first and the last among them, less the largest of all; nats."""


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """What one choice cost, exact to the token."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens whose KV was reused rather than computed."""
    completion_tokens: int
    """Every token sampled: `len` of all `token_ids` sent for the choice."""
    hidden_tokens: int
    """Those of them that do not show in the text: EOS, or tokens of a stop string."""
    drafted_tokens: int
    accepted_tokens: int
    prompt_ms: float
    decode_ms: float
    queue_ms: float
    parallel: int
    """The most sequences that shared a step with this one (a fact for replays)."""
    prefill_tokens: int = 0
    """Tokens computed as prompt, those computed again after a preemption included."""
    preemptions: int = 0
    exclusive: bool = False
    """It had every step and the whole cache to itself."""
    prefill_ns: int = 0
    """Device time: its share, by tokens, of the steps in which its prompt was computed."""
    decode_ns: int = 0
    started: float = 0.0
    """Monotonic seconds, like the next two; 0.0: never."""
    first_token: float = 0.0
    ended: float = 0.0
    computed_tokens: int = 0
    """With a budget: every token sampled, those included that were tried as an ending and not
    delivered. Else 0."""


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    id: str
    choice: int
    reason: FinishReason
    stop_type: StopType
    stop_word: str
    counts: Counts
    message: str = ""
    """Why, when `reason` is error."""
    landing: Landing = ""


class Stats(msgspec.Struct, frozen=True, array_like=True):
    """The engine's counters after a step: totals since it started, then states."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    busy_sequences: int = 0
    """Summed over steps: divide by `steps` for the mean."""
    preemptions: int = 0
    evictions: int = 0
    tokens_max: int = 0
    """The most KV cells ever in use."""
    compute_seconds: float = 0.0
    """Inside llama_decode."""
    loop_seconds: float = 0.0
    """Busy time of the loop, llama_decode included."""
    running: int = 0
    waiting: int = 0
    kv_used: int = 0
    kv_cached: int = 0
    """Cells held only by finished sequences: given up on demand."""
    kv_total: int = 0
    last_step_ms: float = 0.0
    journal_records: int = 0
    """Records in the token journal since the engine started."""
    journal_room: int = 0
    """Records that still fit when the disk takes nothing more."""
    a_used: int = 0
    """Cells that running sequences of pool A hold; what they share is counted once."""
    a_peak: int = 0
    """The most cells that they are expected to hold before they end."""
    b_used: int = 0
    b_peak: int = 0
    borrowed: int = 0
    """Cells that pool B holds beyond its own."""
    overflows: int = 0
    """Times that the cells ran out although the predicted peak of all that ran had fitted."""
    b_evictions: int = 0
    """Running sequences of pool B that gave up their cells."""
    saved: int = 0
    """Sequences whose state was kept in memory when they gave up their cells."""
    restored: int = 0
    """Saved states that were put back instead of being computed again."""
    wait_max_s: float = 0.0
    """How long the sequence that has waited longest waits now."""


class SlotState(msgspec.Struct, frozen=True, array_like=True):
    """One running sequence, for /slots."""

    id: int
    """Its place among those that may run: 0 … max_sequences - 1."""
    request: str
    choice: int
    state: RequestState
    prompt_tokens: int
    prompt_done: int
    cached_tokens: int
    generated: int
    max_tokens: int
    pool: Pool = "a"


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """All that one step brought."""

    events: tuple["Event", ...]
    stats: Stats


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    at: float
    stats: Stats
    slots: tuple[SlotState, ...]
    waiting: tuple[str, ...]
    """Request ids in the order in which they will start."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded and one decode was proven."""

    model_desc: str
    n_params: int
    model_bytes: int
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_embd: int
    vocab_type: int
    n_layers: int
    layers_offloaded: int
    layers_asked: int
    flash_attention: bool
    system_info: str
    load_seconds: float
    degraded: tuple[str, ...] = ()
    """Why the engine does not run as asked; empty when it does."""


class Fatal(msgspec.Struct, frozen=True, tag="fatal"):
    """The engine cannot go on: said once, then it exits non-zero."""

    message: str


Event = Started | Prefill | Delta | Signals | FirstLogits | Finished
Report = Batch | Pong | Ready | Fatal

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def frame(message: Command | Report) -> bytes:
    """The message as it travels."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class OutOfStep(ValueError):
    """The peer sent what is no frame; nothing after it can be trusted."""


class Frames:
    """Cuts a byte stream into message bodies. `feed` what arrived, then iterate."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        buffer = self._buffer
        while len(buffer) - start >= 4:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if size > MAX_FRAME:
                raise OutOfStep(f"frame of {size} bytes; at most {MAX_FRAME} are allowed")
            if len(buffer) - start - 4 < size:
                break
            yield bytes(buffer[start + 4 : start + 4 + size])
            start += 4 + size
        del buffer[:start]


def decode_command(body: bytes) -> Command:
    """Raises OutOfStep when the body is no command."""
    try:
        return _commands.decode(body)
    except msgspec.MsgspecError as error:
        raise OutOfStep(str(error)) from error


def decode_report(body: bytes) -> Report:
    """Raises OutOfStep when the body is no report."""
    try:
        return _reports.decode(body)
    except msgspec.MsgspecError as error:
        raise OutOfStep(str(error)) from error
