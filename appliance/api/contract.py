"""A request's budget: whether it can be kept at all, and the engine's form of it."""

from typing import Protocol

from appliance.api.shapes import Generation, OpenAiGeneration
from appliance.engine.commands import Budget
from appliance.engine.landing import SLACK
from appliance.errors import BadRequest
from appliance.prepare.messages import NO_CLOSING, Prepared


class Limits(Protocol):
    """What is asked of `intake.Terms`."""

    @property
    def n(self) -> int: ...

    @property
    def limit(self) -> int | None: ...


def has_budget(shape: Generation) -> bool:
    return isinstance(shape, OpenAiGeneration) and shape.budget is not None


def agreed_on(
    shape: Generation, terms: Limits, max_tokens: int, prepared: Prepared
) -> Budget | None:
    """What the answer is to keep to; None where nothing was asked for. Raises BadRequest."""
    wanted = shape.budget if isinstance(shape, OpenAiGeneration) else None
    if wanted is None:
        return None
    if terms.n > 1:
        raise _refused("it holds for one answer: leave n out, or ask n times", "budget")
    if shape.ignore_eos:
        raise _refused("ignore_eos means to go on to the limit: leave one of the two out", "budget")
    _check_room(wanted.tokens, terms.limit, max_tokens)
    _check_closing(wanted.tokens, prepared)
    return Budget(wanted.tokens, wanted.mode or "soft")


def _check_room(tokens: int, limit: int | None, max_tokens: int) -> None:
    if tokens <= max_tokens:
        return
    if limit is not None and limit <= max_tokens:
        raise _refused(f"{tokens} is above max_tokens, which is {limit}: raise it, or ask for less")
    raise _refused(
        f"{tokens} is above the {max_tokens} tokens that the context, or the box's own "
        "limits.max_tokens_default, leave for an answer to this prompt: ask for less"
    )


def _check_closing(tokens: int, prepared: Prepared) -> None:
    """A structure that cannot be complete within the budget is refused before it runs."""
    if prepared.closing == NO_CLOSING:
        raise _refused(
            "no way was found to complete what the grammar or schema of this request asks for, so "
            "it cannot be closed in time: leave budget out"
        )
    if prepared.closing > tokens + SLACK:
        raise _refused(
            f"the shortest answer that the grammar or schema allows takes about {prepared.closing} "
            f"tokens, and {tokens} were asked for: ask for more, or require less"
        )


def _refused(problem: str, param: str = "budget.tokens") -> BadRequest:
    return BadRequest(f"{param}: {problem}", param=param, code="invalid_value")
