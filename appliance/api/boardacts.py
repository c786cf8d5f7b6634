"""What an operator may have the board do: wait, drive an output, take new firmware. Each is an
entry of the ledger, made once the board has agreed."""

import asyncio
import base64
import binascii
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.admin import act
from appliance.api.board_shapes import InhibitRequest, OutputRequest, UpdateRequest
from appliance.api.bodies import decode, parse, read_body
from appliance.api.box import box_of
from appliance.api.faults import Conflict
from appliance.api.ports import BoardKeeper
from appliance.api.replies import json_response
from appliance.api.shapes import Shape
from appliance.board.heartbeat import REASONS
from appliance.board.images import checked, image_named
from appliance.board.orders import Outcome
from appliance.errors import BadRequest, NotFound, Unavailable
from firmware_bridge import messages as m
from firmware_bridge.commands import Inhibit, Refusal
from firmware_bridge.events import Failed
from firmware_bridge.image import ImageError
from firmware_bridge.update import Image

ShapeT = TypeVar("ShapeT", bound=Shape)

ANSWER_S = 5.0
"""The line repeats a command for about two seconds before it gives up."""


async def inhibit(request: Request) -> Response:
    """Keep the watchdog from acting for some minutes of planned work. It ends by itself."""
    body, shape = await _shape(request, InhibitRequest)
    keeper = _keeper(request)

    async def do() -> Response:
        order = Inhibit(60 * shape.minutes, REASONS["operator"])
        await _obeyed(keeper.ask(order), "it grants this once between two heartbeats: try again")
        what = "inhibited" if shape.minutes else "watching"
        detail = {"minutes": shape.minutes, "reason": shape.reason}
        return await _done(request, "board.inhibit", what, detail=detail)

    return await box_of(request).answers.once(request, body, do)


async def output(request: Request) -> Response:
    """Drive an output for so long; then, or with a null value at once, it is back at its safe
    value."""
    body, shape = await _shape(request, OutputRequest)
    keeper, name = _keeper(request), str(request.path_params["name"])

    async def do() -> Response:
        seconds = shape.seconds if shape.value is not None else 0.0
        try:
            future = keeper.drive(name, shape.value, seconds)
        except ValueError as bounds:
            raise BadRequest(
                f"value: the output {name} takes {bounds}", param="value", code="invalid_value"
            ) from None
        if future is None:
            raise NotFound(
                f"the board has no output {name[:100]!r}: GET /admin/board lists them",
                param="name",
                code="output_not_found",
            )
        await _obeyed(future, "")
        detail = {"value": shape.value, "seconds": seconds}
        return await _done(request, "board.output", "driven", target=name, detail=detail)

    return await box_of(request).answers.once(request, body, do)


async def update(request: Request) -> Response:
    """Bring new firmware onto the board. The answer comes at once; `update` of `GET /admin/board`
    tells how far it is, and how it ended."""
    body, shape = await _shape(request, UpdateRequest)
    keeper = _keeper(request)

    async def do() -> Response:
        image = await run_in_threadpool(_image, request, shape)
        if (refused := keeper.update(image)) is not None:
            raise Conflict(refused.reason, code="update_under_way")
        detail = {"bytes": len(image.data)}
        return await _done(
            request, "board.update", "updating", target=image.name, detail=detail, status=202
        )

    return await box_of(request).answers.once(request, body, do)


def _image(request: Request, shape: UpdateRequest) -> Image:
    state_dir = box_of(request).config.server.state_dir
    try:
        if shape.name is not None:
            return image_named(shape.name, state_dir)
        return checked(base64.b64decode(shape.image or "", validate=True), state_dir)
    except (ImageError, binascii.Error) as error:
        field = "name" if shape.name is not None else "image"
        raise BadRequest(f"{field}: {error}", param=field, code="bad_firmware") from None


async def _shape(request: Request, kind: type[ShapeT]) -> tuple[bytes, ShapeT]:
    limits = box_of(request).config.limits
    body = await read_body(request, limits.body_bytes, limits.body_s)
    return body, parse(kind, decode(body, limits.json_depth), report=False)[0]


def _keeper(request: Request) -> BoardKeeper:
    """The board, which must be there."""
    box = box_of(request)
    known = box.board()
    if box.board_keeper is None or known.state == "none":
        raise Conflict("the box has no board: set board.device in its config", code="no_board")
    if known.state in ("lost", "greeting"):
        why = known.problem or "it is being greeted"
        raise Unavailable(f"the board cannot be asked now: {why}", code="board_lost")
    return box.board_keeper


async def _obeyed(future: "Future[Outcome]", hint: str) -> None:
    """Raises what a client is told when the board did not do it, or may not have."""
    try:
        async with asyncio.timeout(ANSWER_S):
            outcome = await asyncio.wrap_future(future)
    except TimeoutError:
        raise _silent("no answer") from None
    if isinstance(outcome, Refusal):
        raise Unavailable(f"the board cannot be asked now: {outcome.reason}", code="board_lost")
    if isinstance(outcome, Failed):
        if outcome.code is None:
            raise _silent(outcome.reason)
        why = hint if hint and outcome.code == m.DENIED else f"error {outcome.code}"
        raise Conflict(f"the board refused: {why}", code="board_refused")


def _silent(why: str) -> Unavailable:
    return Unavailable(
        f"whether the board did it is unknown ({why}): look at it before you ask again",
        code="board_silent",
    )


async def _done(
    request: Request,
    action: str,
    what: str,
    *,
    target: str = "",
    detail: Mapping[str, Any],
    status: int = 200,
) -> Response:
    recorded = await act(request, action, target, detail)
    body = {"status": what, "recorded": recorded, **({"target": target} if target else {})}
    return json_response(body, status=status)
