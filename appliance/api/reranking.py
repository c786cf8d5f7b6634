"""POST /v1/rerank: documents in the order in which the sentence encoder finds them near a query.

A document longer than the encoder reads is looked at in windows, and counts by its nearest one
(MaxP of Dai and Callan, "Deeper Text Understanding for IR with Contextual Neural Language
Modeling", SIGIR 2019)."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.bodies import ignored_header, read_shape
from appliance.api.encoding import EncoderRoom, EncoderUsage, encoded, too_long
from appliance.api.replies import json_response
from appliance.api.text_shapes import INPUTS, RerankRequest
from appliance.api.trace import trace_of
from appliance.errors import BadRequest
from appliance.forecast import encoder
from appliance.forecast.encoder import MAX_CHARACTERS, MAX_TOKENS, Vector

WINDOW = MAX_TOKENS - 2
"""Tokens of a document that are read at once, beside [CLS] and [SEP]."""
STRIDE = WINDOW * 3 // 4
"""From one window to the next: a quarter is read twice, so that few sentences are seen in halves
alone."""


class Text(msgspec.Struct):
    text: str


class Ranked(msgspec.Struct, omit_defaults=True):
    index: int
    relevance_score: float
    document: Text | None = None


class Ranking(msgspec.Struct):
    model: str
    results: list[Ranked]
    usage: EncoderUsage
    object: str = "list"


class Scored(msgspec.Struct, omit_defaults=True):
    """As text-embeddings-inference tells it."""

    index: int
    score: float
    text: str | None = None


async def rerank(request: Request) -> Response:
    """Documents by their cosine with the query, the nearest first."""
    trace = trace_of(request)
    shape, ignored = await read_shape(request, RerankRequest)
    trace.user = shape.user or ""
    field, texts = shape.entries
    _check(field, texts)
    if len(shape.query) > MAX_CHARACTERS:
        raise too_long("the query", f"{len(shape.query)} characters", "query")

    async def scored(room: EncoderRoom) -> list[float]:
        query, *documents = await room.tokens([shape.query, *texts], request)
        if len(query) > MAX_TOKENS:
            raise too_long("the query", f"{len(query)} tokens", "query")
        rows = [windows(ids[1:-1], shape.max_tokens_per_doc) for ids in documents]
        if (count := sum(map(len, rows))) > INPUTS:
            raise BadRequest(
                f"{field} make {count} windows of {WINDOW} tokens, and {INPUTS} is the most that "
                "is read for one request: send fewer, or set max_tokens_per_doc",
                param=field,
                code="context_length_exceeded",
            )
        first, *others = await room.embed([query, *(ids for row in rows for ids in row)], request)
        return nearest(first, others, [len(row) for row in rows])

    scores = await encoded(request, shape.model, scored)
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: shape.top_n]
    headers = ignored_header(ignored)
    if field == "texts":
        told = texts if shape.return_text else [None] * len(texts)
        return json_response([Scored(i, scores[i], told[i]) for i in order], headers)
    results = [
        Ranked(i, scores[i], Text(texts[i]) if shape.return_documents else None) for i in order
    ]
    usage = EncoderUsage(trace.prompt_tokens, trace.prompt_tokens)
    return json_response(Ranking(encoder.NAME, results, usage), headers)


def windows(ids: Sequence[int], most: int | None = None) -> list[list[int]]:
    """A document's tokens as the encoder reads them, at least one window, the last one whole too
    where there are several. `most`: tokens of it that are looked at."""
    seen = ids[:most]
    last = max(len(seen) - WINDOW, 0)
    starts = [*range(0, last, STRIDE), last]
    return [list(seen[start : start + WINDOW]) for start in starts]


def nearest(query: Vector, vectors: Sequence[Vector], counts: Sequence[int]) -> list[float]:
    """The largest cosine of each document's vectors with the query's; all are of length 1.
    `counts`: how many of `vectors`, which stand one document after the other, each has."""
    cosines = np.clip(np.stack(vectors) @ query, -1, 1)
    ends = accumulate(counts, initial=0)
    return [float(cosines[start:end].max()) for start, end in pairwise(ends)]


def _check(field: str, texts: Sequence[str]) -> None:
    for index, text in enumerate(texts):
        if not text:
            raise BadRequest(f"{field}[{index}] is empty", param=field, code="invalid_value")
        if len(text) > MAX_CHARACTERS:
            raise too_long(f"{field}[{index}]", f"{len(text)} characters", field)
