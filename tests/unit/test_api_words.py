"""What is said to a client that asked for the wrong thing: the route it meant, in words of JSON."""

import re
from pathlib import Path
from typing import Any

import pytest

from appliance.api.bodies import parse
from appliance.api.chat_shapes import ChatRequest
from appliance.api.nearest import MOST_CHARS, nearest
from appliance.api.routes import ROUTES
from appliance.api.text_shapes import CompletionRequest, EmbeddingRequest
from appliance.errors import BadRequest
from tests.unit.api_box import chat, client_of, make_box

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1//chat/completions", "/v1/chat/completions"),
        ("/V1/Chat/Completions", "/v1/chat/completions"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/embeddings", "/v1/embeddings"),
        ("/v1/metrics", "/metrics"),
        ("/v2/rerank", "/v1/rerank"),
        ("/v1/response", "/v1/responses"),
        ("/v1/messages", "/v1/chat/completions"),
        ("/api/chat", "/v1/chat/completions"),
        ("/api/tags", "/v1/models"),
        ("/forecast", "/v1/forecast"),
        ("/", "/docs"),
        ("/v1", "/docs"),
        ("/lora-adapter", "/lora-adapters"),
    ],
)
async def test_a_wrong_path_is_answered_with_the_one_that_was_meant(
    tmp_path: Path, path: str, meant: str
) -> None:
    answer = await client_of(make_box(tmp_path)).post(path, json=chat())
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "not_found")
    assert f"did you mean {meant!r}?" in error["message"]


async def test_a_path_like_no_other_is_answered_with_where_all_are(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path))
    for path in ("/v1/audio/transcriptions", "/.env", "/v1/chat/completions" + "/x" * 40):
        message = (await client.get(path)).json()["error"]["message"]
        assert message.endswith(": GET /openapi.json lists them all")


def test_what_is_meant_is_a_route_that_is_there() -> None:
    routes = {str(route.path) for route in ROUTES}
    for path in ("/api/chat", "/api/generate", "/embedding", "/healthz", "/ready"):
        assert nearest(path, routes) in routes
        assert nearest(path, set()) == ""
    assert nearest("/v1/chat/completion".ljust(MOST_CHARS + 1, "s"), routes) == ""


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        (ChatRequest, {"messages": []}, "messages: must have at least 1 item, not 0"),
        (ChatRequest, {"store": True}, "store: must be false"),
        (ChatRequest, {"user": "x" * 600}, "user: must have at most 512 characters"),
        (ChatRequest, {"model": ""}, "model: must have at least 1 character"),
        (CompletionRequest, {"echo": True}, "echo: must be false"),
        (EmbeddingRequest, {"input": []}, "input: must be a valid string or must have at least 1"),
    ],
)
def test_a_wrong_value_is_told_in_words_of_json(
    kind: Any, change: dict[str, Any], said: str
) -> None:
    bare: dict[Any, dict[str, Any]] = {
        ChatRequest: {"messages": [USER]},
        CompletionRequest: {"prompt": "a"},
        EmbeddingRequest: {"input": "a"},
    }
    with pytest.raises(BadRequest) as caught:
        parse(kind, {**bare[kind], **change}, report=False)
    assert str(caught.value).startswith(said)
    assert not re.search(r"True|False|None|validation|should", str(caught.value))
