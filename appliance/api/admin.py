"""/admin/*: what an operator may do. Every change is an entry of the ledger, and a log line."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.bodies import decode, parse, read_body
from appliance.api.box import Box, box_of
from appliance.api.info import readiness
from appliance.api.ports import Ticket
from appliance.api.replies import json_response
from appliance.api.text_shapes import RestartRequest
from appliance.api.trace import trace_of
from appliance.errors import NotFound
from appliance.ledger.books import printable
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Action
from appliance.logformat import tame

log = logging.getLogger("appliance.admin")


async def status(request: Request) -> Response:
    """Everything at a glance."""
    box = box_of(request)
    _, parts = readiness(box)
    engine, queue = box.supervisor.snapshot, box.supervisor.queue
    return json_response(
        {
            **parts,
            "version": box.version,
            "llama_commit": box.llama_commit,
            "started_at": box.started_at,
            "uptime_s": time.time() - box.started_at,
            "queue": queue,
            "stats": asdict(engine.stats),
            "engine_pid": engine.pid,
            "engine_rss_bytes": engine.rss_bytes,
            "slots": [asdict(slot) for slot in engine.slots],
        }
    )


async def requests(request: Request) -> Response:
    """All requests that have not ended, in the order of their arrival."""
    box = box_of(request)
    found = [live_row(box, ticket) for ticket in box.supervisor.tickets.values()]
    return json_response({"requests": sorted(found, key=lambda row: row["age_s"], reverse=True)})


def live_row(box: Box, ticket: Ticket) -> dict[str, Any]:
    """A request that has not ended."""
    now, submit = time.monotonic(), ticket.request
    keys = () if box.keys.problem else box.keys.list()
    names = {key.id: key.name for key in keys}
    return {
        "id": ticket.id,
        "state": "waiting" if ticket.started_at is None else "running",
        "position": ticket.position,
        "age_s": now - ticket.submitted_at,
        "running_s": None if ticket.started_at is None else now - ticket.started_at,
        "deadline_in_s": None if submit.deadline is None else submit.deadline - now,
        "key": names.get(submit.scope, submit.scope),
        "prompt_tokens": len(submit.prompt),
        "max_tokens": submit.max_tokens,
        "generated": ticket.generated,
        "n": submit.n,
        "stream": submit.stream,
        "priority": submit.priority,
        "pool": submit.pool,
        "forecast": _forecast(box, ticket),
    }


def _forecast(box: Box, ticket: Ticket) -> dict[str, Any] | None:
    """All answers of a request together, as it looks by now; None while forecasts are off."""
    aboard = box.aboard.get(ticket.id)
    if aboard is None or aboard.outlook is None:
        return None
    outlook = aboard.outlook
    band = outlook.now
    return {
        "p10": band.p10,
        "p50": band.p50,
        "p90": band.p90,
        "first_p50": outlook.first.p50,
        "from": outlook.kind,
        "version": outlook.forecast.version,
    }


async def cancel(request: Request) -> Response:
    """End one request, waiting or running. Its client is told."""
    ticket = named_ticket(request)
    ticket.cancel()
    return await _done(request, "request.cancel", "cancelled", target=ticket.id, id=ticket.id)


def named_ticket(request: Request) -> Ticket:
    """The request that has not ended which the path names. Raises NotFound."""
    name = str(request.path_params["id"])
    ticket = box_of(request).supervisor.tickets.get(name)
    if ticket is None:
        raise NotFound(
            f"no request {name[:100]!r} is waiting or running: GET /admin/requests lists them",
            param="id",
            code="request_not_found",
        )
    return ticket


async def drain(request: Request) -> Response:
    """Admit nothing new; what was admitted goes on."""
    box_of(request).admission.drain(True)
    return await _done(request, "box.drain", "draining")


async def resume(request: Request) -> Response:
    """Admit again."""
    box_of(request).admission.drain(False)
    return await _done(request, "box.resume", "admitting")


async def hold(request: Request) -> Response:
    """Start no waiting request; what runs goes on, and new ones queue up."""
    box_of(request).supervisor.pause(True)
    return await _done(request, "queue.hold", "holding")


async def release(request: Request) -> Response:
    """Start waiting requests again."""
    box_of(request).supervisor.pause(False)
    return await _done(request, "queue.release", "released")


async def restart(request: Request) -> Response:
    """Restart the engine child. Requests in flight end with an error, waiting ones go on."""
    box = box_of(request)
    limits = box.config.limits
    body = await read_body(request, limits.body_bytes, limits.body_s)
    shape = RestartRequest()
    if body.strip():
        shape, _ = parse(RestartRequest, decode(body, box.config.limits.json_depth), report=False)
    reason = tame(shape.reason or "") or "asked for by an operator"
    await box.supervisor.restart(reason)
    return await _done(request, "engine.restart", "restarting", detail={"reason": reason})


async def _done(
    request: Request,
    action: str,
    what: str,
    *,
    target: str = "",
    detail: Mapping[str, Any] | None = None,
    **facts: str,
) -> Response:
    """Answers an operator's action, which is an entry of the ledger by then, or the answer says
    that it is not: what keeps the ledger from being written must not keep operators from acting."""
    recorded = await act(request, action, target, detail)
    return json_response({"status": what, **facts, "recorded": recorded})


async def act(
    request: Request, action: str, target: str = "", detail: Mapping[str, Any] | None = None
) -> bool:
    """Chains what an operator did. False when the ledger cannot be written (the log has it)."""
    row = action_row(request, action, target, detail)
    words = f"{action} {target}".strip()
    log.warning("%s by key %s, operator %s", words, row.key_name, row.operator or "-")
    try:
        await asyncio.wrap_future(box_of(request).ledger.act(row))
    except LedgerError as error:
        log.error("%s by key %s is in this log alone: %s", words, row.key_name, error)
        return False
    return True


def action_row(
    request: Request, action: str, target: str = "", detail: Mapping[str, Any] | None = None
) -> Action:
    """The entry of an operator's action: the key proves who it was, the header claims it."""
    trace = trace_of(request)
    client = request.client
    return Action(
        wall_ns=time.time_ns(),
        action=action,
        target=target,
        key_id=trace.key_id,
        key_name=trace.key_name,
        # Starlette reads headers as Latin-1; names come as UTF-8.
        operator=printable(
            request.headers.get("x-operator", "").encode("latin-1").decode("utf-8", "replace")
        ),
        host=client.host if client is not None else "",
        detail=dict(detail or {}),
    )
