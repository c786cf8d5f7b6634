"""A small HTTP server that answers a calibration as a box does, and can be told to misbehave."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from appliance.calibrate.answers import Sampling
from appliance.forecast.dataset import Answered, Message, Prompt

SAMPLING = Sampling(samples=2, temperature=0.7, top_p=0.95, max_tokens=64)


def prompt(name: str, text: str = "", **given: Any) -> Prompt:
    return Prompt(id=name, messages=(Message("user", text or f"Say {name}."),), **given)


def answered(name: str, sample: int = 0, tokens: int = 7, **given: Any) -> Answered:
    drawn: dict[str, Any] = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 64, "seed": 1,
             "finish_reason": "stop", "prompt_tokens": 5} | given  # fmt: skip
    return Answered(id=name, sample=sample, completion_tokens=tokens, **drawn)


@dataclass
class Fake:
    """What the box will do next."""

    url: str = ""
    key: str = ""
    running: int = 0
    waiting: int = 0
    knows_signals: bool = True
    refuses: tuple[int, str] | None = None
    down_for: int = 0
    """So many requests get 503 first."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """Answers wait for it."""
    started: threading.Event = field(default_factory=threading.Event)


@contextmanager
def fake_box() -> Iterator[Fake]:
    """A server on a free port."""
    fake = Fake()
    fake.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
                self._fail(401, "this needs a key")
            elif self.path == "/metrics":
                self._send(200, _metrics(fake))
            else:
                told = {"model_alias": "tiny", "model_sha256": "ab" * 32, "total_slots": 4,
                        "chat_template": ""}  # fmt: skip
                self._send(200, json.dumps(told))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.asked.append(body)
            fake.started.set()
            fake.gate.wait(20)
            if fake.down_for > 0:
                fake.down_for -= 1
                self._fail(503, "the engine restarts")
            elif fake.refuses is not None:
                self._fail(*fake.refuses)
            elif "return_signals" in body and not fake.knows_signals:
                self._fail(400, "no field return_signals")
            else:
                self._send(200, json.dumps(_answer(body)))

        def _fail(self, status: int, message: str) -> None:
            self._send(status, json.dumps({"error": {"message": message, "code": "x"}}))

        def _send(self, status: int, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that went away is part of the game."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _metrics(fake: Fake) -> str:
    return (
        f"llamacpp:requests_processing {fake.running}\nllamacpp:requests_deferred {fake.waiting}\n"
    )


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "finish_reason": "stop",
        "token_ids": [1, 2, 3],
        "message": {"role": "assistant", "content": "Hi"},
    }
    if body.get("return_signals"):
        choice["signals"] = [[8, -1.5, 2.0, -0.5]]
    return {"choices": [choice], "usage": {"prompt_tokens": 4, "completion_tokens": 3}}
