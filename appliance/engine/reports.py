"""What the engine tells the daemon: one `Batch` per step.

Times are CLOCK_MONOTONIC seconds, which both processes share because they run on one machine.
"""

from typing import Literal

import msgspec

from appliance.engine.commands import Pool

SIGNAL_TOKENS = 8
"""Generated tokens from one `Signals` to the next."""
FIRST_LOGITS = 128
"""Logits that `FirstLogits` tells: about as many random views of the model's state."""

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]
StopType = Literal["none", "eos", "word", "limit"]
RequestState = Literal["waiting", "prefill", "decode"]
Landing = Literal["", "natural", "steered", "forced", "closed", "gave_way"]
"""How an answer with a budget ended (docs/contract.md); empty without one, or where it failed."""


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
