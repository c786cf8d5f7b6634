"""From a checked body to tickets: model, bounds, sampling, admission, submission."""

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from appliance.accounts.fitting import allowed_tier
from appliance.api.boarding import board
from appliance.api.box import Box
from appliance.api.contract import agreed_on, has_budget
from appliance.api.flight import Flight
from appliance.api.lora import lora_of
from appliance.api.questions import questions_of
from appliance.api.shapes import Generation
from appliance.api.trace import Trace
from appliance.config import LimitsConfig, SamplingConfig
from appliance.engine.commands import Pool, Sampling, Submit
from appliance.errors import BadRequest, ContextExceeded, Forbidden, NotFound
from appliance.prepare.messages import Prepared

ValueT = TypeVar("ValueT")

PRIORITIES = {"priority": -1, "flex": 1}
POOLS: dict[str, Pool] = {"flex": "b"}
"""Of a service tier; all others are interactive: pool A."""
SEEDS = 2**31 - 1
"""Seeds are folded to this many, so that seed + choice fits llama.cpp's 32 bits."""
MAX_DEADLINE_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a route decides about a request, besides its sampling."""

    prefix: str
    """Of the id: `chatcmpl-` or `cmpl-`."""
    limit: int | None
    """Tokens per choice; None: to the end of the context, or what the config says."""
    n: int = 1
    logprobs: int = -1
    service_tier: str | None = None
    special: bool = False
    scenario: str = ""
    """What the client says it does: `metadata.scenario`."""
    logprobs_param: str = "logprobs"
    param: str = "prompt"
    """The field to name when the prompt is too long."""


def resolve_model(box: Box, name: str | None) -> str:
    """The served model's name. Raises NotFound for a name that does not mean it."""
    if name is None or name in served_names(box):
        return box.model.name
    raise NotFound(
        f"no model {name[:100]!r} here: use 'default' or {box.model.name!r} (GET /v1/models lists "
        "them; model.aliases in the config maps other names)",
        param="model",
        code="model_not_found",
    )


def served_names(box: Box) -> set[str]:
    """Every name that means the served model."""
    return {"default", box.model.name, box.model.path.stem, *box.config.model.aliases}


def check_bounds(box: Box, shape: Generation, terms: Terms) -> None:
    """The bounds that depend on the configuration. Raises BadRequest."""
    limits = box.config.limits
    most = min(limits.n, box.config.engine.max_sequences)
    if terms.n > most:
        raise BadRequest(f"n: at most {most} choices are allowed", param="n", code="invalid_value")
    if terms.logprobs > limits.top_logprobs:
        raise BadRequest(
            f"at most {limits.top_logprobs} alternatives per token are allowed",
            param=terms.logprobs_param,
            code="invalid_value",
        )
    if shape.exclusive and not limits.exclusive:
        raise Forbidden(
            "this box runs no request alone (limits.exclusive = false): leave exclusive out",
            param="exclusive",
            code="exclusive_not_allowed",
        )
    if shape.return_forecast and not box.forecasts.enabled:
        raise BadRequest(
            "this box makes no forecasts (forecast.enabled = false): leave return_forecast out",
            param="return_forecast",
            code="forecast_off",
        )
    _check_stops(limits, shape.stops)
    if shape.grammar is not None and len(shape.grammar.encode()) > limits.grammar_bytes:
        raise BadRequest(
            f"grammar: at most {limits.grammar_bytes} bytes are allowed",
            param="grammar",
            code="invalid_value",
        )


def _check_stops(limits: LimitsConfig, stops: Sequence[str]) -> None:
    problem = ""
    if len(stops) > limits.stop:
        problem = f"at most {limits.stop} strings are allowed"
    elif not all(stops):
        problem = "an empty string would stop every answer at once"
    elif any(len(stop.encode()) > limits.stop_bytes for stop in stops):
        problem = f"a string may have at most {limits.stop_bytes} bytes"
    if problem:
        raise BadRequest(f"stop: {problem}", param="stop", code="invalid_value")


def sampling_of(box: Box, shape: Generation, logprobs: int) -> Sampling:
    """The request's sampling over the configured defaults."""
    base = box.config.sampling
    return Sampling(
        temperature=_or(shape.temperature, base.temperature),
        top_k=_or(shape.top_k, base.top_k),
        top_p=_or(shape.top_p, base.top_p),
        min_p=_or(shape.min_p, base.min_p),
        typical_p=_or(shape.typical_p, base.typical_p),
        presence_penalty=_or(shape.presence_penalty, base.presence_penalty),
        frequency_penalty=_or(shape.frequency_penalty, base.frequency_penalty),
        repeat_penalty=_or(shape.repeat_penalty, base.repeat_penalty),
        repeat_last_n=_or(shape.repeat_last_n, base.repeat_last_n),
        seed=_seed(shape.seed),
        logit_bias=_biases(box, shape),
        ignore_eos=bool(shape.ignore_eos),
        logprobs=logprobs,
    )


def default_sampling(base: SamplingConfig) -> dict[str, float]:
    """The configured defaults, for /props."""
    return {name: getattr(base, name) for name in base.__dataclass_fields__}


def _seed(given: int | None) -> int:
    """The seed as asked for, else one of ours: it is in the ledger, so that any answer can be
    drawn again."""
    return secrets.randbelow(SEEDS) if given in (None, -1) else _or(given, 0) % SEEDS


