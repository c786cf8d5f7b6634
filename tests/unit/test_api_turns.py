"""What is prepared is prepared for a key: so one key does not hold up the others."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.api_box import BytePreparer, client_of
from tests.unit.forecast_parts import forecasting

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = {"prompt": "hi"}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {**CHAT, "max_tokens": 4, "logprobs": True}),
    ("/v1/completions", {**TEXT, "max_tokens": 4}),
    ("/completion", {**TEXT, "n_predict": 4}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 16}),
    ("/v1/forecast", CHAT),
    ("/v1/forecast", TEXT),
    ("/tokenize", {"content": "hi"}),
    ("/detokenize", {"tokens": [104]}),
    ("/apply-template", CHAT),
]


@pytest.mark.parametrize(("path", "body"), ASKED, ids=lambda value: str(value)[:24])
async def test_every_job_is_queued_for_the_key_that_asks(
    path: str, body: dict[str, Any], tmp_path: Path
) -> None:
    async with forecasting(tmp_path) as box:
        secret = box.keys.create("app", ["infer"])
        client = client_of(box, peer="10.0.0.9")
        answer = await client.post(path, json=body, headers={"X-Api-Key": secret})
    assert answer.status_code == 200, answer.text
    assert isinstance(box.preparer, BytePreparer)
    assert box.preparer.keys == [box.keys.find("app").id]
