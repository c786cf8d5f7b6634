"""The board and the sensors, as consoles and `GET /admin/board` are told of them."""

import time
from dataclasses import asdict

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.box import box_of
from appliance.api.replies import json_response
from appliance.board.images import images
from appliance.board.snapshot import BoardSnapshot, OutputState
from appliance.frames import (
    Board,
    BoardEvent,
    BoardLink,
    FirmwareSlot,
    FirmwareUpdate,
    Output,
    Sensor,
)
from appliance.observe.readings import BOARD, Reading
from firmware_bridge.sensors import ChannelReading
from firmware_bridge.update import Progress


async def board(request: Request) -> Response:
    """The board, its watchdog's time left, every channel, and firmware that lies ready for it."""
    box, now = box_of(request), time.monotonic()
    known = box.board()
    left = known.left_ms(now)
    found = await run_in_threadpool(images, box.config.server.state_dir)
    return json_response(
        {
            **msgspec.to_builtins(board_of(known)),
            "left_ms": round(left) if left is not None else None,
            "sensors": sensors_of(box.sensors.readings(now), known),
            "images": [asdict(one) for one in found],
        }
    )


def board_of(board: BoardSnapshot) -> Board:
    """The board, its line, its outputs, and what it told last, newest first."""
    now = board.at
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
        inhibited_ms=_left_ms(board.inhibited_until, now),
        slots=tuple(
            msgspec.convert(one, FirmwareSlot, from_attributes=True) for one in board.slots
        ),
        update=_update(board.update),
        outputs=tuple(_output(one, now) for one in board.outputs),
        events=tuple(
            BoardEvent(at_ms=one.wall_ms, code=one.code, argument=one.argument)
            for one in reversed(board.events)
        ),
        link=msgspec.convert(board.link, BoardLink, from_attributes=True),
    )


def _output(one: OutputState, now: float) -> Output:
    shown = round(100 * one.now, 1) if one.now is not None else None
    return Output(
        name=one.name,
        now_pct=shown,
        safe_pct=round(100 * one.safe, 1),
        unit=one.unit,
        highest=one.highest,
        left_ms=_left_ms(one.until, now),
    )


def _left_ms(until: float | None, now: float) -> int | None:
    return None if until is None or until <= now else round(1000 * (until - now))


def _update(progress: Progress | None) -> FirmwareUpdate | None:
    if progress is None:
        return None
    return msgspec.convert(progress, FirmwareUpdate, from_attributes=True)


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
