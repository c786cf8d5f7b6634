"""The OpenAPI description of the routes: true to what they take and refuse."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from appliance.api.answers import encode
from appliance.api.parameters import parameters_of
from appliance.api.routes import ROUTES, Route

ABOUT = (
    "An on-prem LLM box. Send keys as `Authorization: Bearer …` or `X-Api-Key: …`; on the box "
    "itself, inference needs none while none exist."
)

_REF = "#/components/schemas/{model}"


class ErrorObject(BaseModel):
    """What went wrong. Some types have further members."""

    message: str
    type: str
    param: str | None
    code: str | int


class ErrorBody(BaseModel):
    """Every answer other than 2xx."""

    error: ErrorObject


_FAULTS = {
    400: "The request is wrong; `param` names the field.",
    401: "No key, or an unknown one.",
    403: "The key lacks the scope, or the web origin is not allowed.",
    404: "No such model, request or route.",
    409: "It does not go together with how things stand: another digest, a name that is taken.",
    413: "The body is larger than limits.body_bytes.",
    421: "The box is not known under this host name.",
    429: "The queue is full; Retry-After tells when to come again.",
    499: "An operator cancelled the request.",
    500: "The engine failed with the request in flight, or a bug of ours.",
    503: "Draining, stopping, or the engine is down; Retry-After tells when to come again.",
    408: "The request's deadline passed.",
}


def _codes(route: Route) -> list[int]:
    if route.need == "public":
        return [421]
    codes = [401, 403, 421, 500]
    if route.body is not None:
        codes += [400, 413]
    if "{" in route.path or (route.body is not None and "model" in route.body.model_fields):
        codes.append(404)
    if route.tag in ("Audit", "Accounts", "Ledger"):
        codes += [400, 409, 503]
    if route.generates:
        codes += [408, 429, 499, 503]
    elif route.need == "infer" or route.path in ("/readyz", "/slots"):
        codes += [429, 503]
    elif route.path in ("/events", "/admin/log"):
        codes += [400, 503]
    return sorted(set(codes))


def described(route: Route) -> dict[str, Any]:
    """Arguments for FastAPI's `add_api_route`."""
    extra: dict[str, Any] = {"parameters": parameters_of(route)}
    if route.body is not None:
        schema = _taken((route.body, *route.or_bodies))
        extra["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": schema}},
        }
    return {
        "summary": route.summary,
        "description": (route.handler.__doc__ or "").strip(),
        "tags": [route.tag],
        "operation_id": route.handler.__name__,
        "responses": {200: _success(route), **{code: _fault(code) for code in _codes(route)}},
        "openapi_extra": extra,
    }


def _taken(bodies: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """What the body must look like."""
    kinds = [{"$ref": _REF.format(model=kind.__name__)} for kind in bodies]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _success(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {route.media: {"schema": {}}}
    if route.generates and route.body is not None and "stream" in route.body.model_fields:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": "Done.", "content": content}


def _fault(code: int) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model="ErrorBody")}
    return {"description": _FAULTS[code], "content": {"application/json": {"schema": schema}}}


def component_schemas() -> dict[str, Any]:
    """The schemas that the routes refer to."""
    shapes = {route.body for route in ROUTES if route.body is not None} | {ErrorBody}
    ordered = sorted(shapes, key=lambda shape: shape.__name__)
    _, found = models_json_schema([(shape, "validation") for shape in ordered], ref_template=_REF)
    definitions = found["$defs"]
    assert isinstance(definitions, dict)
    return definitions


def document(app: FastAPI) -> bytes:
    """The OpenAPI document as JSON."""
    found: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes
    )
    components = found.setdefault("components", {})
    components["schemas"] = {**components.get("schemas", {}), **component_schemas()}
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    }
    found["security"] = [{"bearer": []}, {"key": []}, {}]
    return encode(found)
