"""POST /v1/chat/completions."""

from collections.abc import Sequence

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from appliance.api import answers
from appliance.api.answers import Answer, ChunkChoice, FinishReason, Logprob, Logprobs
from appliance.api.bodies import ignored_header, read_shape
from appliance.api.box import Box, box_of
from appliance.api.calls import CallsReader, ToolCalls
from appliance.api.chat_shapes import ChatRequest, Templated
from appliance.api.digests import HEADER, Digests
from appliance.api.flight import Flight
from appliance.api.gather import Gathered, gather
from appliance.api.intake import Terms, check_bounds, embark, now_unix, resolve_model
from appliance.api.replies import json_response, pieces_of
from appliance.api.streaming import DONE, EventStream, event
from appliance.api.trace import trace_of
from appliance.engine.reports import Delta, Finished, Prefill
from appliance.errors import BadRequest, ContextExceeded
from appliance.prepare.messages import ChatJob, Prepared


async def chat_completions(request: Request) -> Response:
    """Prepared and admitted before the first header goes out: a refusal is a real status."""
    box = box_of(request)
    shape, ignored = await read_shape(request, ChatRequest)
    prepared, flight = await taken_aboard(request, shape, terms_of(shape))
    talk = Talk(box, shape, prepared, flight)
    headers = ignored_header(ignored)
    if shape.stream:
        writer = ChatWriter(talk)
        headers |= await flight.headers()
        ping_s = box.config.server.sse_ping_s
        return EventStream(flight, writer, pieces_of(request), ping_s, headers)
    gathered = await gather(flight, request.receive, pieces_of(request))
    headers |= await flight.headers()  # first: the body tells the same forecast
    body = talk.whole(gathered)
    return json_response(body, {**headers, HEADER: talk.digests.all})


async def taken_aboard(
    request: Request, shape: ChatRequest, terms: Terms
) -> tuple[Prepared, Flight]:
    """A chat that was read is checked, prepared and admitted. Raises ApiError."""
    box, trace = box_of(request), trace_of(request)
    resolve_model(box, shape.model)
    check_bounds(box, shape, terms)
    check_size(box, shape)
    trace.user = shape.user or ""
    prepared = await box.preparer.chat(job_of(shape), trace.key_id)
    if terms.logprobs >= 0:
        await pieces_of(request).load()
    return prepared, await embark(box, request, trace, shape, terms, [prepared])


def check_size(box: Box, shape: Templated) -> None:
    """More messages and calls than the context has tokens cannot fit, and going through hundreds of
    thousands of them would hold up everybody's answers. Raises BadRequest."""
    calls = sum(len(message.tool_calls or ()) for message in shape.messages)
    if (count := len(shape.messages) + calls) > box.n_ctx:
        raise ContextExceeded(count, box.n_ctx, at_least=True)
    most = box.config.limits.tools
    if (offered := len(shape.tools or ())) > most:
        raise BadRequest(
            f"{offered} tools; at most {most} are allowed (limits.tools)",
            param="tools",
            code="invalid_value",
        )


def terms_of(shape: ChatRequest) -> Terms:
    """What the route decides."""
    return Terms(
        prefix="chatcmpl-",
        limit=shape.limit,
        n=shape.n or 1,
        logprobs=(shape.top_logprobs or 0) if shape.logprobs else -1,
        service_tier=shape.service_tier,
        scenario=(shape.metadata or {}).get("scenario", ""),
        logprobs_param="top_logprobs",
        param="messages",
    )


