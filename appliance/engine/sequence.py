"""One choice of one request, from the queue to its last token.

Rules: `tokens` is prompt plus everything sampled; the first `computed` of them are in the KV cache
under `seq_id`, in the cells `cells`. While decoding, exactly the last token is not computed yet.
A preempted sequence keeps its tokens and gives up its cells; it computes them again later.
"""

from dataclasses import dataclass, field
from enum import Enum

from appliance.engine.messages import Counts, FinishReason, RequestState, StopType, Submit


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
class Sequence:
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

    def __post_init__(self) -> None:
        self.n_prompt = len(self.request.prompt)

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
        )


@dataclass(frozen=True, slots=True)
class End:
    """How a sequence ended."""

    reason: FinishReason
    stop_type: StopType = "none"
    stop_word: str = ""
    message: str = ""
