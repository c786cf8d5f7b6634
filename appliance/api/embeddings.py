"""POST /v1/embeddings: the packaged sentence encoder."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.bodies import ignored_header, read_shape
from appliance.api.encoding import BATCH, EncoderRoom, EncoderUsage, encoded, too_long
from appliance.api.replies import json_response
from appliance.api.text_shapes import EmbeddingRequest, Prompt, prompts_of
from appliance.api.trace import trace_of
from appliance.errors import BadRequest
from appliance.forecast import encoder
from appliance.forecast.encoder import TextTooLongError, Vector


class Embedding(msgspec.Struct):
    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class Embeddings(msgspec.Struct):
    data: list[Embedding]
    model: str
    usage: EncoderUsage
    object: Literal["list"] = "list"


async def embeddings(request: Request) -> Response:
    """Unit vectors of 384 numbers."""
    trace = trace_of(request)
    shape, ignored = await read_shape(request, EmbeddingRequest)
    trace.user = shape.user or ""
    texts = _texts(shape.input)

    async def embed(room: EncoderRoom) -> list[Vector]:
        try:
            return await room.embed(texts, request)
        except TextTooLongError as error:
            raise too_long(f"input {error.index}", error.size, "input") from None

    vectors = await encoded(request, shape.model, embed)
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
        usage=EncoderUsage(tokens, tokens),
    )
    return json_response(answer, headers)


def _texts(given: Prompt) -> list[str | list[int]]:
    texts = prompts_of(given)
    for index, text in enumerate(texts):
        if not text:
            raise BadRequest(f"input {index} is empty", param="input", code="invalid_value")
        if isinstance(text, list) and not _encoders_own(text):
            raise BadRequest(
                f"input {index} holds token ids of another model: the encoder has its own "
                f"vocabulary, and its texts begin with {encoder.CLS} and end with {encoder.SEP}. "
                "Send text instead (LangChain: check_embedding_ctx_length=False)",
                param="input",
                code="invalid_value",
            )
    return texts


def _encoders_own(ids: Sequence[int]) -> bool:
    """Clients that count with OpenAI's tokenizer send its ids by themselves; most of them are ids
    here too, of quite other words."""
    return (ids[0], ids[-1]) == (encoder.CLS, encoder.SEP) and max(ids) < encoder.VOCABULARY


def _written(vector: Vector, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(value) for value in vector]
