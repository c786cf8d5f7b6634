"""POST /v1/completions."""

from collections.abc import Sequence

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from appliance.api import answers
from appliance.api.answers import Answer, LegacyLogprobs, Logprob, TextChoice
from appliance.api.bodies import ignored_header, read_shape
from appliance.api.box import Box, box_of
from appliance.api.chat import finish_reason
from appliance.api.contract import has_budget
from appliance.api.digests import HEADER, Digests
from appliance.api.flight import Flight
from appliance.api.gather import Gathered, gather
from appliance.api.intake import Terms, check_bounds, check_tokens, embark, now_unix, resolve_model
from appliance.api.logprobs import legacy
from appliance.api.replies import json_response, pieces_of
from appliance.api.shapes import Generation
from appliance.api.streaming import DONE, EventStream, event
from appliance.api.text_shapes import CompletionRequest, Prompt, prompts_of
from appliance.api.trace import trace_of
from appliance.engine.reports import Delta, Finished, Prefill
from appliance.errors import BadRequest
from appliance.prepare.messages import Prepared, TextJob


async def completions(request: Request) -> Response:
    """As a chat, but the prompt is the caller's own."""
    box, trace = box_of(request), trace_of(request)
    shape, ignored = await read_shape(request, CompletionRequest)
    resolve_model(box, shape.model)
    terms = terms_of(shape)
    check_bounds(box, shape, terms)
    trace.user = shape.user or ""
    prepared = await prepare_prompts(box, trace.key_id, shape, shape.prompt)
    if terms.logprobs >= 0:
        await pieces_of(request).load()
    flight = await embark(box, request, trace, shape, terms, prepared)
    headers = ignored_header(ignored)
    text = Text(box, shape, prepared, flight)
    if shape.stream:
        headers |= await flight.headers()
        ping_s = box.config.server.sse_ping_s
        return EventStream(flight, text, pieces_of(request), ping_s, headers)
    gathered = await gather(flight, request.receive, pieces_of(request))
    headers |= await flight.headers()  # first: the body tells the same forecast
    body = text.whole(gathered)
    return json_response(body, {**headers, HEADER: text.digests.all})


def terms_of(shape: CompletionRequest) -> Terms:
    """What the route decides."""
    logprobs = -1 if shape.logprobs is None else shape.logprobs
    return Terms(
        prefix="cmpl-",
        limit=shape.limit,
        n=shape.n or 1,
        logprobs=logprobs,
        service_tier=shape.service_tier,
        scenario=(shape.metadata or {}).get("scenario", ""),
    )


async def prepare_prompts(
    box: Box, key: str, shape: Generation, prompt: Prompt, *, add_special: bool = True
) -> list[Prepared]:
    """Every prompt, tokenised and with the request's grammar, for the key of this id. Raises
    BadRequest."""
    found = []
    for entry in prompts_of(prompt):
        if isinstance(entry, list):
            check_tokens(box, entry, "prompt")
        job = TextJob(
            prompt=entry,
            add_special=add_special,
            json_schema=shape.json_schema,
            grammar=shape.grammar,
            grammar_type=shape.grammar_type,
            closing=has_budget(shape),
        )
        try:
            found.append(await box.preparer.text(job, key))
        except BadRequest as fault:
            fault.param = "prompt" if fault.param == "messages" else fault.param
            raise
    return found


def digests_of(prepared: Sequence[Prepared], flight: Flight) -> Digests:
    """Those of an answer that is about to be written."""
    return Digests([one.prompt for one in prepared], flight.tickets[0].request.n)


