"""The replay of one answer: the stored one, else a new one, else why there is none.

POST /admin/audit/{trace_id}/replay asks for it outright.
"""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.adapters import NotLoaded
from appliance.api.archive import Answer, Archive, answers_of, described, name_of
from appliance.api.audit_faults import NotReplayable
from appliance.api.audit_shapes import ReplayRequest
from appliance.api.bodies import decode, parse, read_body
from appliance.api.box import Box, box_of
from appliance.api.replay_report import Report, lora_of
from appliance.api.replays import Done, Job, Replays, settled
from appliance.api.replies import json_response
from appliance.api.trace import trace_of
from appliance.errors import ApiError, BadRequest, NotFound
from appliance.ledger import audits
from appliance.ledger.audits import Audit, Found
from appliance.ledger.rows import Replay

WAIT_S = 60.0
"""A replay that takes longer goes on without its client, who asks for its report later."""

Told = dict[str, Any]


async def replay(request: Request) -> Response:
    """Run one answer again, or tell what its replay found; `force` runs it once more."""
    limits = box_of(request).config.limits
    body = await read_body(request, limits.body_bytes, limits.body_s)
    data = decode(body, limits.json_depth) if body.strip() else {}
    shape, _ = parse(ReplayRequest, data, report=False)
    archive = Archive(request)
    answers = answers_of(await archive.records(name_of(request)), shape)
    if len(answers) != 1:
        raise ambiguous(answers, 1)
    told = await replayed(request, archive, answers[0], force=bool(shape.force))
    return json_response({**described(answers[0]), **told}, status=_status(told))


def _status(told: Told) -> int:
    return 202 if told["replay"] == "pending" else 409 if told["report"] is None else 200


def replays_of(request: Request) -> Replays:
    found = request.app.state.replays
    assert isinstance(found, Replays)
    return found


def ambiguous(answers: Sequence[Answer], given: int) -> ApiError:
    if not answers:
        return NotFound(
            "the ledger has no answer of that request: it was refused, or id and choice name none",
            param="id",
            code="request_not_found",
        )
    named = ", ".join(f"{answer.record.found.row.id} choice {answer.choice}" for answer in answers)
    return BadRequest(
        f"{given} given, and the name means {len(answers)} answers: give as many digests in this "
        f"order, or name one by id and choice ({named[:2000]})",
        param="digests",
        code="invalid_value",
    )


async def replayed(request: Request, archive: Archive, answer: Answer, *, force: bool) -> Told:
    """The stored report, else that of a replay that is run now, or why there is none yet."""
    audit = None if force else settled(answer.record.audits, answer.choice)
    if audit is not None:
        return _told(audit.seq, await stored_report(archive, audit), audit)
    try:
        job = await _job(request, archive, answer)
        future, runs = replays_of(request).ask(job)
    except ApiError as fault:
        return _none("impossible" if isinstance(fault, NotReplayable) else "busy", fault.message)
    if runs:
        await asyncio.wait({future}, timeout=WAIT_S)
    if not future.done():
        return _none("pending", "its replay runs or waits: GET /v1/audit/ID tells when it is done")
    outcome = future.result()
    if isinstance(outcome, Done):
        return _told(outcome.seq, outcome.report)
    return _none("busy", outcome.message)


def _none(state: str, said: str) -> Told:
    return {"replay": state, "said": said, "report": None}


def _told(seq: int, report: Report | None, audit: Audit | None = None) -> Told:
    if report is None:
        assert audit is not None
        assert isinstance(audit.row, Replay)
        said = f"its replay was {audit.row.result}; the report is no longer kept"
        return {"replay": audit.row.result, "replay_seq": seq, "said": said, "report": None}
    return {
        "replay": report.result,
        "replay_seq": seq,
        "said": f"a replay of the ledger's tokens was {report.result}",
        "report": report,
    }


async def stored_report(archive: Archive, audit: Audit) -> Report | None:
    """None where retention has dropped it."""
    kept = await archive.read(lambda db: audits.report(db, audit.seq))
    return msgspec.json.decode(zlib.decompress(kept), type=Report) if kept is not None else None


async def _job(request: Request, archive: Archive, answer: Answer) -> Job:
    """Raises NotReplayable."""
    box, found = box_of(request), answer.record.found
    stored = await archive.read(lambda db: audits.tokens(db, found.seq))
    if stored is None:
        raise NotReplayable("its tokens are no longer kept (retention dropped them)")
    prompt, ids = tuple(stored[0]), tuple(stored[1 + answer.choice])
    _check_replayable(box, found, len(prompt) + len(ids))
    return Job(found, answer.choice, prompt, ids, trace_of(request))


def _check_replayable(box: Box, found: Found, tokens: int) -> None:
    row = found.row
    if row.model_sha256 != box.model.sha256:
        raise NotReplayable(
            f"it was written by the model {row.model} ({row.model_sha256[:12]}), and this box now "
            f"runs {box.model.name} ({box.model.sha256[:12]}): load that file again"
        )
    try:
        box.adapters.of_record(lora_of(row))
    except NotLoaded as error:
        raise NotReplayable(
            f"it was computed with a LoRA adapter, and {error}: list that file under model.lora"
        ) from None
    if tokens > box.n_ctx:
        raise NotReplayable(
            f"its {tokens} tokens do not fit the context of {box.n_ctx}: raise engine.context"
        )
