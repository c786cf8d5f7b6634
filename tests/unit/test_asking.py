"""Commands that ask a running box: it alone hears the key, and failures are said in words."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from appliance.cli import run
from appliance.study.asking import Box, NotAnswered

KEY = "sk-steelyard-" + "k" * 43
COMMANDS = {
    "forecast": ["forecast", "hi"],
    "board": ["board", "status"],
    "requests": ["requests", "cancel", "x"],
    "model": ["model", "use", "one"],
}
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Desk(ThreadingHTTPServer):
    """Answers everything alike, and keeps what it was asked for."""

    daemon_threads = True

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Clerk)
        self.status, self.body, self.headers = status, body, headers
        self.heard: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Clerk(BaseHTTPRequestHandler):
    server: Desk

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.heard.append(self.path)
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@contextmanager
def desk(status: int = 404, body: bytes = b'{"error": {"message": "told so"}}', **headers: str):
    with Desk(status, body, headers) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No proxy, no address and no other box's state come from outside of the test."""
    for name in (*PROXIES, "no_proxy", "NO_PROXY", "STEELYARD_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", KEY)
    monkeypatch.setenv("STEELYARD_API_KEY", KEY)
    monkeypatch.setenv("STEELYARD_STATE", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A proxy that the environment names."""
    with desk() as found:
        for name in PROXIES:
            monkeypatch.setenv(name, found.url)
        yield found


@pytest.mark.parametrize("command", COMMANDS)
def test_no_proxy_of_the_environment_is_shown_the_key(
    stranger: Desk, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with desk() as box:
        assert run([*COMMANDS[command], "--url", box.url]) == 1
    assert len(box.heard) == 1
    assert stranger.heard == []
    assert "told so" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_that_a_redirect_names_is_shown_the_key(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with desk() as other, desk(302, b"", Location=other.url) as box:
        assert run([*COMMANDS[command], "--url", box.url]) == 1
    assert other.heard == []
    assert f"what answers at {box.url} said 302" in capsys.readouterr().err


def test_a_study_asks_the_box_alone_too(stranger: Desk) -> None:
    with (
        desk() as other,
        desk(307, b"", Location=other.url) as box,
        pytest.raises(NotAnswered, match="307"),
    ):
        Box(box.url, KEY).detokenize([1])
    assert (len(box.heard), other.heard, stranger.heard) == (1, [], [])


@contextmanager
def nobody() -> Iterator[str]:
    """An address that is taken, and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def in_clear() -> Iterator[str]:
    """Answers the first byte of one client with HTTP, whatever the byte is."""

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with suppress(ConnectionError):
                client.recv(1 << 16)  # until it has read the answer and goes

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "url",
    [
        "-",
        "127.0.0.1:8421",
        "http://",
        "http://127.0.0.1:99999",
        "http://b\u00fccher:8421",
        "ftp://127.0.0.1:8421",
        "file:///etc/hostname",
    ],
)
def test_an_address_that_is_none_is_said_to_be_none(
    capsys: pytest.CaptureFixture[str], command: str, url: str
) -> None:
    assert run([*COMMANDS[command], "--url", url]) == 1
    assert "is no address: --url http://HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_wrong_with_the_connection_is_said_with_what_to_do(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with nobody() as url:
        assert run([*COMMANDS[command], "--url", url]) == 1
    assert "Nothing listens at" in capsys.readouterr().err
    with in_clear() as url:
        assert run([*COMMANDS[command], "--url", url]) == 1
    assert "does not speak TLS: use http://" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"[" * 100_000])
def test_an_answer_of_something_else_is_no_answer_of_a_box(
    capsys: pytest.CaptureFixture[str], command: str, body: bytes
) -> None:
    with desk(200, body) as box:
        assert run([*COMMANDS[command], "--url", box.url]) == 1
    assert "something else than a box: check --url" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["/", "/v1", "/v1/"])
def test_the_address_that_sdks_take_names_the_same_box(end: str) -> None:
    for command in COMMANDS.values():
        with desk() as box:
            run([*command, "--url", box.url])
            run([*command, "--url", box.url + end])
        assert len(box.heard) == 2
        assert box.heard[0] == box.heard[1]


def test_a_key_that_no_key_can_be_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEELYARD_API_KEY", "sk-steelyard-\u0430")
    with desk(200, json.dumps({}).encode()) as box:
        assert run(["forecast", "hi", "--url", box.url]) == 1
    assert box.heard == []
    assert "signs that no key has" in capsys.readouterr().err
