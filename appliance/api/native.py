"""POST /completion: llama-server's own form, for its clients and benchmarks."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from appliance.api import answers
from appliance.api.answers import Expected, Judged, Logprob, Progress, Signal, Timings
from appliance.api.bodies import ignored_header, read_shape
from appliance.api.box import Box, box_of
from appliance.api.chat import finish_reason
from appliance.api.completions import digests_of, prepare_prompts
from appliance.api.digests import HEADER
from appliance.api.flight import Flight
from appliance.api.gather import Gathered, gather
from appliance.api.intake import Terms, check_bounds, embark, resolve_model
from appliance.api.lora import told
from appliance.api.replies import json_response, pieces_of
from appliance.api.streaming import EventStream, event
from appliance.api.text_shapes import NativeRequest
from appliance.api.trace import trace_of
from appliance.engine.reports import Delta, Finished, Prefill, StopType
from appliance.errors import BadRequest
from appliance.prepare.messages import Prepared


class NativeChunk(msgspec.Struct):
    """What a stream says before its last event."""

    index: int
    content: str
    tokens: Sequence[int]
    stop: bool
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[Logprob] | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    prompt_progress: Progress | UnsetType = UNSET
    forecast: Expected | UnsetType = UNSET


class NativeAnswer(msgspec.Struct):
    """The whole answer, or the last event of a stream (whose content is then empty)."""

    index: int
    content: str
    tokens: Sequence[int]
    id_slot: int
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: StopType
    stopping_word: str
    tokens_cached: int
    timings: Timings
    completion_probabilities: list[Logprob] | UnsetType = UNSET
    signals: list[Signal] | UnsetType = UNSET
    forecast: Expected | UnsetType = UNSET
    """Not in a stream: of all choices together, as it was before they ran."""
    confidence_after: Judged | UnsetType = UNSET
    digest: str | UnsetType = msgspec.field(default=UNSET, name=HEADER)
    """In a stream; else a header has it."""


async def completion(request: Request) -> Response:
    """A list of prompts, or n > 1, gives a list of answers."""
    box, trace = box_of(request), trace_of(request)
    shape, ignored = await read_shape(request, NativeRequest)
    resolve_model(box, shape.model)
    terms = _terms(shape)
    check_bounds(box, shape, terms)
    add_special = shape.add_special is not False
    prepared = await prepare_prompts(
        box, trace.key_id, shape, shape.prompt, add_special=add_special
    )
    if terms.logprobs >= 0:
        await pieces_of(request).load()
    flight = await embark(box, request, trace, shape, terms, prepared)
    headers = ignored_header(ignored)
    native = Native(box, shape, prepared, flight)
    if shape.stream:
        headers |= await flight.headers()
        ping_s = box.config.server.sse_ping_s
        return EventStream(flight, native, pieces_of(request), ping_s, headers)
    gathered = await gather(flight, request.receive, pieces_of(request))
    headers |= await flight.headers()  # first: the body tells the same forecast
    found = [native.whole(choice) for choice in gathered]
    body = found[0] if len(found) == 1 else found
    return json_response(body, {**headers, HEADER: native.digests.all})


def _terms(shape: NativeRequest) -> Terms:
    n = shape.n_cmpl or shape.n or 1
    if shape.n is not None and shape.n != n:
        raise BadRequest("n and n_cmpl disagree: give one", param="n", code="invalid_value")
    return Terms(
        prefix="cmpl-",
        limit=shape.limit,
        n=n,
        logprobs=shape.n_probs if shape.n_probs else -1,
        logprobs_param="n_probs",
        special=bool(shape.special),
    )


class Native:
    """One completion on its way out."""

    def __init__(
        self, box: Box, shape: NativeRequest, prepared: Sequence[Prepared], flight: Flight
    ) -> None:
        self._shape = shape
        self._prepared = prepared
        self._flight = flight
        self.digests = digests_of(prepared, flight)
        self._model = box.model.name
        self._n = flight.tickets[0].request.n
        self._generated: dict[int, int] = {}
        self._new_line: dict[int, bool] = {}

    def whole(self, gathered: Gathered) -> NativeAnswer:
        """The answer of a request without streaming."""
        self.digests.add(gathered.index, gathered.token_ids)
        found = self._last(
            gathered.index, gathered.end, gathered.text, gathered.token_ids, gathered.logprobs
        )
        if self._shape.return_forecast:
            found.forecast = self._flight.expected()
        return found

    def _last(
        self,
        choice: int,
        end: Finished,
        text: str,
        token_ids: Sequence[int],
        logprobs: list[Logprob],
    ) -> NativeAnswer:
        self._flight.trace.outcome = finish_reason(end, called=False)
        counts = end.counts
        return NativeAnswer(
            index=choice,
            content=text,
            tokens=token_ids if self._shape.return_tokens else (),
            id_slot=-1,
            stop=True,
            model=self._model,
            tokens_predicted=counts.completion_tokens,
            tokens_evaluated=counts.prompt_tokens,
            generation_settings=self._settings(choice),
            prompt=self._prepared[choice // self._n].text,
            has_new_line=self._new_line.get(choice, "\n" in text),
            truncated=False,
            stop_type=end.stop_type,
            stopping_word=end.stop_word,
            tokens_cached=counts.cached_tokens,
            timings=answers.timings_of([[counts]]),
            completion_probabilities=logprobs if self._shape.n_probs else UNSET,
            signals=self._flight.signals_of(choice),
            confidence_after=self._flight.judged(choice, self._shape.return_forecast),
        )

    def _settings(self, choice: int) -> dict[str, Any]:
        """What the request ran with, defaults filled in."""
        submit = self._flight.tickets[choice // self._n].request
        settings = msgspec.structs.asdict(submit.sampling)
        settings["n_probs"] = max(0, settings.pop("logprobs"))
        settings["logit_bias"] = [
            {"token": token, "bias": answers.bounded(bias)}
            for token, bias in settings["logit_bias"]
        ]
        return {
            **settings,
            "n_predict": submit.max_tokens,
            "max_tokens": submit.max_tokens,
            "stop": submit.stop,
            "stream": submit.stream,
            "grammar": submit.grammar or "",
            "n": submit.n,
            "lora": told(submit.lora),
        }

    def _chunk(self, choice: int, text: str, tokens: Sequence[int]) -> NativeChunk:
        ticket = self._flight.tickets[choice // self._n]
        return NativeChunk(
            index=choice,
            content=text,
            tokens=tokens if self._shape.return_tokens else (),
            stop=False,
            id_slot=-1,
            tokens_predicted=self._generated.get(choice, 0),
            tokens_evaluated=len(ticket.request.prompt),
        )

    def progress(self, prefill: Prefill) -> bytes:
        chunk = self._chunk(0, "", ())
        chunk.prompt_progress = Progress(
            prefill.total, prefill.cached, prefill.processed, prefill.ms
        )
        return event(chunk)

    def delta(self, choice: int, delta: Delta, logprobs: list[Logprob]) -> bytes:
        self.digests.add(choice, delta.token_ids)
        self._generated[choice] = self._generated.get(choice, 0) + len(delta.token_ids)
        self._new_line[choice] = self._new_line.get(choice, False) or "\n" in delta.text
        if not delta.text and not logprobs and not (self._shape.return_tokens and delta.token_ids):
            return b""
        chunk = self._chunk(choice, delta.text, delta.token_ids)
        if logprobs:
            chunk.completion_probabilities = logprobs
        if self._shape.timings_per_token:
            chunk.timings = self._flight.timings_so_far()
        if self._shape.return_forecast:
            chunk.forecast = self._flight.news(choice)
        return event(chunk)

    def finished(self, choice: int, end: Finished, logprobs: list[Logprob]) -> bytes:
        last = self._last(choice, end, "", (), logprobs)
        last.digest = self.digests.of(choice)
        return event(last)

    def closing(self) -> bytes:
        """Like llama-server, which ends these streams without a mark."""
        return b""
