"""Small things that every route answers with."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.answers import encode
from appliance.api.box import box_of
from appliance.api.logprobs import Pieces


def json_response(
    body: Any, headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """`body`, a struct or plain data, as JSON."""
    return Response(encode(body), status, headers, media_type="application/json")


def pieces_of(request: Request) -> Pieces:
    """The texts of the model's tokens."""
    return box_of(request).pieces
