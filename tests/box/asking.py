"""One HTTP request followed by a thread of its own, so that a test can do things meanwhile."""

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

from tests.box.running import RunningBox

END_S = 180.0
"""Time for a request to end, on a busy machine."""


class Asked:
    """A request that has been sent. What has come of it so far can be read at any time."""

    def __init__(
        self, box: RunningBox, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> None:
        self.body = body
        self.sent_at = 0.0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        """The stream's events, or the one body of an answer that is no stream."""
        self.comments: list[str] = []
        self.finished_properly = False
        """The stream ended with [DONE]."""
        self.problem = ""
        """Why the connection broke, if it did."""
        self._ended = threading.Event()
        address = urlsplit(box.url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=END_S)
        self._connection.connect()
        self._socket: socket.socket = self._connection.sock
        self._thread = threading.Thread(target=self._follow, args=(path, headers), daemon=True)
        self._thread.start()

    # -- what a test asks ------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self._ended.is_set()

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [event["error"] for event in self.events if "error" in event]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for event in self.events for choice in event.get("choices", ())]

    @property
    def token_ids(self) -> list[int]:
        return [token for choice in self.choices for token in choice.get("token_ids") or ()]

    @property
    def text(self) -> str:
        return "".join(choice["text"] for choice in self.choices)

    @property
    def usage(self) -> dict[str, Any]:
        (found,) = (event["usage"] for event in self.events if event.get("usage"))
        return dict(found)

    def wait(self, timeout: float = END_S) -> Self:
        """Until the answer has ended, in whatever way."""
        assert self._ended.wait(timeout), f"no end within {timeout} s: {self.events[-3:]}"
        self._thread.join()
        return self

    def wait_for_tokens(self, count: int = 1) -> Self:
        """Until so many tokens of a stream have arrived."""
        deadline = time.monotonic() + END_S
        while len(self.token_ids) < count:
            assert time.monotonic() < deadline, f"no {count} tokens: {self.events[-3:]}"
            assert not self.over or len(self.token_ids) >= count, f"ended: {self.events[-3:]}"
            time.sleep(0.002)
        return self

    def hang_up(self) -> None:
        """As a client that is gone: the connection closes at once. Nothing where the answer has
        ended by itself."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    # -- the thread ------------------------------------------------------------------------------

    def _follow(self, path: str, headers: dict[str, str]) -> None:
        try:
            self.sent_at = time.monotonic()
            self._connection.request(
                "POST",
                path,
                json.dumps(self.body),
                {"Content-Type": "application/json", **headers},
            )
            with self._connection.getresponse() as response:
                self.headers = {name.lower(): value for name, value in response.getheaders()}
                self.status = response.status
                self._read(response)
        except (OSError, http.client.HTTPException) as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._connection.close()
            self._socket.close()
            self._ended.set()

    def _read(self, response: http.client.HTTPResponse) -> None:
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            self.events.append(json.loads(response.read()))
            return
        while line := response.readline():
            self._take(line.decode().rstrip("\n"))

    def _take(self, line: str) -> None:
        if line.startswith(":"):
            self.comments.append(line[1:].strip())
        elif line == "data: [DONE]":
            self.finished_properly = True
        elif line:
            assert not self.finished_properly, f"after [DONE]: {line}"
            self.events.append(json.loads(line.removeprefix("data: ")))


def ask(
    box: RunningBox,
    prompt: str | list[int] = "Once upon a time",
    *,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> Asked:
    """Sends a greedy completion that ends with `max_tokens` and nothing else."""
    body = {
        "prompt": prompt,
        "stream": True,
        "max_tokens": 20,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **fields,
    }
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    return Asked(box, "/v1/completions", body, headers or {})


def check_complete(box: RunningBox, asked: Asked) -> None:
    """The answer is whole: every token once, in order, of this request alone, and counted."""
    asked.wait()
    told = (asked.status, asked.problem, asked.errors)
    assert told == (200, "", []), told
    assert asked.finished_properly or not asked.body["stream"]
    assert len({event["id"] for event in asked.events}) == 1
    assert {choice["index"] for choice in asked.choices} == {0}
    limit = asked.body["max_tokens"]
    assert len(asked.token_ids) == limit
    assert asked.usage["completion_tokens"] == limit
    assert asked.usage["total_tokens"] == limit + asked.usage["prompt_tokens"]
    spelt = box.http.post("/detokenize", json={"tokens": asked.token_ids}).json()["content"]
    assert spelt == asked.text
    reasons = [choice["finish_reason"] for choice in asked.choices if choice["finish_reason"]]
    assert reasons == ["length"]
