"""What a replay found, position by position, and what may explain it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from appliance.api.answers import bounded
from appliance.engine.commands import Budget, Sampling
from appliance.engine.landing import LEAD
from appliance.engine.reports import Counts, TokenLogprob
from appliance.ledger.books import Identity
from appliance.ledger.rows import RequestRow

ALTERNATIVES = 20
"""Likeliest tokens that a replay tells apart by rank."""
COLD = 1e-5
"""Below this temperature the sampler takes the likeliest token (`engine/sampling.py`)."""

Mode = Literal["greedy", "seeded"]
Result = Literal["identical", "differs", "inconclusive", "failed"]


class Step(msgspec.Struct, frozen=True):
    """One token of the answer."""

    position: int
    """As in the digest: from 1 on, prompt first."""
    token: int
    """What the ledger has."""
    picked: int | None
    """What the engine picks there now; null where it could pick nothing."""
    logprob: float
    picked_logprob: float | None
    rank: int | None
    """Of the recorded token among the likeliest, from 1 on; null beyond those that were told."""
    equal: bool | None
    """Whether it is what the engine gives now; null where that cannot be told."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole replay, as it is stored and returned."""

    id: str
    number: int
    choice: int
    digest: str
    replayed_wall_ns: int
    result: Result
    """inconclusive: nothing contradicts the record, and not everything could be compared."""
    positions: int
    differing: int
    first_difference: int | None
    facts: Mapping[str, Any]
    note: str = ""
    steps: Sequence[Step] = ()


def sampling_of(row: RequestRow) -> Sampling:
    """The parameters that the ledger keeps."""
    return msgspec.convert(row.sampling, Sampling, strict=False)


def mode_of(sampling: Sampling) -> Mode:
    return "greedy" if sampling.temperature < COLD else "seeded"


def replayed_sampling(sampling: Sampling, choice: int) -> Sampling:
    """The same for choice `choice` alone, with the log-probabilities that a report needs."""
    seed = None if sampling.seed is None else sampling.seed + choice
    return msgspec.structs.replace(sampling, seed=seed, logprobs=ALTERNATIVES)


def budget_of(row: RequestRow) -> Budget | None:
    """What was agreed on of the answer's length."""
    found = row.sampling.get("budget")
    return None if found is None else msgspec.convert(found, Budget)


def lora_of(row: RequestRow) -> Sequence[Mapping[str, Any]]:
    """The LoRA adapters that it was computed with."""
    found: Sequence[Mapping[str, Any]] = row.sampling.get("lora", ())
    return found


def steps_of(
    entries: Sequence[TokenLogprob],
    n_prompt: int,
    *,
    grammar_unknown: bool,
    budget: Budget | None = None,
) -> list[Step]:
    """One per token of the answer. `grammar_unknown`: something that is not kept forbade tokens, so
    that another pick proves nothing; nor does one where the ending of a `budget` was tried."""
    sure = 0 if grammar_unknown else len(entries)
    if budget is not None:
        sure = min(sure, budget.tokens - LEAD)
    return [
        _step(n_prompt + place, entry, False if place <= sure else None)
        for place, entry in enumerate(entries, start=1)
    ]


def result_of(steps: Sequence[Step], tokens: int) -> Result:
    """`tokens`: how many the recorded answer has."""
    if len(steps) < tokens:
        return "failed"
    if any(step.equal is False for step in steps):
        return "differs"
    return "identical" if all(step.equal for step in steps) else "inconclusive"


def _step(position: int, entry: TokenLogprob, otherwise: bool | None) -> Step:
    told = dict(entry.top)
    return Step(
        position=position,
        token=entry.token_id,
        picked=entry.picked if entry.picked >= 0 else None,
        logprob=bounded(entry.logprob),
        picked_logprob=bounded(told[entry.picked]) if entry.picked in told else None,
        rank=_rank(entry),
        equal=True if entry.picked == entry.token_id else otherwise,
    )


def _rank(entry: TokenLogprob) -> int | None:
    """Tokens as likely as the recorded one do not go before it."""
    if entry.token_id not in dict(entry.top):
        return None
    return 1 + sum(1 for _, logprob in entry.top if logprob > entry.logprob)


def grammar_unknown(row: RequestRow) -> bool:
    """A grammar, schema or tools held the answer, and the ledger has only their hash."""
    return "grammar_sha256" in row.sampling


def facts_of(row: RequestRow, now: Identity, *, replay: Counts | None) -> dict[str, Any]:
    """What was the same and what was not, then and now. `reasons` says it in words."""
    mode = mode_of(sampling_of(row))
    facts: dict[str, Any] = {
        "sampling": mode,
        "exclusive": row.exclusive,
        "parallel": row.parallel,
        "cached_tokens": row.cached_tokens,
        "drafted_tokens": row.drafted_tokens,
        "preemptions": row.preemptions,
        "choices": row.n,
        "recovered": row.recovered,
        "grammar_unknown": grammar_unknown(row),
        "budget": row.sampling.get("budget"),
        "lora": lora_of(row),
        "same_build": row.build == now.build,
        "same_template": row.template_sha256 == now.template_sha256,
        "build_then": row.build,
        "build_now": now.build,
        "replay_exclusive": None if replay is None else replay.exclusive,
    }
    return {**facts, "reasons": _reasons(facts)}


def _reasons(facts: Mapping[str, Any]) -> list[str]:
    told = {
        "a grammar, schema or tools held the answer, and the ledger keeps only their hash: where "
        "the engine picks another token now, they may have forbidden it": facts["grammar_unknown"],
        f"its budget: the end, from {LEAD} tokens before it on, was tried until it fitted, by draws"
        " of its own": facts["budget"],
        f"up to {facts['parallel']} sequences shared a step with it": facts["parallel"] > 1,
        f"{facts['cached_tokens']} prompt tokens were reused, not computed": facts["cached_tokens"],
        f"{facts['choices']} choices shared one prompt": facts["choices"] > 1,
        f"{facts['drafted_tokens']} tokens were drafted, which widens steps": facts[
            "drafted_tokens"
        ],
        f"it was preempted {facts['preemptions']} times": facts["preemptions"],
        "other prompts were in the cache, or it shared the engine; `exclusive: true` prevents "
        "both": not facts["exclusive"],
        "it was recovered from the token journal after a crash, which knows none of these facts": (
            facts["recovered"]
        ),
        f"it was computed by another build ({facts['build_then']}, now {facts['build_now']})": (
            not facts["same_build"]
        ),
        "the chat template has changed since; the recorded prompt's tokens were used": (
            not facts["same_template"]
        ),
        "the replay itself did not have the engine to itself": facts["replay_exclusive"] is False,
    }
    return [reason for reason, holds in told.items() if holds]
