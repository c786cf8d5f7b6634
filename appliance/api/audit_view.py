"""What the ledger holds, told: a request of one's own, and the conflicts of all."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.archive import Archive, Record, head_of, name_of
from appliance.api.audit_replay import replays_of, stored_report
from appliance.api.replays import Replays
from appliance.api.replies import json_response
from appliance.errors import BadRequest
from appliance.ledger import audits
from appliance.ledger.audits import Audit
from appliance.ledger.rows import Replay

CONFLICTS = 100
"""In one answer of /admin/audit/conflicts."""

Told = dict[str, Any]


async def show(request: Request) -> Response:
    """What the ledger holds of one's own request, and what audits found out about it."""
    archive, replays = Archive(request), replays_of(request)
    records = await archive.records(name_of(request))
    told = [await _record(archive, replays, record) for record in records]
    return json_response({"requests": told, "head": head_of(request)})


async def conflicts(request: Request) -> Response:
    """Digests that did not match, newest first; `?before=SEQ` goes on."""
    before = request.query_params.get("before", "")
    if before and not (before.isascii() and before.isdecimal() and len(before) < 19):
        raise BadRequest("before: must be an entry's number", param="before", code="invalid_value")
    last = int(before) if before else None
    found = await Archive(request).read(lambda db: audits.conflicts(db, last, CONFLICTS))
    more = found[-1].seq if len(found) == CONFLICTS else None
    return json_response({"conflicts": [_audit(audit) for audit in found], "before": more})


def _audit(audit: Audit) -> Told:
    return {"seq": audit.seq, "kind": audit.row.KIND, **msgspec.structs.asdict(audit.row)}


async def _record(archive: Archive, replays: Replays, record: Record) -> Told:
    """One request: its row, its place in the chain, and its audits with their reports."""
    row = record.found.row
    found = [_audit(audit) for audit in record.audits]
    for told, audit in zip(found, record.audits, strict=True):
        if isinstance(audit.row, Replay):
            told["report"] = await stored_report(archive, audit)
    waiting = [i for i in range(len(row.choices)) if replays.waits(row.number, i)]
    return {
        "seq": record.found.seq,
        "hash": record.found.hash,
        "request": row,
        "digests": [choice.digest for choice in row.choices],
        "audits": found,
        "replays_pending": waiting,
    }
