"""/admin/keys, /admin/tenants, /admin/usage: who may use the box, how much, and what was used."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.accounts.keys import (
    TENANT,
    By,
    Key,
    KeyExists,
    KeyFileError,
    KeyRefused,
    KeyUnknown,
    LastAdmin,
)
from appliance.accounts.limits import NONE, LimitsRefused, money, shown
from appliance.accounts.sums import BadReport
from appliance.accounts.tally import Used
from appliance.accounts.tenants import Tenant
from appliance.accounts.usage import report
from appliance.api.account_shapes import KeyRequest, LimitsRequest, RotateRequest, TenantRequest
from appliance.api.admin import action_row
from appliance.api.bodies import decode, parse, read_body
from appliance.api.box import Box, box_of
from appliance.api.faults import Conflict
from appliance.api.query import day, day_of
from appliance.api.replies import json_response
from appliance.api.shapes import Shape
from appliance.errors import BadRequest, NotFound, Unavailable
from appliance.ledger.errors import LedgerError

ShapeT = TypeVar("ShapeT", bound=Shape)


async def keys(request: Request) -> Response:
    """All keys with their limits and what they use now; secrets are not kept."""
    box = box_of(request)
    with told():
        found = box.keys.list()
    return json_response({"keys": [_key(box, key) for key in found]})


async def create_key(request: Request) -> Response:
    """Make a key. Its secret is in the answer and nowhere else. Honours Idempotency-Key."""
    box, by = box_of(request), by_of(request)
    body, shape = await _shape(request, KeyRequest)

    async def make() -> Response:
        with told():
            secret = await run_in_threadpool(
                box.keys.create,
                shape.name,
                shape.scopes or ["infer"],
                day_of(shape.expires, "expires"),
                tenant=shape.tenant or TENANT,
                limits=shape.limits.limits() if shape.limits is not None else NONE,
                by=by,
            )
            key = box.keys.find(shape.name)
        return json_response({"key": _key(box, key), "secret": secret})

    return await box.answers.once(request, body, make)


async def rotate_key(request: Request) -> Response:
    """Give a key a new secret, which is in the answer and nowhere else. The old one stays good for
    `grace_s`. Honours Idempotency-Key."""
    box, by, id = box_of(request), by_of(request), _id(request)
    body, shape = await _shape(request, RotateRequest)

    async def make() -> Response:
        with told():
            key, secret = await run_in_threadpool(box.keys.rotate, id, shape.grace_s or 0, by=by)
        return json_response({"key": _key(box, key), "secret": secret})

    return await box.answers.once(request, body, make)


async def limit_key(request: Request) -> Response:
    """Set all limits of a key; what is left out is no limit. Requests that run go on."""
    box, by = box_of(request), by_of(request)
    _, shape = await _shape(request, LimitsRequest)
    with told():
        key = await run_in_threadpool(box.keys.set_limits, _id(request), shape.limits(), by=by)
    return json_response({"key": _key(box, key)})


async def revoke_key(request: Request) -> Response:
    """End a key for good. The last valid admin key only with `?force=1`."""
    box, by = box_of(request), by_of(request)
    force = request.query_params.get("force") == "1"
    with told():
        key = await run_in_threadpool(box.keys.revoke, _id(request), force=force, by=by)
    return json_response({"key": _key(box, key)})


async def tenants(request: Request) -> Response:
    """All tenants with their limits and what they use now."""
    box = box_of(request)
    with told():
        found = box.keys.tenants.list()
    return json_response({"tenants": [_tenant(box, tenant) for tenant in found]})


async def set_tenant(request: Request) -> Response:
    """Set all limits of a tenant; what is left out is no limit."""
    box, by = box_of(request), by_of(request)
    _, shape = await _shape(request, TenantRequest)
    with told():
        limits = shape.limits.limits()
        tenant = await run_in_threadpool(box.keys.tenants.set, shape.name, limits, by)
    return json_response({"tenant": _tenant(box, tenant)})


async def usage(request: Request) -> Response:
    """What was used in a period, by key, tenant, scenario, model, day; from the ledger."""
    box, query = box_of(request), request.query_params
    currency = box.config.cost.currency
    by = [part for text in query.getlist("by") for part in text.split(",")] or ["key"]
    first, last = day(request, "from"), day(request, "to")
    with told():
        first, last, lines, notes = await run_in_threadpool(
            report, box.keys.path, by, currency=currency, now_ns=time.time_ns(),
            first=first, last=last,
        )  # fmt: skip
    return json_response(
        {
            "from": str(first),
            "to": str(last),
            "by": by,
            "currency": currency,
            "notes": notes,
            "rows": [line.shown() for line in lines],
        }
    )


# -- what goes out ---------------------------------------------------------------------------------


def _key(box: Box, key: Key) -> dict[str, Any]:
    used = box.quotas.key_used(key.id, time.monotonic(), time.time())
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "state": key.state(box.keys.today()),
        "created": key.created,
        "created_by": key.created_by,
        "created_from": key.created_from,
        "expires": key.expires,
        "rotated": key.rotated,
        "grace_until": key.grace_until,
        "revoked": key.revoked,
        "limits": shown(key.limits),
        "used": used_now(used),
    }


def _tenant(box: Box, tenant: Tenant) -> dict[str, Any]:
    used = box.quotas.tenant_used(tenant.name, time.monotonic(), time.time())
    return {"name": tenant.name, "limits": shown(tenant.limits), "used": used_now(used)}


def used_now(used: Used) -> dict[str, int | str]:
    """As the limits are shown."""
    return {
        "requests_per_min": used.requests_per_min,
        "tokens_per_min": used.tokens_per_min,
        "tokens_per_day": used.tokens_per_day,
        "cost_per_month": money(used.cost_per_month),
        "concurrent": used.concurrent,
    }


# -- what comes in ---------------------------------------------------------------------------------


def by_of(request: Request) -> By:
    """Who asks: the key proves it, the header claims it."""
    row = action_row(request, "")
    return By(row.key_id, row.key_name, row.operator, row.host)


def _id(request: Request) -> str:
    return str(request.path_params["id"])


async def _shape(request: Request, kind: type[ShapeT]) -> tuple[bytes, ShapeT]:
    """The raw body, and what it says; a body that is left out says nothing."""
    limits = box_of(request).config.limits
    body = await read_body(request, limits.body_bytes, limits.body_s)
    data = decode(body, limits.json_depth) if body.strip() else {}
    return body, parse(kind, data, report=False)[0]


@contextmanager
def told() -> Iterator[None]:
    """What can go wrong with accounts, as a client is told."""
    try:
        yield
    except KeyUnknown as error:
        raise NotFound(str(error), param="id", code="key_not_found") from error
    except KeyExists as error:
        raise Conflict(str(error), param="name", code="key_exists") from error
    except LastAdmin as error:
        raise Conflict(f"{error} with ?force=1", param="force", code="last_admin_key") from error
    except KeyRefused as error:
        raise BadRequest(str(error), code="invalid_value") from error
    except LimitsRefused as error:
        raise BadRequest(str(error), param=error.name, code="invalid_value") from error
    except BadReport as error:
        raise BadRequest(str(error), param=error.param, code="invalid_value") from error
    except (KeyFileError, LedgerError) as error:
        raise Unavailable(str(error), retry_after=5, code="ledger_unavailable") from error
