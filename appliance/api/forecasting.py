"""POST /v1/forecast: what a request would cost, without running it."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.accounts.fitting import allowed_tier
from appliance.api import prospects
from appliance.api.bodies import decode, ignored_header, parse, read_as
from appliance.api.box import Box, box_of
from appliance.api.chat import check_size, job_of
from appliance.api.chat import terms_of as chat_terms
from appliance.api.chat_shapes import ChatRequest
from appliance.api.completions import prepare_prompts
from appliance.api.completions import terms_of as text_terms
from appliance.api.intake import Terms, check_bounds, resolve_model, submits_of
from appliance.api.questions import questions_of
from appliance.api.replies import json_response
from appliance.api.responses import chat_of
from appliance.api.responses_shapes import ResponsesRequest
from appliance.api.text_shapes import CompletionRequest
from appliance.api.trace import Trace, trace_of
from appliance.errors import BadRequest, NotFound
from appliance.forecast.told import Forecast
from appliance.outlook import Band, together
from appliance.prepare.messages import Prepared

WAIT_S = 2.0
"""For the forecaster; beyond it, the rough estimate is told."""


class Cost(msgspec.Struct, frozen=True):
    """At the box's standard rates, for an answer of p10, p50 and p90 tokens. None: not known."""

    low: float | None
    mid: float | None
    high: float | None
    currency: str


class Told(msgspec.Struct, frozen=True):
    """Which forecaster says so."""

    version: str
    state: str


class Prospect(msgspec.Struct, frozen=True):
    """The answer. Tokens of several prompts or choices are told together."""

    prompt_tokens: int
    output_tokens: Band
    confidence: float | None
    claim: str
    cost: Cost
    kv_tokens: int
    """KV cells at the end: every prompt once, and its choices with p90 tokens each."""
    queue_position: int
    """Requests that would start first."""
    eta_ms: int | None
    """From now to the end of the answer, at the median; None where the box cannot tell yet."""
    forecaster: Told


async def forecast(request: Request) -> Response:
    """Takes the body of a chat, a completion or a response. Nothing is generated or charged."""
    box, trace = box_of(request), trace_of(request)
    if not box.forecasts.enabled:
        raise NotFound(
            "this box makes no forecasts: its configuration says forecast.enabled = false",
            code="forecast_off",
        )
    shape, ignored = await read_as(request, partial(_shape, box))
    resolve_model(box, shape.model)
    terms = chat_terms(shape) if isinstance(shape, ChatRequest) else text_terms(shape)
    check_bounds(box, shape, terms)
    if isinstance(shape, ChatRequest):
        check_size(box, shape)
        prompts = [await box.preparer.chat(job_of(shape), trace.key_id)]
    else:
        prompts = await prepare_prompts(box, trace.key_id, shape, shape.prompt)
    found = await _prospect(box, trace, shape, terms, prompts)
    return json_response(found, ignored_header(ignored))


def _shape(box: Box, raw: bytes) -> tuple[ChatRequest | CompletionRequest, tuple[str, ...]]:
    body = decode(raw, box.config.limits.json_depth)
    report = box.config.api.unknown_fields == "report"
    given = [field for field in ("messages", "prompt", "input") if field in body]
    if len(given) > 1:
        raise BadRequest(
            f"give {' or '.join(given)}, not both", param=given[1], code="invalid_value"
        )
    if "input" in body:
        asked, ignored = parse(ResponsesRequest, body, report=report)
        return chat_of(asked), ignored
    if "prompt" in body:
        return parse(CompletionRequest, body, report=report)
    return parse(ChatRequest, body, report=report)


async def _prospect(
    box: Box,
    trace: Trace,
    shape: ChatRequest | CompletionRequest,
    terms: Terms,
    prompts: list[Prepared],
) -> Prospect:
    tier = allowed_tier(trace.holder, terms.service_tier)
    submits = submits_of(box, trace.key_id, shape, terms, prompts, None, tier)
    forecasts = [
        await box.forecasts.now(question, WAIT_S)
        for question in questions_of(shape, prompts, submits)
    ]
    prompt_tokens = [len(submit.prompt) for submit in submits]
    band = together([Band.of(one) for one in forecasts for _ in range(terms.n)])
    cost = prospects.expected_cost(sum(prompt_tokens), band)
    newcomer = prospects.Newcomer(submits[0].priority, submits[0].pool, cost)
    return Prospect(
        prompt_tokens=sum(prompt_tokens),
        output_tokens=band,
        confidence=forecasts[0].confidence if len(forecasts) == 1 else None,
        claim=forecasts[0].claim,
        cost=_cost(box, sum(prompt_tokens), band),
        kv_tokens=sum(prompt_tokens) + sum(one.p90 * terms.n for one in forecasts),
        queue_position=prospects.position(box, newcomer),
        eta_ms=_eta_ms(box, newcomer, sum(prompt_tokens), forecasts),
        forecaster=Told(forecasts[0].version, forecasts[0].state),
    )


def _cost(box: Box, prompt_tokens: int, band: Band) -> Cost:
    rates, pace = prospects.rates_of(box.config.cost), box.forecasts.pace
    low, mid, high = (
        prospects.cost(rates, pace, prompt_tokens, tokens)
        for tokens in (band.p10, band.p50, band.p90)
    )
    return Cost(low, mid, high, rates.currency)


def _eta_ms(
    box: Box, newcomer: prospects.Newcomer, prompt_tokens: int, forecasts: list[Forecast]
) -> int | None:
    """Until its longest choice has ended."""
    longest = max(one.p50 for one in forecasts)
    takes = prospects.takes_s(box.supervisor.snapshot.stats, prompt_tokens, longest)
    wait = prospects.wait_s(box, newcomer)
    return None if takes is None or wait is None else round(1000 * (wait + takes))