def job_of(shape: Templated) -> ChatJob:
    """The shape as the prepare process takes it."""
    tools = [tool.model_dump(exclude_none=True) for tool in shape.tools or ()]
    choice = shape.tool_choice
    wanted = shape.response_format
    generation = shape if isinstance(shape, ChatRequest) else None
    return ChatJob(
        messages=[message.plain() for message in shape.messages],
        tools=tools or None,
        tool_choice=choice if isinstance(choice, str | None) else choice.model_dump(),
        parallel_tool_calls=shape.parallel_tool_calls is not False,
        response_format=wanted.model_dump(by_alias=True, exclude_none=True) if wanted else None,
        json_schema=generation.json_schema if generation else None,
        grammar=generation.grammar if generation else None,
        grammar_type=generation.grammar_type if generation else None,
        add_generation_prompt=(
            shape.add_generation_prompt is not False and not shape.continue_final_message
        ),
        continue_final_message=bool(shape.continue_final_message),
        template_kwargs=shape.chat_template_kwargs or {},
        closing=generation is not None and generation.budget is not None,
    )


class Talk:
    """One chat on its way out: what all its chunks, or its one answer, have in common."""

    def __init__(self, box: Box, shape: ChatRequest, prepared: Prepared, flight: Flight) -> None:
        self.shape = shape
        self.prepared = prepared
        self.flight = flight
        self.digests = Digests([prepared.prompt], flight.tickets[0].request.n)
        self._model = box.model.name
        self._fingerprint = box.fingerprint
        self._created = now_unix()
        self._id = flight.tickets[0].id
        tier = shape.service_tier
        self._tier = UNSET if tier is None else "default" if tier == "auto" else tier

    def answer(self, choices: Sequence[ChunkChoice | answers.Choice], *, chunk: bool) -> Answer:
        return Answer(
            id=self._id,
            object="chat.completion.chunk" if chunk else "chat.completion",
            created=self._created,
            model=self._model,
            system_fingerprint=self._fingerprint,
            choices=choices,
            service_tier=self._tier,
        )

    def reader(self) -> CallsReader | None:
        """Finds the tool calls of one choice; None where there can be none."""
        if self.prepared.output != "tools":
            return None
        return CallsReader(self.prepared.tools_format)

    def whole(self, gathered: Sequence[Gathered]) -> Answer:
        """The answer of a request without streaming."""
        found = self.answer([self._choice(choice) for choice in gathered], chunk=False)
        found.usage = answers.usage_of(self.flight.counts)
        found.timings = answers.timings_of(self.flight.counts)
        if self.shape.metadata is not None:
            found.metadata = self.shape.metadata
        if self.shape.return_token_ids:
            found.prompt_token_ids = self.prepared.prompt
        if self.shape.return_forecast:
            found.forecast = self.flight.expected()
        return found

    def _choice(self, gathered: Gathered) -> answers.Choice:
        self.digests.add(gathered.index, gathered.token_ids)
        reader = self.reader()
        content: str | None = gathered.text
        calls: list[answers.ToolCall] = []
        if reader is not None:
            content, calls = reader.whole(gathered.text)
        self.flight.trace.outcome = reason = finish_reason(gathered.end, bool(calls))
        return answers.Choice(
            index=gathered.index,
            message=answers.Message(
                role="assistant", content=content, tool_calls=calls if calls else UNSET
            ),
            finish_reason=reason,
            logprobs=Logprobs(gathered.logprobs) if self.shape.logprobs else None,
            token_ids=gathered.token_ids if self.shape.return_token_ids else UNSET,
            signals=self.flight.signals_of(gathered.index),
            first_logits=self.flight.first_logits_of(gathered.index),
            budget=self.flight.landing(gathered.index, gathered.end),
            confidence_after=self.flight.judged(gathered.index, self.shape.return_forecast),
        )


def finish_reason(end: Finished, called: bool) -> FinishReason:
    """OpenAI's word for how a choice ended."""
    if end.reason == "length":
        return "length"
    return "tool_calls" if called else "stop"


