"""Clients that read or send too slowly, or hold connections for nothing: they are dropped, and
nobody else notices."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.box.conftest import Start
from tests.box.neighbour import living_beside
from tests.box.running import RunningBox
from tests.box.wire import chat, connected

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
OK = b"HTTP/1.1 200 "
STALL_S, BODY_S, KEEP_S = 2.0, 3.0, 2.0


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """One with little patience and few connections."""
    home: Path = tmp_path_factory.mktemp("impatient")
    limits = {
        "write_stall_s": STALL_S,
        "body_s": BODY_S,
        "keep_alive_s": KEEP_S,
        "connections": 40,
    }
    engine = {"context": 8192}
    with RunningBox.start(home, limits=limits, engine=engine) as running:
        yield running


def outcomes(box: RunningBox) -> list[str]:
    """Of the requests in the log so far."""
    words = box.log.split()
    return [word.removeprefix("outcome=") for word in words if word.startswith("outcome=")]


def ended_within(connection: socket.socket, seconds: float) -> tuple[bytes, float]:
    """What comes until the box closes, and how long that takes."""
    started = time.monotonic()
    connection.settimeout(seconds)
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts), time.monotonic() - started


def test_a_client_that_stops_reading_is_dropped_and_its_request_ended(box: RunningBox) -> None:
    body = json.dumps(
        chat(max_tokens=8000, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20)
    ).encode()
    memory = psutil.Process(box.process.pid).memory_info
    gone = outcomes(box).count("disconnected")
    with living_beside(box) as neighbour, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with connected(box) as other:
            connection.connect(other.getpeername())
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(100).startswith(OK)
        before, goal = memory().rss, neighbour.answers + 2
        box.wait_until(
            lambda: outcomes(box).count("disconnected") > gone,
            timeout=120,
            what="the request is ended",
        )
        assert memory().rss - before < 40 * 2**20
        box.wait_until(
            lambda: neighbour.answers >= goal or neighbour.problem, what="others are answered"
        )
    box.wait_idle()


def test_a_body_that_trickles_in_gets_408_however_steadily(box: RunningBox) -> None:
    with living_beside(box), connected(box) as connection:
        connection.sendall(HEAD + b"Content-Length: 5000\r\n\r\n")
        started = time.monotonic()
        connection.settimeout(0.2)
        answer = b""
        while not answer and time.monotonic() - started < 20 * BODY_S:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.send(b" ")
            with suppress(TimeoutError):
                answer = connection.recv(65536)
        took = time.monotonic() - started
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert took >= BODY_S * 0.9


def test_a_kept_connection_is_closed_when_it_idles(box: RunningBox) -> None:
    with connected(box) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer, took = ended_within(connection, 30 * KEEP_S)
    assert answer.startswith(OK)
    assert took >= KEEP_S * 0.9


def test_idle_connections_by_the_hundred_keep_nobody_out(box: RunningBox) -> None:
    daemon = psutil.Process(box.process.pid)
    before = daemon.num_fds()
    with living_beside(box) as neighbour, ExitStack() as stack:
        goal = neighbour.answers + 2
        held = [stack.enter_context(connected(box, "127.0.0.2")) for _ in range(200)]
        for connection in held[::2]:
            with suppress(OSError):
                connection.sendall(b"POST /v1/chat")
        box.wait_until(
            lambda: neighbour.answers >= goal or neighbour.problem, what="others are answered"
        )
        assert daemon.num_fds() < before + 60
        assert box.http.get("/health").status_code == 200
    box.wait_until(lambda: daemon.num_fds() < before + 10, what="the connections are closed")


def test_where_all_connections_are_busy_a_new_one_is_told_so(start_box: Start) -> None:
    """Here bodies may take their time, so that all stay busy while the new one comes."""
    box = start_box(limits={"connections": 12, "body_s": 600})
    body = b"Content-Length: 5000\r\n\r\n{"
    with ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(connected(box)).sendall(HEAD + body)
        box.wait_until(lambda: asked_anew(box).startswith(b"HTTP/1.1 503 "), what="all are busy")
        head, _, said = asked_anew(box).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(said)["error"]["code"] == "too_many_connections"
    box.wait_until(lambda: box.http.get("/health").status_code == 200, what="there is room again")


def asked_anew(box: RunningBox) -> bytes:
    """The answer to a small question over a new connection."""
    with connected(box) as late:
        late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return ended_within(late, 30)[0]
