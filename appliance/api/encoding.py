"""The one thread in which the sentence encoder works, and what each request that it answers takes:
a place, its quota, and a row in the ledger before the client hears the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from starlette.requests import Request

from appliance.api.boarding import caller_of, pass_of
from appliance.api.box import Box, box_of
from appliance.api.trace import ClientGone, trace_of
from appliance.errors import BadRequest, NotFound, Overloaded, Unavailable
from appliance.forecast import encoder
from appliance.forecast.encoder import Encoder, EncoderError, TextTooLongError, Vector
from appliance.ledger.books import unavailable
from appliance.ledger.errors import LedgerError

BATCH = 16
"""Texts between two looks at whether the client is still there, and other requests' turns."""
WAITING = 64
"""Requests for the encoder at a time; beyond it 429."""

T = TypeVar("T")
R = TypeVar("R")
Input = str | list[int]
"""A text, or the encoder's own token ids."""


class EncoderUsage(msgspec.Struct):
    """What the encoder read, as clients see it."""

    prompt_tokens: int
    total_tokens: int


class EncoderRoom:
    """The one thread in which the encoder works."""

    def __init__(self, of: Encoder) -> None:
        self._encoder = of
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._inside = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """For one request. Raises Overloaded when too many have one."""
        if self._inside >= WAITING:
            raise Overloaded(f"{WAITING} requests wait for the encoder already", retry_after=1)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def embed(self, inputs: Sequence[Input], request: Request) -> list[Vector]:
        """All vectors. Counts tokens in the trace. Raises EncoderError, TextTooLongError."""
        trace, vectors = trace_of(request), list[Vector]()
        try:
            async for done in self._batches(self._encoder.embed, inputs, request):
                vectors += done.vectors
                trace.prompt_tokens += done.tokens
        except TextTooLongError as error:
            raise TextTooLongError(len(vectors) + error.index, error.size) from None
        return vectors

    async def tokens(self, texts: Sequence[str], request: Request) -> list[list[int]]:
        """The encoder's own ids of each text. Raises EncoderError."""
        told = self._batches(self._encoder.tokens_of, texts, request)
        return [ids async for batch in told for ids in batch]

    async def _batches(
        self, work: Callable[[Sequence[T]], R], given: Sequence[T], request: Request
    ) -> AsyncIterator[R]:
        """Other requests take turns between batches."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(given), BATCH):
            yield await loop.run_in_executor(self._threads, work, given[start : start + BATCH])
            if await request.is_disconnected():
                raise ClientGone

    def close(self) -> None:
        """Lets the thread end after its batch."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def encoded(
    request: Request, model: str | None, make: Callable[[EncoderRoom], Awaitable[R]]
) -> R:
    """What `make` makes of the encoder's vectors, within the caller's quota, and on the account by
    the time it is there. Raises ApiError."""
    box, trace = box_of(request), trace_of(request)
    _check_model(box, model)
    if not box.ledger.snapshot.ok:
        raise unavailable(LedgerError(box.ledger.snapshot.problem))
    room: EncoderRoom = request.app.state.encoder_room
    quota = pass_of(trace)
    quota.enter([0], None)
    try:
        with room.place():
            found = await make(room)
        quota.charge(trace.prompt_tokens)
    except EncoderError as error:
        raise Unavailable(str(error), code="encoder_unavailable", retry_after=60) from error
    finally:
        quota.cut(0)
    await box.books.computed(
        caller_of(trace, trace.route), model=encoder.NAME, tokens=trace.prompt_tokens
    )
    return found


def _check_model(box: Box, name: str | None) -> None:
    if name is None or name == "default" or name in encoder.ALIASES:
        return
    if name not in box.config.model.aliases:
        raise NotFound(
            f"no model {name[:100]!r} for embeddings here: use 'default' or {encoder.NAME!r}",
            param="model",
            code="model_not_found",
        )


def too_long(what: str, size: str, param: str) -> BadRequest:
    """What is more than the encoder reads."""
    return BadRequest(
        f"{what} has {size}, and the encoder reads {encoder.MAX_TOKENS} tokens: shorten it "
        "or split it into parts",
        param=param,
        code="context_length_exceeded",
        extra={"n_ctx": encoder.MAX_TOKENS},
    )
