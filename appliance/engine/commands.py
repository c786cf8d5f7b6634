"""What the daemon tells the engine: one hop in per request.

Times are CLOCK_MONOTONIC seconds, which both processes share because they run on one machine.
"""

from typing import Literal

import msgspec

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
