"""Clients that speak no HTTP, stop half-way, or are slow: they hold up nobody but themselves."""

import json
import socket
from contextlib import ExitStack

import psutil
import pytest

from tests.box.neighbour import living_beside
from tests.box.running import RunningBox
from tests.box.wire import chat, connected, refused

BODY = json.dumps(chat(max_tokens=1)).encode()
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
OK = b"HTTP/1.1 200 "


def all_of(connection: socket.socket) -> bytes:
    """All that comes until the box closes the connection, which it does within its time-out."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def said(box: RunningBox, data: bytes) -> bytes:
    """The answer to `data` and the end of the client's side."""
    with connected(box) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all was sent
        return all_of(connection)


def answer_to(box: RunningBox, tail: bytes) -> bytes:
    """The answer to a chat whose head ends like this; the client stays until it is complete."""
    with connected(box) as connection:
        connection.sendall(HEAD + b"Connection: close\r\n" + tail)
        return all_of(connection)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def check_alive(box: RunningBox) -> None:
    assert box.http.get("/health").json() == {"status": "ok"}
    answer = box.http.post("/v1/chat/completions", json=chat(max_tokens=1))
    assert answer.json()["usage"]["completion_tokens"] == 1


GARBAGE = {
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "noise": bytes(range(256)) * 8,
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x11" * 500,
    "an HTTP/2 greeting": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an SSH greeting": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a word": b"hello\r\n\r\n",
    "JSON": b'{"messages": []}\n',
    "many line breaks": b"\r\n" * 5000,
    "half a line": b"GET /hea",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc",
    "half a body": HEAD + b"Content-Length: 500\r\n\r\n{",
    "a strange version": b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a strange method": b"EXPLODE /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a proxy's request": b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "a header without a name": b"GET /health HTTP/1.1\r\n: x\r\n\r\n",
    "a header with a zero": b"GET /health HTTP/1.1\r\nHost: local\0host\r\n\r\n",
    "a long path": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a folded header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
}

BAD_LENGTHS = {
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a length that is a word": b"Content-Length: many\r\n\r\n",
    "a length beyond all numbers": b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 7\r\n\r\n{}",
    "a length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks of no size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "chunks of a negative size": b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_gets_an_error_or_a_closed_door(box: RunningBox, data: bytes) -> None:
    answer = said(box, data)
    assert not answer or status_of(answer) < 500
    check_alive(box)


@pytest.mark.parametrize("tail", BAD_LENGTHS.values(), ids=BAD_LENGTHS)
def test_a_body_whose_length_is_unclear_is_never_read_as_a_request(
    box: RunningBox, tail: bytes
) -> None:
    answer = said(box, HEAD + tail)
    assert not answer or 400 <= status_of(answer) < 500
    assert answer.count(b"HTTP/1.1") <= 1, "one request, one answer: nothing was smuggled"
    check_alive(box)


def test_what_is_no_http_is_answered_in_the_shape_of_every_error(box: RunningBox) -> None:
    head, _, body = said(box, b"hello\r\n\r\n").partition(b"\r\n\r\n")
    assert status_of(head) == 400
    assert json.loads(body)["error"]["code"] == "invalid_http"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
    ],
    ids=["one long header", "many headers", "a header without end"],
)
def test_header_lines_are_bounded(box: RunningBox, head: bytes) -> None:
    answer = said(box, head)
    assert not answer or status_of(answer) == 431
    check_alive(box)


@pytest.mark.parametrize(
    "path",
    [
        "//v1/models", "/v1/models/", "/v1//models", "/v1/models/..%2f..%2fetc%2fpasswd",
        "/v1/models/%00", "/v1/models/%ff%fe", "/docs/../admin/status", "/%2e%2e/admin/status",
        "/v1/models/" + "x" * 10_000, "/admin/requests/%0d%0aX-Evil:%20yes", "/v1/models?x=%00",
    ],
)  # fmt: skip
def test_a_strange_path_leads_nowhere(box: RunningBox, path: str) -> None:
    with connected(box) as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        head = all_of(connection).partition(b"\r\n\r\n")[0]
    assert status_of(head) in (200, 401, 404, 405)
    assert (status_of(head) == 200) == (path == "/v1/models?x=%00")
    assert b"x-evil" not in head.lower()