class ChatWriter:
    """The chunks of a streamed chat."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._readers: dict[int, CallsReader | None] = {}
        self._first = True

    def progress(self, prefill: Prefill) -> bytes:
        chunk = self._talk.answer([], chunk=True)
        chunk.prompt_progress = answers.Progress(
            prefill.total, prefill.cached, prefill.processed, prefill.ms
        )
        return event(chunk)

    def delta(self, choice: int, delta: Delta, logprobs: list[Logprob]) -> bytes:
        self._talk.digests.add(choice, delta.token_ids)
        opening = self._opening(choice)
        reader = self._readers[choice]
        if reader is None:
            changes = [answers.Delta(content=delta.text)] if delta.text else []
        else:
            changes = _changes(reader.feed(delta.text))
        return opening + self._chunks(choice, changes, logprobs, delta.token_ids)

    def _opening(self, choice: int) -> bytes:
        """The first chunk of a choice, with its role alone."""
        if choice in self._readers:
            return b""
        self._readers[choice] = self._talk.reader()
        first = answers.Delta(role="assistant", content=None)
        chunk = self._talk.answer([ChunkChoice(choice, first)], chunk=True)
        if self._first and self._talk.shape.return_token_ids:
            chunk.prompt_token_ids = self._talk.prepared.prompt
        if self._first and self._talk.shape.metadata is not None:
            chunk.metadata = self._talk.shape.metadata
        self._first = False
        if self._talk.shape.return_forecast:
            chunk.forecast = self._talk.flight.news(choice)
        return event(chunk)

    def _chunks(
        self,
        choice: int,
        changes: list[answers.Delta],
        logprobs: list[Logprob],
        token_ids: Sequence[int],
    ) -> bytes:
        """One chunk per change. The first carries what else there is to tell of the tokens."""
        ids = token_ids if self._talk.shape.return_token_ids else ()
        if not changes and (logprobs or ids):
            changes = [answers.Delta(content="")]
        data = b""
        for place, change in enumerate(changes):
            chosen = ChunkChoice(choice, change)
            if place == 0 and logprobs:
                chosen.logprobs = Logprobs(logprobs)
            if place == 0 and ids:
                chosen.token_ids = ids
            data += event(self._dated(choice, self._talk.answer([chosen], chunk=True)))
        return data

    def _dated(self, choice: int, chunk: Answer) -> Answer:
        """With how things stand, as far as the request asks for that."""
        if self._talk.shape.timings_per_token:
            chunk.timings = self._talk.flight.timings_so_far()
        if self._talk.shape.return_forecast:
            chunk.forecast = self._talk.flight.news(choice)
        return chunk

    def finished(self, choice: int, end: Finished, logprobs: list[Logprob]) -> bytes:
        data = self._opening(choice)
        reader = self._readers[choice]
        rest = _changes(reader.finish()) if reader is not None else []
        data += self._chunks(choice, rest, logprobs, ())
        reason = finish_reason(end, reader is not None and reader.called)
        self._talk.flight.trace.outcome = reason
        chosen = ChunkChoice(choice, answers.Delta(), reason)
        chosen.signals = self._talk.flight.signals_of(choice)
        chosen.budget = self._talk.flight.landing(choice, end)
        asked = self._talk.shape.return_forecast
        chosen.confidence_after = self._talk.flight.judged(choice, asked)
        chunk = self._talk.answer([chosen], chunk=True)
        chunk.digest = self._talk.digests.of(choice)
        if self._talk.flight.landed:
            chunk.timings = answers.timings_of(self._talk.flight.counts)
        return data + event(chunk)

    def closing(self) -> bytes:
        if not self._talk.shape.wants_usage:
            return DONE
        chunk = self._talk.answer([], chunk=True)
        chunk.usage = answers.usage_of(self._talk.flight.counts)
        chunk.timings = answers.timings_of(self._talk.flight.counts)
        chunk.digest = self._talk.digests.all
        return event(chunk) + DONE


def _changes(found: ToolCalls) -> list[answers.Delta]:
    """The parser's findings as deltas, in their order."""
    return [
        answers.Delta(content=item) if isinstance(item, str) else answers.Delta(tool_calls=[item])
        for item in found
    ]
