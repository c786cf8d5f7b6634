"""Requests that several test files send, and how they read what comes back."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.box.running import RunningBox

CHAT = "/v1/chat/completions"
PATIENCE_S = 60.0
BOUND_S = 60.0
"""A refusal takes no longer, whatever was sent and however busy the machine is."""

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": ["Paris", "Rome"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK: Any = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}

ERROR_KEYS = {"message", "type", "param", "code"}


def chat(**more: Any) -> dict[str, Any]:
    """A small chat request."""
    return {"messages": HELLO, "max_tokens": 8, **more}


def saying(text: str) -> dict[str, Any]:
    """Fields that leave the model no other answer than `text`, so that a test knows it: what a
    model would say by itself may differ with the shape of the batch."""
    return {"grammar": f"start: {json.dumps(text)}", "grammar_type": "lark"}


def check_arguments(name: str, arguments: str) -> None:
    """The arguments of a call to one of the tools above follow its schema."""
    found = json.loads(arguments)
    if name == "get_weather":
        assert set(found) == {"city", "days"}
        assert found["city"] in ("Paris", "Rome")
        assert type(found["days"]) is int
        assert 1 <= found["days"] <= 9
    else:
        assert name == "get_time"
        assert set(found) == {"zone"}
        assert found["zone"] in ("UTC", "CET")


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object of an answer, which has the shape of all of them."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() >= ERROR_KEYS
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    return error


def refused(answer: httpx.Response) -> dict[str, Any]:
    """The error object of an answer that blames the client."""
    assert 400 <= answer.status_code < 500, answer.text
    return error_of(answer)


def events_of(text: str) -> list[dict[str, Any]]:
    """The JSON events of a stream; comments and [DONE] left out."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@contextmanager
def connected(box: RunningBox, source: str = "") -> Iterator[socket.socket]:
    """A bare connection, from another address of this machine if `source` names one. Nothing on it
    may take longer than `PATIENCE_S`."""
    address = httpx.URL(box.url)
    with socket.create_connection(
        (address.host, address.port), PATIENCE_S, (source, 0) if source else None
    ) as found:
        yield found


def send(box: RunningBox, body: Any, path: str = CHAT, **headers: str) -> httpx.Response:
    """Any answer, in time; `body` is the raw body, or data to be written as JSON."""
    started = time.monotonic()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    answer = box.http.post(path, content=raw, headers=sent)
    assert time.monotonic() - started < BOUND_S
    assert answer.status_code < 500, answer.text
    return answer


def check_next(box: RunningBox) -> None:
    """The next request is answered as if nothing had been."""
    answer = send(box, chat(**saying("Fine.")))
    assert answer.json()["choices"][0]["message"]["content"] == "Fine."