def test_half_requests_hold_up_nobody_and_their_connections_are_let_go(box: RunningBox) -> None:
    check_alive(box)
    with living_beside(box), ExitStack() as stack:
        held = [stack.enter_context(connected(box)) for _ in range(60)]
        for place, connection in enumerate(held):
            part = (b"POST /v1/chat", HEAD, HEAD + b"Content-Length: 900\r\n\r\n{")[place % 3]
            connection.sendall(part)
        ports = {connection.getsockname()[1] for connection in held}
        box.wait_until(lambda: ports <= connected_ports(box), what="all are connected")
        check_alive(box)
    box.wait_until(lambda: not ports & connected_ports(box), what="the connections are closed")


def connected_ports(box: RunningBox) -> set[int]:
    """The clients' ports of the connections that the daemon has."""
    found = psutil.Process(box.process.pid).net_connections("tcp")
    return {connection.raddr.port for connection in found if connection.raddr}


def test_a_request_that_comes_byte_by_byte_is_answered(box: RunningBox) -> None:
    whole = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    with living_beside(box), connected(box) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(whole)):
            connection.send(whole[place : place + 1])
        assert all_of(connection).startswith(OK)


def test_a_body_in_tiny_chunks_is_answered(box: RunningBox) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    answer = answer_to(box, b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert answer.startswith(OK)


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(box: RunningBox) -> None:
    with connected(box) as connection:
        connection.sendall(
            HEAD
            + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert all_of(connection).startswith(OK)


def test_a_body_declared_too_large_is_refused_before_it_is_sent(box: RunningBox) -> None:
    with connected(box) as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")
        answer = all_of(connection)
    assert status_of(answer) == 413


def test_two_requests_in_one_packet_get_two_answers(box: RunningBox) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with connected(box) as connection:
        connection.sendall(one + last)
        assert all_of(connection).count(OK) == 2


def test_a_connection_serves_on_after_a_bad_request(box: RunningBox) -> None:
    bad = HEAD + b"Content-Length: 1\r\n\r\n{"
    good = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    with connected(box) as connection:
        connection.sendall(bad + good)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(OK) == 1


def test_a_client_that_does_not_read_holds_up_nobody(box: RunningBox) -> None:
    body = json.dumps(
        chat(max_tokens=1200, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20)
    ).encode()
    with living_beside(box) as neighbour, connected(box) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(100).startswith(OK)
        goal = neighbour.answers + 3
        box.wait_until(
            lambda: neighbour.answers >= goal or neighbour.problem, what="others are answered"
        )
        check_alive(box)
    box.wait_idle()


def test_a_client_that_leaves_in_the_middle_of_its_body_costs_nothing(box: RunningBox) -> None:
    """Though what it sent so far would do as a request."""

    def steps() -> str:
        lines = box.http.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("llamacpp:n_decode_total "))

    box.wait_idle()
    before = steps()
    for _ in range(20):
        with connected(box) as connection:
            connection.sendall(HEAD + b"Content-Length: 5000\r\n\r\n" + BODY)
    assert box.http.get("/health").status_code == 200
    assert steps() == before
    check_alive(box)
    assert steps() != before


def test_the_log_shows_no_bug_of_ours(box: RunningBox) -> None:
    """Whatever this file sent: no traceback, and nobody restarted."""
    assert "Traceback" not in box.log
    assert "bug of ours" not in box.log
    ready = box.http.get("/readyz").json()
    assert ready["engine"]["restarts"] == 0
    assert refused(box.http.get("/nope"))["type"] == "not_found_error"
