"""How forecasts did over time, for the console. Shape: calibration_shapes.py.

GET /admin/forecasters/past             ForecasterPast

Answers are counted as they end; what ended before the daemon started is read from the ledger once,
on a thread: so many of each hour at most, so that a busy box does not read for minutes.
"""

import contextlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
from sqlite_utils import Database
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.box import box_of
from appliance.api.calibration_shapes import Accuracy, ForecasterPast, Judgement
from appliance.api.replies import json_response
from appliance.ledger.append import HOUR_NS
from appliance.ledger.database import connect, explained
from appliance.ledger.rows import RequestRow
from appliance.observe.forecasthistory import KEPT_S, Judged, Sums, judged

MOST_OF_AN_HOUR = 64
"""Rows: the newest of as many stretches of the hour's part of the chain."""
_decode = msgspec.json.Decoder(RequestRow).decode


async def forecaster_past(request: Request) -> Response:
    """Coverage of the 90 % bounds and pinball loss over the last hours, days or weeks."""
    told = box_of(request).metrics.pulse.forecasts.told(time.time())
    steps = tuple(Judgement(s.bounds, s.held, s.answers, round(s.loss, 2)) for s in told.steps)
    windows = tuple(_accuracy(size, sums) for size, sums in told.windows)
    return json_response(ForecasterPast(told.step_s * 1000, told.until_s * 1000, steps, windows))


def _accuracy(size: int, sums: Sums) -> Accuracy:
    coverage, loss = sums.coverage, sums.mean_loss
    return Accuracy(
        span_ms=size * 1000,
        answers=sums.answers,
        coverage_pct=round(100 * coverage, 1) if coverage is not None else None,
        pinball_tok=round(loss, 2) if loss is not None else None,
    )


def read_judged(path: Path, model_sha256: str, before_ns: int) -> tuple[Judged, ...]:
    """What came of the forecasts for this model in the 30 days before `before_ns`, wall time.
    Raises LedgerError."""
    first = (before_ns - KEPT_S * 1_000_000_000) // HOUR_NS
    with closing(connect(path, read_only=True)) as db, explained(path):
        return tuple(
            one
            for row in _rows(db, first)
            if row.model_sha256 == model_sha256 and row.wall_ns < before_ns
            if (one := judged(row)) is not None
        )


def _rows(db: Database, first_hour: int) -> Iterator[RequestRow]:
    """Final rows, some of each hour from this one on."""
    hours = db.conn.execute(
        "SELECT hour, first_seq, last_seq FROM request_hours WHERE hour >= ? ORDER BY hour",
        (first_hour,),
    ).fetchall()
    for hour, first, last in hours:
        seen = 0
        for at in _places(first, last):
            found = db.conn.execute(_BEHIND, (at, seen)).fetchone()
            if found is None:
                continue
            seen = found[0]
            with contextlib.suppress(msgspec.MsgspecError):  # verifying the chain names such a row
                row = _decode(found[1])
                if row.wall_ns // HOUR_NS == hour:
                    yield row


_BEHIND = (
    "SELECT seq, body FROM entries INDEXED BY requests_by_seq WHERE kind = 'request'"
    " AND seq <= ? AND seq > ? ORDER BY seq DESC LIMIT 1"
)


def _places(first: int, last: int) -> Iterator[int]:
    """Entries spread evenly over a part of the chain, the last one among them; all of a short
    part."""
    count = min(MOST_OF_AN_HOUR, last - first + 1)
    return ((first - 1) + (last - first + 1) * (at + 1) // count for at in range(count))
