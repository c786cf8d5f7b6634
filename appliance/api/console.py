"""What the console asks besides `/events`. The answers' exact shapes are in console_shapes.py.

GET  /admin/whoami                      Who
GET  /admin/past                        Past
GET  /admin/log?level=&filter=&after=&limit=          Log
GET  /admin/alarms                      AlarmList
POST /admin/alarms/{id}/seen            AlarmDone
POST /admin/alarms/{id}/snooze          AlarmDone; body SnoozeRequest
GET  /admin/requests/{id}/tokens        RequestTokens
GET  /admin/audit/ledger/verify         Verification
POST /admin/audit/ledger/verify         Verification; 202 when it began, 200 when one runs
"""

import logging
import platform
import time

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.admin import act, action_row
from appliance.api.archive import Archive, Record
from appliance.api.bodies import read_shape
from appliance.api.box import box_of
from appliance.api.console_shapes import (
    AlarmDone,
    AlarmList,
    Ended,
    Log,
    LogLine,
    RequestTokens,
    SnoozeRequest,
    Token,
    TokensOf,
    Who,
)
from appliance.api.events import feed_of
from appliance.api.logprobs import Pieces
from appliance.api.replies import json_response, pieces_of
from appliance.api.trace import trace_of
from appliance.api.watch import Watch
from appliance.errors import BadRequest, NotFound
from appliance.frames import Alarm
from appliance.ledger import audits
from appliance.observe.logs import KEPT, RECENT, Line

LEVELS = {name: getattr(logging, name.upper()) for name in
          ("debug", "info", "warning", "error", "critical")}  # fmt: skip
_LINES = 200
_REQUESTS = 8
"""Whose tokens are told at once, where one name means several requests: the newest."""


async def whoami(request: Request) -> Response:
    """The key that asks, and the box it asks."""
    box, trace = box_of(request), trace_of(request)
    return json_response(
        Who(
            key_id=trace.key_id,
            key_name=trace.key_name,
            tenant=trace.tenant,
            scopes=sorted(trace.scopes),
            version=box.version,
            host=platform.node(),
            boot_id=_watch(request).boot_id,
            currency=box.config.cost.currency,
        )
    )


async def past(request: Request) -> Response:
    """Chosen numbers of `live`, once a second, over the last fifteen minutes."""
    return json_response(_watch(request).past())


async def log_lines(request: Request) -> Response:
    """The daemon's newest log lines, or those after `after`."""
    query = request.query_params
    level = query.get("level", "info")
    if level not in LEVELS:
        raise BadRequest(
            f"level: must be one of {', '.join(LEVELS)}", param="level", code="invalid_value"
        )
    limit = _number(request, "limit", _LINES)
    found, newest = RECENT.lines(
        level=LEVELS[level],
        part=query.get("filter", ""),
        after=_number(request, "after", -1) if "after" in query else None,
        limit=max(1, min(limit, KEPT)),
    )
    return json_response(Log([_line(line) for line in found], newest))


def _line(line: Line) -> LogLine:
    level = logging.getLevelName(line.level).lower()
    return LogLine(line.seq, round(line.wall_s * 1000), level, line.logger, line.text)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    raise BadRequest(f"{name}: must be a whole number", param=name, code="invalid_value")


# -- alarms --------------------------------------------------------------------------------------


async def alarms(request: Request) -> Response:
    """What needs an operator now, and what did lately."""
    found = _watch(request).alarms
    over = [Ended(old.alarm, old.ended_ms) for old in reversed(found.past)]
    return json_response(AlarmList(list(found.active()), over))


async def alarm_seen(request: Request) -> Response:
    """Somebody has seen the alarm: consoles stop showing it as new."""
    watch, name = _watch(request), str(request.path_params["id"])
    alarm = _known(watch.alarms.see(name), name)
    watch.changed()
    recorded = await act(request, "alarm.seen", name)
    return json_response(AlarmDone("seen", alarm, recorded))


async def alarm_snooze(request: Request) -> Response:
    """Hide the alarm for so many minutes, for a reason that the ledger keeps."""
    shape, _ = await read_shape(request, SnoozeRequest)
    watch, name = _watch(request), str(request.path_params["id"])
    until = round((time.time() + shape.minutes * 60) * 1000)
    alarm = _known(watch.alarms.snooze(name, until), name)
    watch.changed()
    detail = {"minutes": shape.minutes, "reason": shape.reason}
    recorded = await act(request, "alarm.snooze", name, detail)
    return json_response(AlarmDone("snoozed", alarm, recorded))


def _known(alarm: Alarm | None, name: str) -> Alarm:
    if alarm is not None:
        return alarm
    raise NotFound(
        f"no alarm {name[:100]!r} now: it may be over. GET /admin/alarms lists them",
        param="id",
        code="alarm_not_found",
    )


# -- the ledger ----------------------------------------------------------------------------------


async def request_tokens(request: Request) -> Response:
    """The tokens of a request that has ended, one by one, as the ledger holds them."""
    archive, pieces = Archive(request), pieces_of(request)
    records = await archive.records(str(request.path_params["id"]))
    await pieces.load()
    found = [await _tokens(archive, pieces, record) for record in records[-_REQUESTS:]]
    return json_response(RequestTokens(found))


async def _tokens(archive: Archive, pieces: Pieces, record: Record) -> TokensOf:
    found = record.found
    stored = await archive.read(lambda db: audits.tokens(db, found.seq))
    lists = [[Token(id, pieces.text(id)) for id in ids] for ids in stored or ()]
    return TokensOf(
        id=found.row.id,
        seq=found.seq,
        kept=stored is not None,
        prompt=lists[0] if lists else [],
        choices=lists[1:],
    )


async def verification(request: Request) -> Response:
    """How the verification of the ledger stands, or what the last one found."""
    return json_response(_watch(request).verifying.now)


async def verify_ledger(request: Request) -> Response:
    """Verify the whole ledger, beside serving; one at a time."""
    verifying = _watch(request).verifying
    row = action_row(request, "ledger.verify")
    by = f"{row.key_name} ({row.operator})" if row.operator else row.key_name
    if not verifying.start(by):
        return json_response(verifying.now)
    recorded = await act(request, "ledger.verify")
    return json_response(replace(verifying.now, recorded=recorded), status=202)


def _watch(request: Request) -> Watch:
    return feed_of(request).watch
