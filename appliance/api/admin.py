"""/admin/*: what an operator may do. Every change is a log line with the key's name."""

import logging
import time
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
    names = {key.id: key.name for key in _keys(box)}
    found = [_row(ticket, names) for ticket in box.supervisor.tickets.values()]
    return json_response({"requests": sorted(found, key=lambda row: row["age_s"], reverse=True)})


def _keys(box: Box) -> tuple[Any, ...]:
    return () if box.keys.problem else box.keys.list()


def _row(ticket: Ticket, names: dict[str, str]) -> dict[str, Any]:
    now, submit = time.monotonic(), ticket.request
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
    }


async def cancel(request: Request) -> Response:
    """End one request, waiting or running. Its client is told."""
    box, name = box_of(request), str(request.path_params["id"])
    ticket = box.supervisor.tickets.get(name)
    if ticket is None:
        raise NotFound(
            f"no request {name[:100]!r} is waiting or running: GET /admin/requests lists them",
            param="id",
            code="request_not_found",
        )
    ticket.cancel()
    return _done(request, "cancelled", id=name)


async def drain(request: Request) -> Response:
    """Admit nothing new; what was admitted goes on."""
    box_of(request).admission.drain(True)
    return _done(request, "draining")


async def resume(request: Request) -> Response:
    """Admit again."""
    box_of(request).admission.drain(False)
    return _done(request, "admitting")


async def hold(request: Request) -> Response:
    """Start no waiting request; what runs goes on, and new ones queue up."""
    box_of(request).supervisor.pause(True)
    return _done(request, "holding")


async def release(request: Request) -> Response:
    """Start waiting requests again."""
    box_of(request).supervisor.pause(False)
    return _done(request, "released")


async def restart(request: Request) -> Response:
    """Restart the engine child. Requests in flight end with an error, waiting ones go on."""
    box = box_of(request)
    body = await read_body(request, box.config.limits.body_bytes)
    shape = RestartRequest()
    if body.strip():
        shape, _ = parse(RestartRequest, decode(body, box.config.limits.json_depth), report=False)
    await box.supervisor.restart(shape.reason or "asked for by an operator")
    return _done(request, "restarting")


def _done(request: Request, what: str, **facts: str) -> Response:
    trace = trace_of(request)
    log.warning("%s by key %s (request %s) %s", what, trace.key_name, trace.request_id, facts or "")
    return json_response({"status": what, **facts})