def _or(given: ValueT | None, default: ValueT) -> ValueT:
    return default if given is None else given


def _biases(box: Box, shape: Generation) -> tuple[tuple[int, float], ...]:
    given = shape.logit_bias or {}
    if isinstance(given, dict):
        pairs = [(_token_id(key), bias) for key, bias in given.items()]
    else:
        pairs = [(token, -math.inf if bias is False else float(bias)) for token, bias in given]
    most = box.config.limits.logit_bias
    if len(pairs) > most:
        raise _bad_bias(f"at most {most} entries are allowed")
    for token, _ in pairs:
        if token >= box.model.header.n_vocab:
            raise _bad_bias(
                f"token {token} is not in the vocabulary of {box.model.header.n_vocab} tokens"
            )
    return tuple(dict(pairs).items())


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdecimal()):
        raise _bad_bias(f"{key!r} is no token id (/tokenize tells the ids of a text)")
    return int(key)


def _bad_bias(problem: str) -> BadRequest:
    return BadRequest(f"logit_bias: {problem}", param="logit_bias", code="invalid_value")


def check_tokens(box: Box, tokens: Sequence[int], param: str) -> None:
    """Token ids from a client lie in the vocabulary. Raises BadRequest."""
    worst = max(tokens, default=0)
    if worst >= box.model.header.n_vocab:
        raise BadRequest(
            f"{param}: token {worst} is not in the vocabulary of {box.model.header.n_vocab} tokens",
            param=param,
            code="invalid_value",
        )


def deadline_of(box: Box, request: Request, shape: Generation) -> float | None:
    """Seconds the request may take: its field, its header, or the configured default."""
    if shape.deadline_s is not None:
        return shape.deadline_s
    header = request.headers.get("x-request-timeout-ms")
    if header is None:
        return box.config.limits.deadline_s or None
    plain = header.isascii() and header.isdecimal() and len(header) < 10
    if plain and 0 < int(header) <= MAX_DEADLINE_MS:
        return int(header) / 1000
    raise BadRequest(
        f"X-Request-Timeout-Ms: must be a whole number from 1 to {MAX_DEADLINE_MS}",
        param="X-Request-Timeout-Ms",
        code="invalid_value",
    )


async def embark(
    box: Box,
    request: Request,
    trace: Trace,
    shape: Generation,
    terms: Terms,
    prompts: Sequence[Prepared],
) -> Flight:
    """Admit and submit every prompt, or none of them. Raises ContextExceeded, Overloaded,
    Unavailable."""
    trace.scenario = terms.scenario
    allowed = deadline_of(box, request, shape)
    deadline = None if allowed is None else trace.started + allowed
    tier = allowed_tier(trace.holder, terms.service_tier)
    submits = submits_of(box, trace.key_id, shape, terms, prompts, deadline, tier)
    texts = [prepared.text for prepared in prompts]
    return await board(
        box,
        trace,
        submits,
        texts,
        tier=tier,
        allowed_s=allowed,
        questions=questions_of(shape, prompts, submits) if box.forecasts.enabled else (),
        keep_signals=bool(shape.return_signals),
    )


def submits_of(
    box: Box,
    scope: str,
    shape: Generation,
    terms: Terms,
    prompts: Sequence[Prepared],
    deadline: float | None,
    tier: str,
) -> list[Submit]:
    """One submission per prompt, all with the request's terms. `tier`: the one it may have."""
    sampling = sampling_of(box, shape, terms.logprobs)
    lora = lora_of(box.adapters, shape.lora)
    return [
        Submit(
            id=terms.prefix + secrets.token_hex(12),
            prompt=prepared.prompt,
            max_tokens=budget(box, terms, len(prepared.prompt)),
            sampling=sampling,
            n=terms.n,
            stop=tuple(dict.fromkeys((*shape.stops, *prepared.stop))),
            grammar=prepared.grammar,
            scope=scope,
            stream=bool(shape.stream),
            cache_prompt=shape.cache_prompt is not False,
            progress=bool(shape.return_progress and shape.stream),
            priority=PRIORITIES.get(tier, 0),
            pool=POOLS.get(tier, "a"),
            deadline=deadline,
            special=terms.special,
            exclusive=bool(shape.exclusive),
            budget=agreed_on(shape, terms, budget(box, terms, len(prepared.prompt)), prepared),
            # An answer that never ends by itself runs to its limit: nothing is to be refined.
            signals=bool(shape.return_signals)
            or (box.forecasts.enabled and not shape.ignore_eos and not has_budget(shape)),
            lora=lora,
        )
        for prepared in prompts
    ]


def budget(box: Box, terms: Terms, prompt_tokens: int) -> int:
    """Tokens per choice within the context. Raises ContextExceeded, BadRequest."""
    if prompt_tokens == 0:
        raise BadRequest(
            f"{terms.param}: the prompt has no tokens", param=terms.param, code="invalid_value"
        )
    room = box.n_ctx - prompt_tokens
    wanted = terms.limit if terms.limit is not None else box.config.limits.max_tokens_default
    if room < (0 if terms.limit == 0 else 1):
        fault = ContextExceeded(prompt_tokens, box.n_ctx)
        fault.param = terms.param
        raise fault
    if terms.limit is None and wanted == 0:
        return room
    return min(wanted, room)


def now_unix() -> int:
    """The wall clock, for `created`."""
    return int(time.time())
