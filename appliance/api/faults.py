"""Every fault as one JSON error object, whoever raised it."""

from collections.abc import Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from appliance.api.nearest import nearest
from appliance.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Unavailable,
)

_encode = msgspec.json.Encoder().encode


class Internal(ApiError):
    """A bug of ours. The log has the rest under the same id."""

    def __init__(self, trace_id: str) -> None:
        super().__init__(
            f"the box failed on this request; its log tells why under the id {trace_id}",
            code="internal_error",
            extra={"trace_id": trace_id},
        )


class Cancelled(ApiError):
    """An operator ended the request. Not to be tried again by itself."""

    status = 499
    type = "cancelled_error"

    def __init__(self) -> None:
        super().__init__(
            "the request was cancelled by the operator of the box",
            code="cancelled",
            headers={"x-should-retry": "false"},
        )


class Conflict(ApiError):
    """What is asked for does not go together with how things stand."""

    status = 409
    type = "conflict_error"


class TooSlow(BadRequest):
    """The client stopped sending in the middle of its body."""

    status = 408

    def __init__(self) -> None:
        super().__init__(
            "the body did not arrive in time", code="timeout", headers={"Connection": "close"}
        )


class TooManyConnections(Unavailable):
    """All that limits.connections or limits.connections_per_host allow are open."""

    def __init__(self) -> None:
        super().__init__(
            "the box has as many open connections as it allows: close some, or raise "
            "limits.connections or limits.connections_per_host",
            code="too_many_connections",
        )
        self.headers["Connection"] = "close"


class HeadersTooLarge(BadRequest):
    """The header lines are more than limits.header_bytes allows."""

    status = 431

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the header lines have more than {limit} bytes, the most that limits.header_bytes "
            "allows",
            code="headers_too_large",
            headers={"Connection": "close"},
        )


class Misdirected(ApiError):
    """The request was meant for another host."""

    status = 421
    type = "invalid_request_error"


def encode_fault(fault: ApiError) -> bytes:
    """The error object as JSON."""
    return _encode(fault.body())


def answer_fault(fault: ApiError) -> Response:
    """The fault as a response."""
    return Response(
        encode_fault(fault), fault.status, dict(fault.headers), media_type="application/json"
    )


async def on_fault(_: Request, fault: Exception) -> Response:
    """Handler for `ApiError`."""
    assert isinstance(fault, ApiError)
    return answer_fault(fault)


def _no_route(request: Request, path: str) -> str:
    routes = (route.path for route in request.app.routes if isinstance(route, Route))
    meant = nearest(path, {one for one in routes if "{" not in one})
    return f"no route {path!r}: " + (
        f"did you mean {meant!r}? GET /openapi.json lists all"
        if meant
        else "GET /openapi.json lists them all"
    )


async def on_http_exception(request: Request, fault: Exception) -> Response:
    """Handler for what the router raises: no such path, no such method."""
    assert isinstance(fault, HTTPException)
    path = request.scope["path"][:200]
    if fault.status_code == 404:
        return answer_fault(NotFound(_no_route(request, path), code="not_found"))
    if fault.status_code == 405:
        allowed = dict(fault.headers or {})
        methods = allowed.get("Allow", "another method")
        return answer_fault(
            MethodNotAllowed(
                f"{request.method} does not work on {path!r}: use {methods}",
                code="method_not_allowed",
                headers=allowed,
            )
        )
    known: dict[int, Callable[[str], ApiError]] = {400: BadRequest, 403: Forbidden}
    return answer_fault(known.get(fault.status_code, BadRequest)(str(fault.detail)))
