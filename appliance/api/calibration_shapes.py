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


class Judgement(msgspec.Struct, frozen=True, array_like=True):
    """[bounds, held, answers, loss] of the answers of one step."""

    bounds: int
    """Answers whose 90 % bound lay below their limit."""
    held: int
    """Those of them that were within it."""
    answers: int
    loss: float
    """The sum of their pinball losses, tokens: of each the mean over p10, p50, p90 and p99."""


class Accuracy(msgspec.Struct, frozen=True):
    """All answers of the last `span_ms`."""

    span_ms: int
    answers: int
    coverage_pct: float | None
    """Of their 90 % bounds; None before there are 100."""
    pinball_tok: float | None
    """Mean loss; None before there is one."""


class ForecasterPast(msgspec.Struct, frozen=True):
    """GET /admin/forecasters/past: the last 6 hours, 24 hours, 7 or 30 days, whichever first has
    all that is known, in steps, oldest first; and the last 24 hours, 7 and 30 days as a whole.

    Of the model that is served. Before the daemon started: of a sample of each hour's rows."""

    every_ms: int
    until_ms: int
    """Wall time at which the last step ends; not before now."""
    steps: tuple[Judgement, ...]
    windows: tuple[Accuracy, ...]


class InUse(msgspec.Struct, frozen=True):
    """POST /admin/forecasters/{version}/use."""

    status: Literal["in use"]
    version: str
    recorded: bool
