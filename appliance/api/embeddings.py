"""POST /v1/embeddings: the packaged sentence encoder."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.boarding import caller_of, pass_of
from appliance.api.bodies import ignored_header, read_shape
from appliance.api.box import Box, box_of
from appliance.api.replies import json_response
from appliance.api.text_shapes import EmbeddingRequest, Prompt, prompts_of
from appliance.api.trace import ClientGone, Trace, trace_of
from appliance.errors import BadRequest, NotFound, Overloaded, Unavailable
from appliance.forecast import encoder
from appliance.forecast.encoder import Encoder, EncoderError, TextTooLongError, Vector
from appliance.ledger.books import unavailable
from appliance.ledger.errors import LedgerError

BATCH = 16
"""Texts between two looks at whether the client is still there, and other requests' turns."""
WAITING = 64
"""Embedding requests at a time; beyond it 429."""


class EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


class Embedding(msgspec.Struct):
    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class Embeddings(msgspec.Struct):
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


class EncoderRoom:
    """The one thread in which the encoder works."""

    def __init__(self, of: Encoder) -> None:
        self._encoder = of
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._inside = 0

    async def embed(self, texts: Sequence[str | list[int]], request: Request) -> list[Vector]:
        """All vectors; other requests take turns between batches. Counts tokens in the trace."""
        if self._inside >= WAITING:
            raise Overloaded(f"{WAITING} embedding requests are waiting already", retry_after=1)
        self._inside += 1
        try:
            return await self._batches(texts, request, trace_of(request))
        finally:
            self._inside -= 1

    async def _batches(
        self, texts: Sequence[str | list[int]], request: Request, trace: Trace
    ) -> list[Vector]:
        loop = asyncio.get_running_loop()
        vectors: list[Vector] = []
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            try:
                done = await loop.run_in_executor(self._threads, self._encoder.embed, batch)
            except TextTooLongError as error:
                raise _too_long(start + error.index, error.size) from None
            vectors += done.vectors
            trace.prompt_tokens += done.tokens
            if await request.is_disconnected():
                raise ClientGone
        return vectors

    def close(self) -> None:
        """Lets the thread end after its batch."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _too_long(index: int, size: str) -> BadRequest:
    return BadRequest(
        f"input {index} has {size}, and the encoder reads {encoder.MAX_TOKENS} tokens: shorten it "
        "or split it into parts",
        param="input",
        code="context_length_exceeded",
        extra={"n_ctx": encoder.MAX_TOKENS},
    )


async def embeddings(request: Request) -> Response:
    """Unit vectors of 384 numbers."""
    box, trace = box_of(request), trace_of(request)
    shape, ignored = await read_shape(request, EmbeddingRequest)
    _check_model(box, shape.model)
    trace.user = shape.user or ""
    texts = _texts(shape.input)
    if not box.ledger.snapshot.ok:
        raise unavailable(LedgerError(box.ledger.snapshot.problem))
    room: EncoderRoom = request.app.state.encoder_room
    quota = pass_of(trace)
    quota.enter([0], None)
    try:
        vectors = await room.embed(texts, request)
        quota.charge(trace.prompt_tokens)
    except EncoderError as error:
        raise Unavailable(str(error), code="encoder_unavailable", retry_after=60) from error
    finally:
        quota.cut(0)
    await box.books.computed(
        caller_of(trace, trace.route), model=encoder.NAME, tokens=trace.prompt_tokens
    )
    as_text, tokens = shape.encoding_format == "base64", trace.prompt_tokens
    told = partial(_told, vectors, as_text, tokens, ignored_header(ignored))
    # Hundreds of thousands of numbers take long to write: others' streams go on meanwhile.
    return await asyncio.to_thread(told) if len(vectors) > BATCH else told()


def _told(
    vectors: Sequence[Vector], as_text: bool, tokens: int, headers: Mapping[str, str]
) -> Response:
    answer = Embeddings(
        data=[Embedding(i, _written(vector, as_text)) for i, vector in enumerate(vectors)],
        model=encoder.NAME,
        usage=EmbeddingUsage(tokens, tokens),
    )
    return json_response(answer, headers)


def _check_model(box: Box, name: str | None) -> None:
    if name is None or name == "default" or name in encoder.ALIASES:
        return
    if name not in box.config.model.aliases:
        raise NotFound(
            f"no model {name[:100]!r} for embeddings here: use 'default' or {encoder.NAME!r}",
            param="model",
            code="model_not_found",
        )


def _texts(given: Prompt) -> list[str | list[int]]:
    texts = prompts_of(given)
    for index, text in enumerate(texts):
        if not text:
            raise BadRequest(f"input {index} is empty", param="input", code="invalid_value")
        if isinstance(text, list) and max(text) >= encoder.VOCABULARY:
            raise BadRequest(
                f"input {index} holds token {max(text)}; the encoder has its own vocabulary of "
                f"{encoder.VOCABULARY} tokens: send text instead",
                param="input",
                code="invalid_value",
            )
    return texts


def _written(vector: Vector, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(value) for value in vector]
