"""POST /v1/audit/{trace_id}/verify: whether client and box have the same tokens.

The client names a request and gives the token digests that it has. The same as the ledger's: that
is chained, and both are sure from then on. Another: that is chained too, and the answer is replayed
(`replays.py`); the error object tells which tokens differ and what may explain it.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.archive import Answer, Archive, answers_of, described, head_of, name_of
from appliance.api.audit_faults import DigestConflict, NotReplayable
from appliance.api.audit_replay import ambiguous, replayed
from appliance.api.audit_shapes import VerifyRequest
from appliance.api.bodies import read_shape
from appliance.api.replies import json_response
from appliance.ledger import audits
from appliance.ledger.verify import token_digest

Told = dict[str, Any]


async def verify(request: Request) -> Response:
    """Compare token digests with the ledger: 200 and archived, or 409 with a replay's report."""
    shape, _ = await read_shape(request, VerifyRequest)
    archive = Archive(request)
    records = await archive.records(name_of(request))
    answers = _claimed(answers_of(records, shape), shape)
    wrong = [pair for pair in answers if pair[0].digest != pair[1]]
    done = [
        {**described(answer), "archived_seq": await archive.archive(answer)}
        for answer, claim in answers
        if answer.digest == claim
    ]
    if wrong:
        raise await _conflict(request, archive, wrong, shape, done)
    return json_response({"status": "archived", "answers": done, "head": head_of(request)})


def _claimed(answers: Sequence[Answer], shape: VerifyRequest) -> list[tuple[Answer, str]]:
    """Each answer with the digest that the client has of it."""
    if len(answers) != len(shape.claims):
        raise ambiguous(answers, len(shape.claims))
    for answer in answers:
        if not answer.digest:
            row = answer.record.found.row
            raise NotReplayable(
                f"the box lost power while it worked on {row.id}, and its prompt was not yet on "
                "disk, so the ledger has no digest of it"
            )
    return list(zip(answers, shape.claims, strict=True))


async def _conflict(
    request: Request,
    archive: Archive,
    wrong: Sequence[tuple[Answer, str]],
    shape: VerifyRequest,
    done: Sequence[Told],
) -> DigestConflict:
    """The answer to wrong digests. All are chained; the first one's answer is replayed."""
    differences = [await _difference(archive, answer, claim, shape) for answer, claim in wrong]
    first, more = wrong[0][0], differences[1:]
    told = {**differences[0], **await replayed(request, archive, first, force=False)}
    row = first.record.found.row
    return DigestConflict(
        f"the digest of {row.id}, choice {first.choice}, is not the ledger's: {told['said']}",
        {**told, **({"further": more} if more else {}), **({"archived": done} if done else {})},
    )


async def _difference(archive: Archive, answer: Answer, claim: str, shape: VerifyRequest) -> Told:
    told: Told = {**described(answer), "claimed": claim, "first_difference": None}
    if shape.token_ids is not None:
        told |= await _compare(archive, answer, claim, shape.prompt_token_ids, shape.token_ids)
    seq = await archive.conflict(answer, claim, told["first_difference"])
    return {**told, "conflict_seq": seq}


async def _compare(
    archive: Archive, answer: Answer, claim: str, prompt: list[int] | None, ids: list[int]
) -> Told:
    """The client's token ids against the ledger's."""
    stored = await archive.read(lambda db: audits.tokens(db, answer.record.found.seq))
    if stored is None:
        return {}
    ours = [*stored[0], *stored[1 + answer.choice]]
    given = list(stored[0]) if prompt is None else prompt
    return {
        "first_difference": first_difference(ours, [*given, *ids]),
        "ids_have_the_claimed_digest": token_digest(given, ids) == claim,
    }


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first 1-based position at which the two are not the same; None where they are."""
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False), start=1):
        if a != b:
            return position
    shorter, longer = sorted((len(ours), len(theirs)))
    return None if shorter == longer else shorter + 1
