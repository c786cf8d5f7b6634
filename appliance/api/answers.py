"""What goes out: structs that msgspec encodes, in OpenAI's shapes with llama-server's additions."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from appliance.api.digests import HEADER as DIGEST
from appliance.engine.commands import Submit
from appliance.engine.landing import SLACK
from appliance.engine.reports import Counts, Finished

LOGPROB_FLOOR = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON cannot say."""

FinishReason = Literal["stop", "length", "tool_calls"]

encode = msgspec.json.Encoder().encode


class CachedTokens(msgspec.Struct):
    cached_tokens: int


class HiddenTokens(msgspec.Struct):
    hidden_tokens: int
    """Tokens that were sampled and do not show in the text: EOS, those of a stop string."""


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: HiddenTokens


class Timings(msgspec.Struct):
    """llama-server's keys; `queue_ms` and `parallel` are ours."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    queue_ms: float | UnsetType = UNSET
    parallel: int | UnsetType = UNSET
    draft_n: int | UnsetType = UNSET
    draft_n_accepted: int | UnsetType = UNSET


class Progress(msgspec.Struct):
    total: int
    cache: int
    processed: int
    time_ms: float


class TopLogprob(msgspec.Struct):
    id: int
    token: str
    logprob: float
    bytes: list[int]


class Logprob(msgspec.Struct):
    id: int
    """llama-server's addition, as in the alternatives."""
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct):
    content: list[Logprob]
    refusal: None = None


class Function(msgspec.Struct, omit_defaults=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCall(msgspec.Struct):
    function: Function
    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Expected(msgspec.Struct, frozen=True):
    """Tokens that there are, and that are expected at the end (quantiles)."""

    generated: int
    p10: int
    p50: int
    p90: int
    index: int | UnsetType = UNSET
    """In a chunk: of this choice."""


class Judged(msgspec.Struct, frozen=True):
    """How likely a choice is right, told after its end."""

    value: float
    """0 to 1."""
    claim: Literal["quality", "confidence"]


Signal = tuple[int, float, float, float]
"""Tokens generated, end-of-generation margin, entropy and log-probability: `messages.Signals`."""
FirstLogits = list[float]
"""As `messages.FirstLogits.values`."""


class Landed(msgspec.Struct, frozen=True):
    """What became of a choice's budget (docs/contract.md)."""

    tokens: int
    """Agreed on."""
    used: int
    """Completion tokens, hidden ones counted."""
    within: bool
    ended: Literal["natural", "steered", "forced", "closed", "gave_way"]


def landed(request: Submit, end: Finished) -> Landed | UnsetType:
    """Of a choice that ended; UNSET where no budget was agreed on."""
    if request.budget is None or end.landing == "":
        return UNSET
    agreed, used = request.budget.tokens, end.counts.completion_tokens
    return Landed(agreed, used, abs(used - agreed) <= SLACK, end.landing)


class Message(msgspec.Struct):
    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Choice(msgspec.Struct):
    index: int
    message: Message
    finish_reason: FinishReason
    logprobs: Logprobs | None = None
    token_ids: Sequence[int] | UnsetType = UNSET
    signals: list[Signal] | UnsetType = UNSET
    first_logits: FirstLogits | UnsetType = UNSET
    budget: Landed | UnsetType = UNSET
    confidence_after: Judged | UnsetType = UNSET


class Delta(msgspec.Struct):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    finish_reason: FinishReason | None = None
    logprobs: Logprobs | None = None
    token_ids: Sequence[int] | UnsetType = UNSET
    signals: list[Signal] | UnsetType = UNSET
    budget: Landed | UnsetType = UNSET
    confidence_after: Judged | UnsetType = UNSET


class LegacyLogprobs(msgspec.Struct):
    """Of /v1/completions."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: LegacyLogprobs | None = None
    token_ids: Sequence[int] | UnsetType = UNSET
    signals: list[Signal] | UnsetType = UNSET
    budget: Landed | UnsetType = UNSET
    confidence_after: Judged | UnsetType = UNSET


class Answer(msgspec.Struct):
    """A chat or text completion, or one chunk of its stream."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk", "text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[Choice | ChunkChoice | TextChoice]
    usage: Usage | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    metadata: Mapping[str, str] | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_progress: Progress | UnsetType = UNSET
    forecast: Expected | UnsetType = UNSET
    """In a chunk: of one choice, as it has just changed. In a whole answer: of all its choices
    together, as it was before they ran."""
    digest: str | UnsetType = msgspec.field(default=UNSET, name=DIGEST)
    """Of the choice that ends with this chunk; of all, comma-separated, beside `usage`."""


def usage_of(prompts: Sequence[Sequence[Counts]]) -> Usage:
    """Exact to the token: every prompt once, every choice of it."""
    prompt = sum(choices[0].prompt_tokens for choices in prompts)
    cached = sum(choices[0].cached_tokens for choices in prompts)
    every = [counts for choices in prompts for counts in choices]
    completion = sum(counts.completion_tokens for counts in every)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=CachedTokens(cached),
        completion_tokens_details=HiddenTokens(sum(counts.hidden_tokens for counts in every)),
    )


def timings_of(prompts: Sequence[Sequence[Counts]]) -> Timings:
    """Tokens are summed over all choices, times are those of the slowest."""
    usage = usage_of(prompts)
    every = [counts for choices in prompts for counts in choices]
    cached = usage.prompt_tokens_details.cached_tokens
    timings = timings_from(
        cached=cached,
        prompt=cached + sum(map(_computed, prompts)),
        prompt_ms=max(counts.prompt_ms for counts in every),
        predicted=usage.completion_tokens,
        predicted_ms=max(counts.decode_ms for counts in every),
        choices=len(every),
    )
    timings.queue_ms = max(counts.queue_ms for counts in every)
    timings.parallel = max(counts.parallel for counts in every)
    if drafted := sum(counts.drafted_tokens for counts in every):
        timings.draft_n = drafted
        timings.draft_n_accepted = sum(counts.accepted_tokens for counts in every)
    return timings


def _computed(choices: Sequence[Counts]) -> int:
    """Tokens of one prompt that were computed: counted once, though choices may share them, and
    though a preempted one computes them again."""
    wanted = choices[0].prompt_tokens - choices[0].cached_tokens
    return min(wanted, sum(counts.prefill_tokens for counts in choices))


def timings_from(
    *,
    cached: int,
    prompt: int,
    prompt_ms: float,
    predicted: int,
    predicted_ms: float,
    choices: int = 1,
) -> Timings:
    """Rates are 0 where nothing was measured. The first token of a choice belongs to its prompt."""
    computed = prompt - cached
    decoded = max(0, predicted - choices)
    return Timings(
        cache_n=cached,
        prompt_n=computed,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / computed if computed else 0.0,
        prompt_per_second=computed * 1000 / prompt_ms if prompt_ms > 0 else 0.0,
        predicted_n=predicted,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=predicted_ms / decoded if decoded else 0.0,
        predicted_per_second=decoded * 1000 / predicted_ms if predicted_ms > 0 else 0.0,
    )


def bounded(logprob: float) -> float:
    """The log-probability as JSON can hold it."""
    return max(logprob, LOGPROB_FLOOR)
