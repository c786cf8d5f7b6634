"""What the calibration routes take and answer. Fields are only ever added."""

from typing import Literal

import msgspec

from appliance.api.shapes import Shape
from appliance.calibrate.catalogue import Listed
from appliance.calibrate.status import Status


class CalibrationRequest(Shape):
    """POST /admin/calibration."""

    action: Literal["start", "hold", "resume", "stop"]


class CalibrationDone(msgspec.Struct, frozen=True):
    """POST /admin/calibration. `recorded`: the action is in the ledger."""

    status: Literal["started", "held", "resumed", "stopping"]
    calibration: Status
    recorded: bool


class Forecasters(msgspec.Struct, frozen=True):
    """GET /admin/forecasters, newest first, the packaged one last."""

    in_use: str
    """Empty: none, forecasts come from one distribution for all requests."""
    forecasters: tuple[Listed, ...]


class Point(msgspec.Struct, frozen=True, array_like=True):
    """[forecast, actual, cut]: the median told before it ran, tokens; the tokens there were; 1
    where the answer was cut off there."""

    forecast: int
    actual: int
    cut: int


class Scatter(msgspec.Struct, frozen=True):
    """GET /admin/forecasters/scatter: the newest answers with a forecast, newest first."""

    points: tuple[Point, ...]


class InUse(msgspec.Struct, frozen=True):
    """POST /admin/forecasters/{version}/use."""

    status: Literal["in use"]
    version: str
    recorded: bool
