"""A request's body: read under a limit, decoded, checked, and turned into a request shape.

Everything that can be wrong with it is one 400 (413 for its size) that names the field.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError
from starlette.requests import Request

from appliance.alike import alike
from appliance.api.box import Box, box_of
from appliance.api.faults import TooSlow
from appliance.api.shapes import Shape
from appliance.api.trace import ClientGone
from appliance.errors import BadRequest, TooLarge

ShapeT = TypeVar("ShapeT", bound=Shape)
MadeT = TypeVar("MadeT")

IDLE_S = 30.0
"""Seconds without a byte of a body that has not ended."""
OFF_LOOP_BYTES = 256 * 1024
"""Larger bodies are decoded in a thread, so that other clients' streams go on."""
DISCARD_S = 2.0
"""A client that is still sending gets this long to see the 413 instead of a reset."""
OBJECT_FIELDS = 4096
"""Of one JSON object. Each unknown one would become an error to build and to sort."""
REPORT_ROUNDS = 16
"""A list stops at its first unknown field; more messages than this with one are an error."""
NAME_CHARS = 64
"""Of a client's field name in our messages."""

_STARTS = {
    "Input should be ": "must be ",
    "Input ": "must be ",
    "List should have ": "must have ",
    "String should have ": "must have ",
    "Dictionary should have ": "must have ",
}
_JSON = {"True": "true", "False": "false", "None": "null"}
_PYTHON = re.compile(r"\b(?:True|False|None)\b")

_decode = msgspec.json.Decoder().decode


async def read_body(request: Request, limit: int, within_s: float) -> bytes:
    """The body, at most `limit` bytes of it. Raises TooLarge, TooSlow, ClientGone."""
    try:
        async with asyncio.timeout(within_s):
            return await _read(request, limit)
    except TimeoutError:
        raise TooSlow from None


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise await _too_large(request, limit)
    parts: list[bytes] = []
    size = 0
    while True:
        part, more = await _receive(request)
        size += len(part)
        if size > limit:
            raise await _too_large(request, limit)
        parts.append(part)
        if not more:
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _receive(request: Request) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(IDLE_S):
            message = await request.receive()
    except TimeoutError:
        raise TooSlow from None
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def _too_large(request: Request, limit: int) -> TooLarge:
    """Reads on for a moment without keeping anything: a connection closed on unread data is
    reset, and the client would never see why."""
    if request.headers.get("expect", "").lower() != "100-continue":
        try:
            async with asyncio.timeout(DISCARD_S):
                await _discard(request, limit)
        except TimeoutError:
            pass
    return TooLarge(
        f"the body is larger than {limit} bytes, the most that limits.body_bytes allows",
        code="body_too_large",
        headers={"Connection": "close"},
    )


async def _discard(request: Request, most: int) -> None:
    more = True
    while more and most > 0:
        part, more = await _receive(request)
        most -= len(part)


def decode(body: bytes, depth: int, *, bare: str = "") -> dict[str, Any]:
    """The body as a JSON object nested at most `depth` deep; a list, where `bare` names one, as the
    object's member of that name. Raises BadRequest."""
    try:
        data = _decode(body)
    except RecursionError:
        raise _too_deep(depth) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no valid JSON: {error}", code="invalid_json") from None
    if bare and isinstance(data, list):
        data = {bare: data}
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object", code="invalid_json")
    if body.count(b"[") + body.count(b"{") > depth or body.count(b":") > OBJECT_FIELDS:
        _check_nesting(data, depth)
    return data


def _too_deep(depth: int) -> BadRequest:
    return BadRequest(
        f"the body is nested more than {depth} deep, the most that limits.json_depth allows",
        code="too_deep",
    )


def _check_nesting(data: object, depth: int) -> None:
    """Raises BadRequest for containers nested too deep, and for objects with too many fields."""
    level: list[object] = [data]
    for _ in range(depth):
        if any(isinstance(outer, dict) and len(outer) > OBJECT_FIELDS for outer in level):
            raise BadRequest(
                f"the body holds an object of more than {OBJECT_FIELDS} fields", code="too_large"
            )
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise _too_deep(depth)


def _inner(outer: object) -> Iterable[object]:
    values = outer.values() if isinstance(outer, dict) else outer
    assert isinstance(values, Iterable)
    return (value for value in values if isinstance(value, dict | list))


async def read_shape(request: Request, kind: type[ShapeT]) -> tuple[ShapeT, tuple[str, ...]]:
    """The body as a `kind`, and the names of the fields that have no effect."""
    return await read_as(request, partial(_shape, box_of(request), kind))


async def read_as(request: Request, make: Callable[[bytes], MadeT]) -> MadeT:
    """What `make` makes of the body: on another thread, where that may take long."""
    limits = box_of(request).config.limits
    body = await read_body(request, limits.body_bytes, limits.body_s)
    return await asyncio.to_thread(make, body) if len(body) > OFF_LOOP_BYTES else make(body)


