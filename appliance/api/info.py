"""What the box tells of itself: models, health, readiness, settings, slots, metrics.

All of it comes from snapshots: nothing here waits for the engine.
"""

import hashlib
import os
import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.answers import bounded
from appliance.api.boarding import journal_low
from appliance.api.box import Box, box_of
from appliance.api.intake import default_sampling, served_names
from appliance.api.lora import told
from appliance.api.replies import json_response
from appliance.control.budgets import FALLBACKS
from appliance.engine.reports import SlotState
from appliance.errors import NotFound, Unavailable
from appliance.forecast import encoder
from appliance.observe.metrics import CONTENT_TYPE

LOW_DISK_BYTES = 64 * 1024 * 1024
"""With less room for state the box is not ready."""


async def health(_: Request) -> Response:
    """The daemon lives. Says nothing of the engine: that is /readyz."""
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Whether a request sent now would be answered, part by part."""
    ready, body = readiness(box_of(request))
    headers = {} if ready else {"Retry-After": "2"}
    return json_response(body, headers, 200 if ready else 503)


def readiness(box: Box) -> tuple[bool, dict[str, Any]]:
    """The verdict and its parts."""
    engine, prepare = box.supervisor.snapshot, box.preparer.snapshot()
    age = max(0.0, time.monotonic() - engine.last_progress) if engine.last_progress else None
    free = disk_free(box)
    checks = {
        "engine": engine.state == "ready",
        "progress": age is not None and age < box.config.engine.step_timeout_s,
        "prepare": prepare.alive,
        "disk": free is not None and free >= LOW_DISK_BYTES,
        "ledger": box.ledger.snapshot.ok and not journal_low(engine),
        "admitting": not box.admission.draining,
        "model": not box.switch.state.away,
    }
    ready = all(checks.values())
    return ready, {
        "status": "ready" if ready else "not ready" if checks["model"] else "switching",
        "failing": [name for name, fine in checks.items() if not fine],
        "engine": {
            "state": engine.state,
            "last_progress_age_s": age,
            "restarts": engine.restarts,
            "last_failure": engine.last_failure,
            "paused": engine.paused,
        },
        "ledger": {"problem": box.ledger.snapshot.problem},
        "prepare": {"alive": prepare.alive, "restarts": prepare.restarts},
        "model": {"name": box.model.name, "sha256": box.model.sha256},
        "switch": box.switch.state.phase,
        "disk_free_bytes": free,
        "tls_days": box.tls.days_left(time.time()) if box.tls is not None else None,
        "board": {"state": box.board().state, "problem": box.board().problem},
        "control": _control(box),
        "draining": box.admission.draining,
        "degraded": degraded(box),
    }


def _control(box: Box) -> dict[str, Any]:
    """How the queue goes; a fallback keeps the box serving."""
    steering, ticker = box.steering(), box.control().ticker
    return {
        "order": steering.order,
        "fallback": steering.fallback,
        "why": FALLBACKS.get(steering.fallback, ""),
        "ticker": ticker.mode,
        "tick_late_p99_ms": round(ticker.late_p99_s * 1e3, 3) if ticker.ticks else None,
    }


def disk_free(box: Box) -> int | None:
    """Bytes that may still be written to the state directory; None when it cannot be asked."""
    try:
        found = os.statvfs(box.config.server.state_dir)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def degraded(box: Box) -> list[str]:
    """Why the box does not run as it should; empty when it does."""
    ready = box.supervisor.snapshot.ready
    reasons = list(ready.degraded) if ready is not None else []
    if box.keys.problem:
        reasons.append("keys: they cannot be read from the ledger")
    if not box.ledger.snapshot.recording:
        reasons.append("ledger: off (STEELYARD_LEDGER=off), so nothing is counted")
    if box.tls is not None and (problem := box.tls.problem(time.time())):
        reasons.append(f"tls: {problem}")
    if box.encoder.problem:
        reasons.append(f"encoder: {box.encoder.problem}")
    if problem := box.board().trouble:
        reasons.append(f"board: {problem}")
    if problem := box.forecasts.degraded:
        reasons.append(f"forecast: {problem}")
    if box.control().degraded:
        reasons.append(f"control: {box.control().degraded}")
    if box.steering().fallback == "broken":
        reasons.append(f"control: {FALLBACKS['broken']}")
    return reasons


async def models(request: Request) -> Response:
    """The served model first, then the encoder."""
    found = [_served(box_of(request)), _encoder(box_of(request))]
    return json_response({"object": "list", "data": found})


async def model(request: Request) -> Response:
    """One of them, by any of its names."""
    box, name = box_of(request), str(request.path_params["id"])
    if name in served_names(box):
        return json_response(_served(box))
    if name in encoder.ALIASES:
        return json_response(_encoder(box))
    raise NotFound(
        f"no model {name[:100]!r} here: GET /v1/models lists them",
        param="model",
        code="model_not_found",
    )


def _served(box: Box) -> dict[str, Any]:
    header, ready = box.model.header, box.supervisor.snapshot.ready
    return {
        "id": box.model.name,
        "object": "model",
        "created": int(box.started_at),
        "owned_by": "steelyard",
        "aliases": sorted(served_names(box) - {box.model.name}),
        "tags": [],
        "meta": {
            "vocab_type": ready.vocab_type if ready is not None else None,
            "n_vocab": header.n_vocab,
            "n_ctx": box.n_ctx,
            "n_ctx_train": header.n_ctx_train,
            "n_embd": header.n_embd,
            "n_params": header.n_params,
            "size": header.file_size,
            "sha256": box.model.sha256,
        },
    }


def _encoder(box: Box) -> dict[str, Any]:
    return {
        "id": encoder.NAME,
        "object": "model",
        "created": int(box.started_at),
        "owned_by": "steelyard",
        "aliases": sorted(encoder.ALIASES - {encoder.NAME}),
        "tags": ["embedding"],
        "meta": {
            "n_vocab": encoder.VOCABULARY,
            "n_ctx_train": encoder.MAX_TOKENS,
            "n_embd": encoder.DIMENSIONS,
            "sha256": encoder.MODEL_SHA256,
        },
    }


async def props(request: Request) -> Response:
    """llama-server's /props, and what else tells how this box is set up."""
    box = box_of(request)
    engine, prepare = box.supervisor.snapshot, box.preparer.snapshot()
    template = prepare.chat_template
    return json_response(
        {
            "default_generation_settings": {
                "n_ctx": box.n_ctx,
                "params": {
                    **default_sampling(box.config.sampling),
                    "lora": told(box.adapters.default),
                },
            },
            "total_slots": box.config.engine.max_sequences,
            "model_alias": box.model.name,
            "model_path": box.model.path.name,
            "model_sha256": box.model.sha256,
            "chat_template": template,
            "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest(),
            "chat_template_source": prepare.template_source,
            "chat_template_caps": {},
            "modalities": {"vision": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "build_info": f"steelyard {box.version}, llama.cpp {box.llama_commit}",
            "is_sleeping": False,
            "engine": {
                "state": engine.state,
                "system_info": engine.ready.system_info if engine.ready else "",
                "layers_offloaded": engine.ready.layers_offloaded if engine.ready else 0,
                "flash_attention": bool(engine.ready and engine.ready.flash_attention),
            },
            "encoder": {"name": encoder.NAME, "providers": box.encoder.providers},
            "forecaster": _forecaster(box),
            "degraded": degraded(box),
        }
    )


def _forecaster(box: Box) -> dict[str, Any]:
    found = box.forecasts.snapshot
    return {
        "version": found.version,
        "state": found.state,
        "provider": found.provider,
        "precision": found.precision,
        "encoder": found.encoder,
    }


async def slots(request: Request) -> Response:
    """llama-server's slots: our sequences, as many as may run at a time."""
    box = box_of(request)
    busy = box.supervisor.snapshot.slots
    total = box.config.engine.max_sequences
    if request.query_params.get("fail_on_no_slot") == "1" and len(busy) >= total:
        raise Unavailable("no slot is idle", code="no_slot")
    taken = {slot.id for slot in busy}
    idle = [number for number in range(total) if number not in taken][: max(0, total - len(busy))]
    found = [_busy(box, slot) for slot in busy] + [_idle(box, number) for number in idle]
    return json_response(sorted(found, key=lambda slot: slot["id"]))


def _idle(box: Box, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "n_ctx": box.n_ctx,
        "speculative": box.config.engine.draft_tokens > 0,
        "is_processing": False,
        "id_task": -1,
        "n_prompt_tokens": 0,
        "n_prompt_tokens_processed": 0,
        "n_prompt_tokens_cache": 0,
        "params": {},
        "next_token": [_next(0, 0)],
        "forecast": None,
    }


def _busy(box: Box, slot: SlotState) -> dict[str, Any]:
    ticket = box.supervisor.tickets.get(slot.request)
    params: dict[str, Any] = {}
    if ticket is not None:
        params = msgspec.structs.asdict(ticket.request.sampling)
        params["logit_bias"] = [(token, bounded(bias)) for token, bias in params["logit_bias"]]
        params["n_predict"] = ticket.request.max_tokens
        params["stream"] = ticket.request.stream
        params["lora"] = told(ticket.request.lora)
    return {
        **_idle(box, slot.id),
        "is_processing": True,
        "id_task": slot.request,
        "choice": slot.choice,
        "state": slot.state,
        "n_prompt_tokens": slot.prompt_tokens,
        "n_prompt_tokens_processed": slot.prompt_done,
        "n_prompt_tokens_cache": slot.cached_tokens,
        "params": params,
        "next_token": [_next(slot.max_tokens - slot.generated, slot.generated)],
        "forecast": _foreseen(box, slot),
    }


def _foreseen(box: Box, slot: SlotState) -> dict[str, Any] | None:
    """What is expected of the choice in this slot by now; None while forecasts are off."""
    aboard = box.aboard.get(slot.request)
    if aboard is None or aboard.outlook is None:
        return None
    found, forecast = aboard.outlook.at(slot.choice), aboard.outlook.forecast
    return {
        "p10": found.p10,
        "p50": found.p50,
        "p90": found.p90,
        "first_p50": forecast.p50,
        "from": aboard.outlook.kind,
        "version": forecast.version,
    }


def _next(remain: int, decoded: int) -> dict[str, Any]:
    return {
        "has_next_token": remain > 0,
        "has_new_line": False,
        "n_remain": remain,
        "n_decoded": decoded,
    }


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    box = box_of(request)
    headers = {"Process-Start-Time-Unix": str(int(box.started_at))}
    return Response(box.metrics.text(), media_type=CONTENT_TYPE, headers=headers)
