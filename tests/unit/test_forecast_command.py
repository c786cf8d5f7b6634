"""`steelyard forecast`: what it sends, what it prints, and what it says when there is no answer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import run
from appliance.commands.forecast import table

TOLD: dict[str, Any] = {
    "prompt_tokens": 16,
    "output_tokens": {"p10": 20, "p50": 100, "p90": 300, "p99": 450, "mean": 120},
    "confidence": 0.5,
    "claim": "confidence",
    "cost": {"low": 0.00001, "mid": 0.00005, "high": 0.00015, "currency": "EUR"},
    "kv_tokens": 316,
    "queue_position": 0,
    "eta_ms": 2500,
    "forecaster": {"version": "v7", "state": "ok"},
}


class Desk(HTTPServer):
    """Answers as it is told to, and keeps what came."""

    status = 200
    answer: Any = TOLD

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Clerk)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Clerk(BaseHTTPRequestHandler):
    server: Desk

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.server.keys.append(self.headers.get("Authorization"))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in ("STEELYARD_API_KEY", "STEELYARD_ADMIN_KEY", "STEELYARD_URL"):
        monkeypatch.delenv(name, raising=False)
    with Desk() as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        yield found
        found.shutdown()


def test_the_text_goes_out_as_a_chat_and_comes_back_as_a_table(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["forecast", "How?", "--max-tokens", "9", "--system", "Brief.", "--url", desk.url]) == 0
    )
    assert desk.bodies == [
        {
            "messages": [
                {"role": "system", "content": "Brief."},
                {"role": "user", "content": "How?"},
            ],
            "max_tokens": 9,
        }
    ]
    assert desk.keys == [None]
    out = capsys.readouterr().out
    assert "100 tokens, 8 of 10 from 20 to 300" in out
    assert "5e-05 EUR, from 1e-05 to 0.00015" in out
    assert "2.5 s" in out
    assert "v7, ok" in out


def test_json_is_what_the_box_answered(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forecast", "hi", "--json", "--url", desk.url]) == 0
    assert json.loads(capsys.readouterr().out) == TOLD


def test_the_key_comes_from_the_file_else_from_the_environment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STEELYARD_API_KEY", "sk-env")
    (tmp_path / "key").write_text("sk-file\n")
    run(["forecast", "hi", "--url", desk.url])
    run(["forecast", "hi", "--url", desk.url, "--key-file", str(tmp_path / "key")])
    assert desk.keys == ["Bearer sk-env", "Bearer sk-file"]


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (401, {"error": {"message": "no key was sent"}}, "no key was sent. Export the key as"),
        (404, {"error": {"message": "this box makes no forecasts"}}, "makes no forecasts"),
        (502, "gateway", "said 502 and no reason: is it a box?"),
        (200, ["no box"], "says something else than a box"),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_box(
    desk: Desk, capsys: pytest.CaptureFixture[str], status: int, answer: Any, said: str
) -> None:
    desk.status, desk.answer = status, answer
    assert run(["forecast", "hi", "--url", desk.url]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_box_that_is_not_there_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["forecast", "hi", "--url", "http://127.0.0.1:1"]) == 1
    assert "Nothing listens at http://127.0.0.1:1" in capsys.readouterr().err


def test_what_is_not_known_is_told_as_that() -> None:
    unknown = {"low": None, "mid": None, "high": None, "currency": "EUR"}
    bare = {
        **TOLD,
        "cost": unknown,
        "confidence": None,
        "eta_ms": None,
        "queue_position": 3,
        "forecaster": {"version": "", "state": "global"},
    }
    text = table(bare)
    assert text.count("not known yet") == 2
    assert "3 before it" in text
    assert "steelyard calibrate" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_box_without_prices_says_where_to_set_them() -> None:
    free = {"low": 0.0, "mid": 0.0, "high": 0.0, "currency": "EUR"}
    text = table({**TOLD, "cost": free, "eta_ms": 300})
    assert "docs/cost.md" in text
    assert "300 ms" in text
