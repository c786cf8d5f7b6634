"""Server-sent events: one write per event, comments while there is nothing to say."""

import time
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from appliance.api.answers import Logprob, encode
from appliance.api.faults import encode_fault
from appliance.api.flight import Flight, following
from appliance.api.logprobs import Aligner, Pieces
from appliance.engine.reports import Delta, Event, Finished, Prefill
from appliance.errors import ApiError

LOOK_S = 0.5
"""How often a waiting request looks whether it moved up in the queue."""

DONE = b"data: [DONE]\n\n"


def event(message: msgspec.Struct) -> bytes:
    """The message as one event."""
    return b"data: " + encode(message) + b"\n\n"


class Writer(Protocol):
    """Turns engine events into the bytes of one route's stream. Empty bytes: nothing to say."""

    def progress(self, prefill: Prefill) -> bytes: ...

    def delta(self, choice: int, delta: Delta, logprobs: list[Logprob]) -> bytes: ...

    def finished(self, choice: int, end: Finished, logprobs: list[Logprob]) -> bytes: ...

    def closing(self) -> bytes:
        """After the last choice."""
        ...


class EventStream(Response):
    """Streams a flight. The client's leaving cancels it at once, whatever it is doing."""

    media_type = "text/event-stream"

    def __init__(
        self,
        flight: Flight,
        writer: Writer,
        pieces: Pieces,
        ping_s: float,
        headers: Mapping[str, str],
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({**headers, "X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        self._flight = flight
        self._writer = writer
        self._pieces = pieces
        self._ping_s = ping_s
        self._aligners: dict[int, Aligner] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with following(self._flight, receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for data in self._events():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        """All events; a fault is the last one."""
        try:
            async for data in self._told():
                yield data
        except ApiError as fault:
            self._flight.trace.outcome = str(fault.code or fault.type)
            yield self._last(fault)

    def _last(self, fault: ApiError) -> bytes:
        """What tells of a fault: OpenAI's SDKs raise by it."""
        return b"data: " + encode_fault(fault) + b"\n\n"

    async def _told(self) -> AsyncIterator[bytes]:
        comments = Comments(self._flight, self._ping_s)
        if comment := comments.due():
            yield comment
        while not self._flight.landed:
            found = await self._flight.next(comments.timeout)
            if found is None:
                data = comments.due()
            elif data := self._data(*found):
                comments.written()
            if data:
                yield data
        if closing := self._writer.closing():
            yield closing

    def _data(self, choice: int, happened: Event) -> bytes:
        if isinstance(happened, Delta):
            return self._writer.delta(choice, happened, self._aligned(choice, happened))
        if isinstance(happened, Finished):
            aligner = self._aligners.get(choice)
            return self._writer.finished(choice, happened, aligner.finish() if aligner else [])
        return self._writer.progress(happened) if isinstance(happened, Prefill) else b""

    def _aligned(self, choice: int, delta: Delta) -> list[Logprob]:
        """The log-probabilities of the tokens that the delta's text shows."""
        aligner = self._aligners.get(choice)
        if aligner is None:
            if not delta.logprobs:
                return []
            aligner = self._aligners[choice] = Aligner()
        return aligner.feed(delta.text, [self._pieces.logprob(entry) for entry in delta.logprobs])


class Comments:
    """Comment lines that keep an idle connection open and tell why it is idle."""

    def __init__(self, flight: Flight, ping_s: float) -> None:
        self._flight = flight
        self._ping_s = ping_s
        self._last = time.monotonic()
        self._said = 0

    @property
    def timeout(self) -> float:
        """How long to wait for the engine before looking again."""
        left = max(0.01, self._ping_s - (time.monotonic() - self._last))
        return left if self._flight.started else min(LOOK_S, left)

    def written(self) -> None:
        """Something else went out."""
        self._last = time.monotonic()

    def due(self) -> bytes:
        """A comment when the queue moved or nothing went out for long."""
        now = time.monotonic()
        position = 0 if self._flight.started else self._flight.position
        moved = position != self._said
        if not moved and now - self._last < self._ping_s:
            return b""
        self._last, self._said = now, position
        if position:
            return b": queue position %d\n\n" % position
        return b": working\n\n" if self._flight.started else b": next in the queue\n\n"