def _shape(box: Box, kind: type[ShapeT], body: bytes) -> tuple[ShapeT, tuple[str, ...]]:
    data = decode(body, box.config.limits.json_depth)
    return parse(kind, data, report=box.config.api.unknown_fields == "report")


def parse(
    kind: type[ShapeT], data: dict[str, Any], *, report: bool
) -> tuple[ShapeT, tuple[str, ...]]:
    """`data` as a `kind`, and the fields without effect. Raises BadRequest.

    With `report`, unknown fields are among those (and are taken out of `data`) instead of being an
    error.
    """
    unknown: list[str] = []
    for _ in range(REPORT_ROUNDS if report else 0):
        found = _faults(kind, data)
        strange = {fault.path: fault.steps for fault in found if fault.unknown}
        if not strange or any(fault.of_value(strange) for fault in found):
            break
        for steps in strange.values():
            _remove(data, steps)
        unknown += strange
    try:
        shape = kind.model_validate(data)
    except ValidationError as error:
        raise _bad_field(kind, _located(data, error)) from None
    return shape, (*unknown, *shape.without_effect())


def _faults(kind: type[Shape], data: dict[str, Any]) -> list["_Fault"]:
    try:
        kind.model_validate(data)
    except ValidationError as error:
        return _located(data, error)
    return []


def _located(data: dict[str, Any], error: ValidationError) -> list["_Fault"]:
    return [_Fault(data, raw) for raw in error.errors(include_url=False, include_context=False)]


_NOWHERE = object()


class _Fault:
    """One of pydantic's complaints, located in the client's own terms."""

    def __init__(self, data: Any, raw: Any) -> None:
        self.unknown: bool = raw["type"] == "extra_forbidden"
        self.reason = _reason(raw["msg"])
        self.steps = _steps(data, raw["loc"], missing=raw["type"] == "missing")
        self.path = ".".join(str(step)[:NAME_CHARS] for step in self.steps)

    def of_value(self, unknown: Iterable[str]) -> bool:
        """Whether a value is wrong: neither an unknown field, nor the other side of a union that
        an unknown field made pydantic try."""
        return not self.unknown and not any(name.startswith(self.path + ".") for name in unknown)


def _steps(data: Any, location: Sequence[int | str], *, missing: bool) -> list[int | str]:
    """The location without the names of union members, which pydantic mixes in."""
    steps: list[int | str] = []
    for i, step in enumerate(location):
        inside = _at(data, step)
        if inside is not _NOWHERE:
            data = inside
        elif not (missing and i == len(location) - 1):
            continue
        steps.append(step)
    return steps


def _at(data: Any, step: int | str) -> Any:
    if isinstance(data, dict):
        return data.get(step, _NOWHERE)
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return _NOWHERE


def _remove(data: dict[str, Any], steps: Sequence[int | str]) -> None:
    holder: Any = data
    for step in steps[:-1]:
        holder = holder[step]
    del holder[steps[-1]]


def _bad_field(kind: type[Shape], found: Sequence[_Fault]) -> BadRequest:
    """One error for the first faulty field; what its alternatives would take is joined."""
    for fault in found:
        if fault.unknown:
            return _unknown_field(kind, fault)
    first = found[0].path
    path = max((f.path for f in found if f.path.startswith(first)), key=len)
    reasons = dict.fromkeys(fault.reason for fault in found if fault.path == path)
    said = " or ".join(list(reasons)[:4])
    message = f"{path}: {said}" if path else said
    return BadRequest(message[:500], param=path or None, code="invalid_value")


def _reason(message: str) -> str:
    """In words of JSON, not of Python."""
    if message.startswith("Value error, "):
        return message.removeprefix("Value error, ")
    said = _PYTHON.sub(lambda found: _JSON[found[0]], message).replace(" after validation", "")
    for start, ours in _STARTS.items():
        if said.startswith(start):
            return ours + said.removeprefix(start)
    return said[0].lower() + said[1:]


def _unknown_field(kind: type[Shape], fault: _Fault) -> BadRequest:
    known = kind.names() if len(fault.steps) == 1 else kind.inner_names()
    near = alike(str(fault.steps[-1])[:NAME_CHARS], known)
    hint = f"; did you mean {near!r}?" if near else ""
    return BadRequest(
        f'unknown field {fault.path!r}{hint} (with api.unknown_fields = "report" the box accepts '
        "such fields and lists them in X-Ignored-Params)",
        param=fault.path,
        code="unknown_field",
    )


def ignored_header(names: Iterable[str]) -> dict[str, str]:
    """`X-Ignored-Params`, or nothing when every field had its effect."""
    shown = [
        "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "?" for c in name)
        for name in names
    ]
    return {"X-Ignored-Params": ", ".join(shown)[:1024]} if shown else {}