class Text:
    """One text completion on its way out, whole or in chunks."""

    def __init__(
        self, box: Box, shape: CompletionRequest, prepared: Sequence[Prepared], flight: Flight
    ) -> None:
        self._shape = shape
        self._prepared = prepared
        self._flight = flight
        self.digests = digests_of(prepared, flight)
        self._model = box.model.name
        self._fingerprint = box.fingerprint
        self._created = now_unix()
        tier = shape.service_tier
        self._tier = UNSET if tier is None else "default" if tier == "auto" else tier
        self._first = True
        self._offsets: dict[int, int] = {}

    def _answer(self, choices: Sequence[TextChoice]) -> Answer:
        return Answer(
            id=self._flight.tickets[0].id,
            object="text_completion",
            created=self._created,
            model=self._model,
            system_fingerprint=self._fingerprint,
            choices=choices,
            service_tier=self._tier,
        )

    def whole(self, gathered: Sequence[Gathered]) -> Answer:
        """The answer of a request without streaming."""
        found = self._answer([self._choice(choice) for choice in gathered])
        found.usage = answers.usage_of(self._flight.counts)
        found.timings = answers.timings_of(self._flight.counts)
        self._once(found)
        if self._shape.return_forecast:
            found.forecast = self._flight.expected()
        return found

    def _choice(self, gathered: Gathered) -> TextChoice:
        self.digests.add(gathered.index, gathered.token_ids)
        self._flight.trace.outcome = reason = finish_reason(gathered.end, called=False)
        return TextChoice(
            index=gathered.index,
            text=gathered.text,
            finish_reason=reason,
            logprobs=self._logprobs(gathered.index, gathered.logprobs),
            token_ids=gathered.token_ids if self._shape.return_token_ids else UNSET,
            signals=self._flight.signals_of(gathered.index),
            budget=self._flight.landing(gathered.index, gathered.end),
            confidence_after=self._flight.judged(gathered.index, self._shape.return_forecast),
        )

    def _logprobs(self, choice: int, entries: Sequence[Logprob]) -> LegacyLogprobs | None:
        if self._shape.logprobs is None:
            return None
        offset = self._offsets.get(choice, 0)
        self._offsets[choice] = offset + sum(len(entry.token) for entry in entries)
        return legacy(entries, offset)

    def _once(self, answer: Answer) -> None:
        """What an answer, or the first chunk of one, says of the whole request."""
        if self._first:
            self._first = False
            if self._shape.metadata is not None:
                answer.metadata = self._shape.metadata
            if self._shape.return_token_ids:
                answer.prompt_token_ids = [t for p in self._prepared for t in p.prompt]

    def progress(self, prefill: Prefill) -> bytes:
        chunk = self._answer([])
        chunk.prompt_progress = answers.Progress(
            prefill.total, prefill.cached, prefill.processed, prefill.ms
        )
        return event(chunk)

    def delta(self, choice: int, delta: Delta, logprobs: list[Logprob]) -> bytes:
        self.digests.add(choice, delta.token_ids)
        ids = self._shape.return_token_ids and delta.token_ids
        if not delta.text and not logprobs and not ids:
            return b""
        chosen = TextChoice(choice, delta.text)
        if logprobs:
            chosen.logprobs = self._logprobs(choice, logprobs)
        if ids:
            chosen.token_ids = ids
        chunk = self._answer([chosen])
        self._once(chunk)
        if self._shape.timings_per_token:
            chunk.timings = self._flight.timings_so_far()
        if self._shape.return_forecast:
            chunk.forecast = self._flight.news(choice)
        return event(chunk)

    def finished(self, choice: int, end: Finished, logprobs: list[Logprob]) -> bytes:
        self._flight.trace.outcome = reason = finish_reason(end, called=False)
        chosen = TextChoice(choice, "", reason)
        if logprobs:
            chosen.logprobs = self._logprobs(choice, logprobs)
        chosen.signals = self._flight.signals_of(choice)
        chosen.budget = self._flight.landing(choice, end)
        chosen.confidence_after = self._flight.judged(choice, self._shape.return_forecast)
        chunk = self._answer([chosen])
        chunk.digest = self.digests.of(choice)
        self._once(chunk)
        if self._flight.landed:
            chunk.timings = answers.timings_of(self._flight.counts)
        return event(chunk)

    def closing(self) -> bytes:
        if not self._shape.wants_usage:
            return DONE
        chunk = self._answer([])
        chunk.usage = answers.usage_of(self._flight.counts)
        chunk.timings = answers.timings_of(self._flight.counts)
        chunk.digest = self.digests.all
        return event(chunk) + DONE
