"""POST /tokenize, /detokenize, /apply-template: what the model will be given."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.bodies import ignored_header, read_shape
from appliance.api.box import box_of
from appliance.api.chat import check_size, job_of
from appliance.api.chat_shapes import RenderRequest
from appliance.api.intake import check_tokens, resolve_model
from appliance.api.replies import json_response
from appliance.api.text_shapes import DetokenizeRequest, TokenizeRequest
from appliance.api.trace import trace_of
from appliance.prepare.messages import Piece, TokenizeJob

MANY = 16_384
"""Tokens beyond which an answer is written on another thread: others' streams go on."""


async def tokenize(request: Request) -> Response:
    """The ids of a text, with their texts when asked."""
    box = box_of(request)
    shape, ignored = await read_shape(request, TokenizeRequest)
    resolve_model(box, shape.model)
    pieces = await box.preparer.tokenize(
        TokenizeJob(
            content=shape.content,
            add_special=bool(shape.add_special),
            parse_special=shape.parse_special is not False,
        ),
        trace_of(request).key_id,
    )
    told = partial(_told, pieces, bool(shape.with_pieces), ignored_header(ignored))
    return await asyncio.to_thread(told) if len(pieces) > MANY else told()


def _told(pieces: Sequence[Piece], whole: bool, headers: Mapping[str, str]) -> Response:
    tokens = _with_pieces(pieces) if whole else [piece.id for piece in pieces]
    return json_response({"tokens": tokens}, headers)


def _with_pieces(pieces: Sequence[Piece]) -> list[dict[str, object]]:
    return [{"id": piece.id, "piece": _readable(piece.piece)} for piece in pieces]


def _readable(piece: bytes) -> str | list[int]:
    """As llama-server: a list of bytes where they are no whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


async def detokenize(request: Request) -> Response:
    """The text of ids."""
    box = box_of(request)
    shape, ignored = await read_shape(request, DetokenizeRequest)
    resolve_model(box, shape.model)
    check_tokens(box, shape.tokens, "tokens")
    key = trace_of(request).key_id
    text = await box.preparer.detokenize(shape.tokens, key) if shape.tokens else ""
    return json_response({"content": text}, ignored_header(ignored))


async def apply_template(request: Request) -> Response:
    """The prompt of a chat, without generating."""
    box = box_of(request)
    shape, ignored = await read_shape(request, RenderRequest)
    resolve_model(box, shape.model)
    check_size(box, shape)
    prompt = await box.preparer.render(job_of(shape), trace_of(request).key_id)
    return json_response({"prompt": prompt}, ignored_header(ignored))
