"""Calibration and the forecasters it makes. Shapes: calibration_shapes.py and calibrate/status.py.

GET  /admin/calibration                   Status
POST /admin/calibration                   CalibrationDone; body {"action": ...}
GET  /admin/forecasters                   Forecasters
GET  /admin/forecasters/scatter           Scatter
POST /admin/forecasters/{version}/use     InUse
GET  /admin/forecasters/{version}/report  the version's own report, HTML
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.accounts.keys import FILE_NAME
from appliance.api.admin import act, action_row
from appliance.api.bodies import read_shape
from appliance.api.box import box_of
from appliance.api.calibrating import Calibrating
from appliance.api.calibration_shapes import (
    CalibrationDone,
    CalibrationRequest,
    Forecasters,
    InUse,
    Point,
    Scatter,
)
from appliance.api.events import feed_of
from appliance.api.faults import Conflict
from appliance.api.replies import json_response
from appliance.calibrate.catalogue import catalogue
from appliance.calibrate.status import Wish
from appliance.errors import BadRequest, NotFound, Unavailable
from appliance.forecast.bundle import BadForecaster, Bundle
from appliance.forecast.versions import Versions
from appliance.ledger import queries
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import RequestRow

MOST_POINTS = 256
_LOOKED_AT = 500
"""Rows among which the points are found."""
_REPORT_RULES = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "sandbox",
    "Cache-Control": "no-store",
}
"""A report may have come with a forecaster from elsewhere: it may show, and do nothing."""

_Done = Literal["started", "held", "resumed", "stopping"]
_WISHES: Mapping[str, tuple[Wish, _Done]] = {
    "hold": ("hold", "held"),
    "resume": ("go", "resumed"),
    "stop": ("stop", "stopping"),
}


async def calibration_status(request: Request) -> Response:
    """How the calibration that runs stands, or the last one ended."""
    return json_response(_calibrating(request).status)


async def steer_calibration(request: Request) -> Response:
    """Start a calibration; hold, resume or stop the one that runs."""
    shape, _ = await read_shape(request, CalibrationRequest)
    calibrating = _calibrating(request)
    if shape.action == "start":
        done = _start(request, calibrating)
    else:
        done = _wish(shape.action, calibrating)
    recorded = await act(request, f"calibration.{shape.action}")
    return json_response(CalibrationDone(done, calibrating.status, recorded))


def _start(request: Request, calibrating: Calibrating) -> _Done:
    switch = box_of(request).switch.state
    if switch.phase != "none":
        raise Conflict(
            f"the box goes over to the model {switch.target} just now: begin when that is over",
            code="switch_under_way",
        )
    row = action_row(request, "calibration.start")
    by = f"{row.key_name} ({row.operator})" if row.operator else row.key_name
    if not calibrating.start(by):
        raise BadRequest(
            "a calibration runs already: hold, resume or stop it", code="calibration_runs"
        )
    return "started"


def _wish(action: str, calibrating: Calibrating) -> _Done:
    wish, done = _WISHES[action]
    try:
        found = calibrating.wish(wish)
    except OSError as error:
        raise Unavailable(f"it could not be told: {error.strerror}") from error
    if not found:
        raise BadRequest("no calibration runs: start one", code="no_calibration")
    return done


async def forecasters(request: Request) -> Response:
    """Which forecasters there are for the model, and which is in use."""
    versions = _versions(request)
    try:
        found = await run_in_threadpool(catalogue, versions)
    except BadForecaster as error:
        raise Unavailable(str(error)) from error
    in_use = next((one.version for one in found if one.in_use), "")
    return json_response(Forecasters(in_use, found))


async def use_forecaster(request: Request) -> Response:
    """Put a version into use: an older one, or the packaged one."""
    versions, name = _versions(request), _named(request)
    was = versions.current()
    try:
        version = await run_in_threadpool(versions.use, name)
    except BadForecaster as error:
        raise BadRequest(str(error), param="version", code="forecaster_unusable") from error
    _calibrating(request).changed()
    detail = {"before": was.name if was is not None else ""}
    recorded = await act(request, "forecaster.use", version.name, detail)
    return json_response(InUse("in use", version.name, recorded))


async def forecaster_report(request: Request) -> Response:
    """The report that a forecaster was made with."""
    versions, name = _versions(request), _named(request)
    path = next(one.path for one in versions.list() if one.name == name)
    try:
        bundle = await run_in_threadpool(Bundle.read, path)
    except BadForecaster as error:
        raise BadRequest(str(error), param="version", code="forecaster_unusable") from error
    if not bundle.report_html:
        raise NotFound(f"{name} carries no report", param="version", code="no_report")
    return Response(bundle.report_html, media_type="text/html", headers=_REPORT_RULES)


async def forecaster_scatter(request: Request) -> Response:
    """Forecasts and what came of them, of the newest requests."""
    box = box_of(request)
    if not box.ledger.snapshot.recording:
        return json_response(Scatter(()))
    path = box.config.server.state_dir / FILE_NAME
    try:
        return json_response(Scatter(await run_in_threadpool(_points, path)))
    except LedgerError as error:
        raise Unavailable(str(error)) from error


def _points(path: Path) -> tuple[Point, ...]:
    with closing(connect(path, read_only=True)) as db:
        rows = queries.requests(db, limit=_LOOKED_AT).entries
    points = (point for entry in rows for point in _of(entry.row))
    return tuple(point for point, _ in zip(points, range(MOST_POINTS), strict=False))


def _of(row: RequestRow) -> Iterator[Point]:
    told: Any = (row.forecast or {}).get("p50_tok")
    if not isinstance(told, int) or told < 1 or row.n != 1:  # of several, it is their sum
        return
    for choice in row.choices:
        if choice.completion_tokens:
            yield Point(told, choice.completion_tokens, int(choice.stop_type != "eos"))


def _named(request: Request) -> str:
    """The version that the path names, if there is one."""
    name = str(request.path_params["version"])
    try:
        known = [version.name for version in _versions(request).list()]
    except BadForecaster as error:
        raise Unavailable(str(error)) from error
    if name not in known:
        raise NotFound(
            f"no forecaster {name[:80]!r}: GET /admin/forecasters lists them",
            param="version",
            code="forecaster_not_found",
        )
    return name


def _versions(request: Request) -> Versions:
    box = box_of(request)
    return Versions(box.config.server.state_dir, box.model.sha256)


def _calibrating(request: Request) -> Calibrating:
    return feed_of(request).watch.calibrating
