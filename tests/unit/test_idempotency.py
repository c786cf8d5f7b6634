"""Asking again under the same Idempotency-Key."""

import pytest
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.idempotency import Answers
from appliance.api.replies import json_response
from appliance.api.trace import Trace


def asked(key: str) -> Request:
    trace = Trace("req", "0" * 31 + "1", "1" * 16, "00", 0.0)
    headers = [(b"idempotency-key", key.encode())]
    return Request(
        {"type": "http", "path": "/admin/x", "headers": headers, "steelyard.trace": trace}
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [200, 202])
async def test_who_asks_again_gets_the_first_answer_whole(status: int) -> None:
    answers, made = Answers(clock=lambda: 0.0), []

    async def make() -> Response:
        made.append(status)
        return json_response({"status": "updating"}, status=status)

    first, again = [await answers.once(asked("one"), b"{}", make) for _ in range(2)]
    assert made == [status]
    assert (again.status_code, again.body) == (first.status_code, first.body)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotent-replayed"] == "true"
