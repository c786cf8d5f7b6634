"""What the ledger knows of requests that ended, and of operators' actions. Reading it takes a
connection of its own, on a thread: neither the loop nor the ledger's writer waits."""

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from sqlite_utils import Database
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.accounts.keys import FILE_NAME
from appliance.api.admin import live_row
from appliance.api.archive import reading
from appliance.api.box import Box, box_of
from appliance.api.query import number
from appliance.api.replies import json_response
from appliance.errors import BadRequest, NotFound, Unavailable
from appliance.ledger import queries
from appliance.ledger.errors import LedgerError
from appliance.ledger.queries import Entry, RequestFilter
from appliance.ledger.rows import Row

T = TypeVar("T")
R = TypeVar("R", bound=Row)

_LIMIT = 50


async def ended(request: Request) -> Response:
    """Requests that have ended, newest first. `next` goes on where the page stops."""
    box, query = box_of(request), request.query_params
    wanted = RequestFilter(
        key_id=_key_id(box, query.get("key")),
        tenant=query.get("tenant"),
        scenario=query.get("scenario"),
        outcome=query.get("outcome"),
        since_wall_ns=_wall_ns(query.get("since"), "since"),
        until_wall_ns=_wall_ns(query.get("until"), "until"),
    )
    cursor, limit = _page(request)
    page = await _read(box, lambda db: queries.requests(db, wanted, cursor, limit))
    return json_response({"requests": [told(entry) for entry in page.entries], "next": page.cursor})


async def one(request: Request) -> Response:
    """One request, live or ended, by its id, trace id or X-Request-Id."""
    box, name = box_of(request), str(request.path_params["id"])
    live = box.supervisor.tickets.get(name)
    if live is not None:
        return json_response({"live": live_row(box, live), "entries": []})
    entries = await _read(box, lambda db: queries.request(db, name))
    if not entries:
        raise NotFound(
            f"no request {name[:100]!r}, neither live nor in the ledger: GET /admin/requests lists "
            "the live ones, GET /admin/history the others",
            param="id",
            code="request_not_found",
        )
    return json_response({"live": None, "entries": [told(entry) for entry in entries]})


async def actions(request: Request) -> Response:
    """What operators did, newest first."""
    box, query = box_of(request), request.query_params
    action, (cursor, limit) = query.get("action"), _page(request)
    page = await _read(box, lambda db: queries.actions(db, action, cursor, limit))
    return json_response({"actions": [told(entry) for entry in page.entries], "next": page.cursor})


async def ledger(request: Request) -> Response:
    """How the ledger stands."""
    snapshot = box_of(request).ledger.snapshot
    age = time.monotonic() - snapshot.last_commit_at if snapshot.last_commit_at else None
    return json_response({**asdict(snapshot), "last_commit_age_s": age})


def told(entry: Entry[R]) -> dict[str, Any]:
    """The entry with its place in the chain."""
    return {"seq": entry.seq, "hash": entry.hash, **msgspec.to_builtins(entry.row)}


def _wall_ns(text: str | None, name: str) -> int | None:
    """A day or a time (ISO 8601, UTC unless it says otherwise). Raises BadRequest."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"{name} {text[:40]!r} is no time: write it as 2026-01-31 or 2026-01-31T12:00:00",
            param=name,
            code="invalid_value",
        ) from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(found.timestamp()) * 1_000_000_000


def _key_id(box: Box, name: str | None) -> str | None:
    """Keys are asked for by name or id; those of the past by id."""
    if name is None:
        return None
    keys = () if box.keys.problem else box.keys.list()
    return next((key.id for key in keys if key.name == name), name)


def _page(request: Request) -> tuple[int | None, int]:
    return number(request, "cursor"), number(request, "limit") or _LIMIT


async def _read(box: Box, ask: Callable[[Database], T]) -> T:
    path = box.config.server.state_dir / FILE_NAME
    try:
        return await run_in_threadpool(reading, path, ask)
    except LedgerError as error:
        raise Unavailable(str(error), code="ledger_unavailable") from error
