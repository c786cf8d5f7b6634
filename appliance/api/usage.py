"""GET /v1/usage: a caller's own figures."""

import time
from datetime import timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.accounts.limits import NAMES, Limits, money, shown
from appliance.accounts.tally import Used
from appliance.accounts.usage import Figures, by_day, today_of
from appliance.api.admin_accounts import told
from appliance.api.box import Box, box_of
from appliance.api.replies import json_response
from appliance.api.trace import Trace, trace_of
from appliance.errors import BadRequest

MOST_DAYS = 366


async def own_usage(request: Request) -> Response:
    """What the caller's key used today and this month, its limits, and what is left of them."""
    box, trace = box_of(request), trace_of(request)
    days = _days(request.query_params.get("days"))
    today = today_of(time.time())
    first = min(today.replace(day=1), today - timedelta(days=max(0, days - 1)))
    with told():
        found = await run_in_threadpool(by_day, box.keys.path, trace.key_id, first, today)
    of_month = (figures for day, figures in found.items() if day >= today.replace(day=1))
    body: dict[str, Any] = {
        "object": "usage",
        "key": {"id": trace.key_id, "name": trace.key_name},
        "tenant": trace.tenant,
        "currency": box.config.cost.currency,
        "today": {"day": str(today), **found.get(today, Figures()).shown()},
        "month": {"month": f"{today:%Y-%m}", **sum(of_month, Figures()).shown()},
        **_limits(box, trace),
    }
    if days:
        wanted = [today - timedelta(days=ago) for ago in reversed(range(days))]
        body["days"] = [{"day": str(day), **found.get(day, Figures()).shown()} for day in wanted]
    return json_response(body)


def _days(text: str | None) -> int:
    if text is None:
        return 0
    if text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST_DAYS:
        return int(text)
    raise BadRequest(
        f"days: must be a whole number from 1 to {MOST_DAYS}", param="days", code="invalid_value"
    )


def _limits(box: Box, trace: Trace) -> dict[str, Any]:
    """Of the key and of its tenant."""
    now, wall, holder = time.monotonic(), time.time(), trace.holder
    both = {
        "key": (holder.key_limits, box.quotas.key_used(holder.key_id, now, wall)),
        "tenant": (holder.tenant_limits, box.quotas.tenant_used(holder.tenant, now, wall)),
    }
    return {
        "limits": {whose: shown(limits) for whose, (limits, _) in both.items()},
        "remaining": {whose: remaining(*what) for whose, what in both.items()},
    }


def remaining(limits: Limits, used: Used) -> dict[str, int | str | None]:
    """What is left of each limit that is an amount; None where there is no limit."""
    found: dict[str, int | str | None] = {}
    for name in NAMES:
        limit = getattr(limits, name)
        if name == "priority":
            continue
        left = None if limit is None else max(0, limit - getattr(used, name))
        found[name] = money(left) if name == "cost_per_month" and left is not None else left
    return found
