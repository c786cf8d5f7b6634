"""The board and the sensors, as consoles and `GET /admin/board` are told of them."""

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.box import box_of
from appliance.api.replies import json_response
from appliance.board.snapshot import BoardSnapshot, OutputState
from appliance.frames import Board, BoardEvent, BoardLink, Output, Sensor
from appliance.observe.readings import BOARD, Reading
from firmware_bridge.sensors import ChannelReading


async def board(request: Request) -> Response:
    """The board, its watchdog's time left, and every channel."""
    box, now = box_of(request), time.monotonic()
    known = box.board()
    left = known.left_ms(now)
    return json_response(
        {
            **msgspec.to_builtins(board_of(known)),
            "left_ms": round(left) if left is not None else None,
            "sensors": sensors_of(box.sensors.readings(now), known),
        }
    )


def board_of(board: BoardSnapshot) -> Board:
    """The board, its line, its outputs, and what it told last, newest first."""
    return Board(
        state=board.state,
        device=board.device,
        simulated=board.simulated,
        problem=board.problem,
        firmware=board.firmware,
        uid=board.uid,
        reset_cause=board.reset_cause,
        timeout_ms=board.timeout_ms,
        unfed=board.unfed,
        slowed=board.slowed,
        outputs=tuple(_output(one) for one in board.outputs),
        events=tuple(
            BoardEvent(at_ms=one.wall_ms, code=one.code, argument=one.argument)
            for one in reversed(board.events)
        ),
        link=msgspec.convert(board.link, BoardLink, from_attributes=True),
    )


def _output(one: OutputState) -> Output:
    now = round(100 * one.now, 1) if one.now is not None else None
    return Output(name=one.name, now_pct=now, safe_pct=round(100 * one.safe, 1))


def sensors_of(readings: tuple[Reading, ...], board: BoardSnapshot) -> tuple[Sensor, ...]:
    """What the machine and its board measure, each with where it comes from."""
    channels = {one.name: one for one in board.readings}
    return tuple(
        _sensor(one, channels.get(one.name) if one.source == BOARD else None) for one in readings
    )


def _sensor(one: Reading, channel: ChannelReading | None) -> Sensor:
    referenced = channel if channel is not None and channel.residuals else None
    return Sensor(
        name=one.name,
        unit=one.unit,
        source=one.source,
        quality=one.quality,
        value=one.value,
        lo=one.lo,
        hi=one.hi,
        sigma=one.sigma,
        why=one.why,
        drift=referenced.drift.quality if referenced else "",
        off=referenced.drift.bias if referenced else None,
        resid=referenced.residuals if referenced else (),
    )
