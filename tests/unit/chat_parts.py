"""A chat's request and its chunks."""

import json
from typing import Any

from appliance.api.box import Box
from appliance.engine.commands import Submit
from tests.unit.api_box import chat, client_of, events_of

PATH = "/v1/chat/completions"


async def post(box: Box, **more: Any) -> Any:
    return await client_of(box).post(PATH, json=chat(**more))


async def chunks(box: Box, **more: Any) -> list[Any]:
    answer = await post(box, stream=True, **more)
    assert answer.status_code == 200
    *events, last = events_of(answer.text)
    assert last == "[DONE]"
    return [json.loads(event) for event in events]


def submitted(box: Box) -> Submit:
    supervisor: Any = box.supervisor
    request = supervisor.last.request
    assert isinstance(request, Submit)
    return request
