"""One choice of one request, from the queue to its last token.

Rules: `tokens` is prompt plus everything sampled; the first `computed` of them are in the KV cache
under `seq_id`, in the cells `cells`. While decoding, exactly the last token is not computed yet.
A preempted sequence keeps its tokens and gives up its cells; it computes them again later.
"""

from dataclasses import dataclass, field
from enum import Enum

from appliance.engine.commands import Expect, Pool, Submit
from appliance.engine.expectation import Expectation
from appliance.engine.reports import Counts, FinishReason, RequestState, StopType

Rank = tuple[bool, bool, int, bool, bool, float, int]
"""Place in the queue, smallest first; `order.Order` makes it."""


class State(Enum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


@dataclass(slots=True)
class Timeline:
    """Monotonic seconds; 0.0 means not yet."""

    arrived: float = 0.0
    started: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0


@dataclass(slots=True, eq=False)
class SavedState:
    """What the cache held of a sequence that gave up its cells: its first `tokens` tokens."""

    tokens: int
    reserved: int
    """Bytes set aside for it."""
    data: bytearray | None = None
    """Filled by the runner; None: it could not be read, or is not yet."""
    restored: bool = False
    """Set by the runner: the cache holds it again."""


@dataclass(slots=True, eq=False)
class Sequence:
    """Belongs to the engine's loop. Tokens and cells are counted, never bytes."""

    request: Submit
    choice: int
    order: int
    """Place in the order of arrival, kept through preemption."""
    tokens: list[int]
    state: State = State.WAITING
    seq_id: int = -1
    place: int = -1
    """Number of its slot while it runs."""
    computed: int = 0
    cells: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    """Prompt tokens reused at the first start."""
    hidden: int = 0
    dropped: int = 0
    """Tokens that were sampled and taken back: tries of an ending."""
    drafted: int = 0
    accepted: int = 0
    parallel: int = 0
    prefill_tokens: int = 0
    """Tokens computed as prompt, again after a preemption included."""
    preemptions: int = 0
    exclusive: bool = False
    prefill_ns: int = 0
    decode_ns: int = 0
    times: Timeline = field(default_factory=Timeline)
    indexed: tuple[int, ...] = ()
    """The tokens under which the prefix tree knows this sequence."""
    n_prompt: int = field(init=False)
    pool: Pool = field(init=False)
    priority: int = field(init=False)
    batch: bool = field(init=False)
    """Treated as one of pool B: it is of it, and was not promoted."""
    rank: Rank = field(init=False)
    """Meant for while it waits."""
    arrived_turn: int = 0
    """Steps that the engine had planned when it came."""
    charged: float = 0.0
    """What its key was charged for it when it started."""
    told: Expect | None = None
    """The newest table of its length, not read yet."""
    table: Expectation | None = None
    reach: tuple[int, int, int] = (-1, -1, 0)
    """What `expectations.Expectations` worked out last."""
    score: float | None = None
    """What `order.Order` worked out last; None: it is to be worked out anew."""
    bold: bool = False
    """It was let in because nothing else ran, though it may need more than there is."""
    evictions: int = 0
    """Times it gave up its cells (or its place) to others."""
    saved: SavedState | None = None

    def __post_init__(self) -> None:
        self.n_prompt = len(self.request.prompt)
        self.assign(self.request.priority, self.request.pool)
        self.rank = (True, self.batch, self.priority, False, True, 0.0, self.order)

    def assign(self, priority: int, pool: Pool) -> None:
        """Its pool, and its priority within that; lower runs first."""
        self.priority, self.pool, self.batch = priority, pool, pool == "b"

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def pending(self) -> int:
        """Tokens not in the KV cache yet."""
        return len(self.tokens) - self.computed

    @property
    def wire_state(self) -> RequestState:
        if self.state is State.DECODE:
            return "decode"
        return "prefill" if self.state is State.PREFILL else "waiting"

    def counts(self, now: float) -> Counts:
        """The account as it stands at `now`."""
        times = self.times
        end = times.ended or now
        started = times.started or end
        first = times.first_token or end
        return Counts(
            prompt_tokens=self.n_prompt,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.generated,
            hidden_tokens=self.hidden,
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
            prompt_ms=(first - started) * 1e3,
            decode_ms=(end - first) * 1e3,
            queue_ms=(started - times.arrived) * 1e3,
            parallel=self.parallel,
            prefill_tokens=self.prefill_tokens,
            preemptions=self.preemptions,
            exclusive=self.exclusive,
            prefill_ns=self.prefill_ns,
            decode_ns=self.decode_ns,
            started=times.started,
            first_token=times.first_token,
            ended=end,
            computed_tokens=self.generated + self.dropped if self.request.budget else 0,
        )


@dataclass(frozen=True, slots=True)
class End:
    """How a sequence ended."""

    reason: FinishReason
    stop_type: StopType = "none"
    stop_word: str = ""
    message: str = ""
