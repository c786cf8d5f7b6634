"""GET /admin/cost: the cost report of `steelyard cost report`, as JSON."""

import time

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.accounts.costreport import report
from appliance.accounts.keys import FILE_NAME
from appliance.accounts.prices import PricesError
from appliance.accounts.sums import BadReport
from appliance.api.box import box_of
from appliance.api.query import day
from appliance.api.replies import json_response
from appliance.errors import BadRequest, Unavailable
from appliance.ledger.errors import LedgerError


async def cost(request: Request) -> Response:
    """Standard and actual cost of a period, by `by` (several), from `from` to `to`."""
    box, query = box_of(request), request.query_params
    by = [part for text in query.getlist("by") for part in text.split(",")] or ["tenant"]
    first, last = day(request, "from"), day(request, "to")
    try:
        found = await run_in_threadpool(
            report,
            box.config.server.state_dir / FILE_NAME,
            box.config.cost,
            by,
            now_ns=time.time_ns(),
            first=first,
            last=last,
        )
    except BadReport as error:
        raise BadRequest(str(error), param=error.param, code="invalid_value") from error
    except (LedgerError, PricesError) as error:
        raise Unavailable(str(error)) from error
    return json_response(found)
