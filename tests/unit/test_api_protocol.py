"""Bounds on what arrives before a request is one, and on clients that send or read too slowly. Each
test runs with and without TLS."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from appliance.api import door, outflow, protocol
from appliance.api.protocol import bounded
from appliance.config import LimitsConfig
from appliance.tls.context import make_context
from tests.unit.certificates import client_context, issue

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LIMITS = LimitsConfig(header_bytes=2048)


class App:
    """Answers everything with "fine", or `/flood` with bytes until the client is gone."""

    def __init__(self) -> None:
        self.sent = 0
        self.gone = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if scope["path"] != "/flood":
            await send(start)
            await send({"type": "http.response.body", "body": b"fine"})
            return
        await receive()
        leaving = asyncio.create_task(receive())
        await send(start)
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            self.sent += 10_000
            await asyncio.sleep(0)
        self.gone.set()


class Server:
    """A server, and how to get to it."""

    def __init__(self, app: App, address: Any, client: ssl.SSLContext | None) -> None:
        self.app = app
        self.address = address
        self._client = client
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "localhost" if self._client else None
        reader, writer = await asyncio.open_connection(
            *self.address, ssl=self._client, server_hostname=name, limit=4096
        )
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


Serve = Callable[..., Any]


@pytest.fixture(params=["plain", "tls"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """Starts a server with limits of the test's own."""
    tls = client = None
    if request.param == "tls":
        cert, key, ca = issue(tmp_path, "server", ["localhost"])
        context = make_context(Path(cert), Path(key), "", required=True)
        tls, client = (lambda: context), client_context(ca)

    @asynccontextmanager
    async def started(**limits: Any) -> AsyncIterator[Server]:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        app = App()
        http = bounded(replace(LIMITS, **limits), tls)
        server = uvicorn.Server(uvicorn.Config(app, http=http, lifespan="off", log_config=None))
        task = asyncio.create_task(server._serve([listener]))
        made = Server(app, listener.getsockname(), client)
        try:
            yield made
        finally:
            await made.close()
            server.should_exit = True
            await asyncio.wait_for(task, 30)
            listener.close()

    return started


def fault_in(answer: bytes) -> Any:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """All until the server closes; a reset ends it too."""
    parts = []
    with suppress(ConnectionError):
        while part := await asyncio.wait_for(reader.read(65536), 30):
            parts.append(part)
    return b"".join(parts)


async def test_requests_within_bounds_are_served_one_behind_the_other(serve: Serve) -> None:
    async with serve() as server:
        reader, writer = await server.connect()
        posted = b"\r\nContent-Length: 4000\r\n\r\n" + b"x" * 4000  # no header lines of the next
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1500 + posted + GET[:-4])
        assert b"HTTP/1.1 200" in await reader.readuntil(b"fine")
        writer.write(GET[-4:])
        assert b"HTTP/1.1 200" in await reader.readuntil(b"fine")


# -- header lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", b"a" * 64])
async def test_header_lines_without_end_are_431(serve: Serve, line: bytes) -> None:
    async with serve() as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + line * (2048 // len(line)))
        assert fault_in(await rest_of(reader)) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "bytes_sent", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02"]
)
async def test_what_is_no_http_has_our_shape(serve: Serve, bytes_sent: bytes) -> None:
    async with serve() as server:
        reader, writer = await server.connect()
        writer.write(bytes_sent)
        assert fault_in(await rest_of(reader)) == (400, "invalid_http")


async def test_header_lines_that_do_not_come_are_408(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.05)
    monkeypatch.setattr(outflow, "GOODBYE_S", 0.05)
    async with serve() as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHo")
        assert fault_in(await rest_of(reader)) == (408, "timeout")
        reader, _ = await server.connect()
        assert await rest_of(reader) == b""


async def test_a_kept_connection_is_not_cut_by_the_clock_of_header_lines(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 1.0)  # a busy machine connects within that time
    async with serve() as server:
        reader, writer = await server.connect()
        for _ in range(2):
            writer.write(GET)
            assert b"fine" in await reader.readuntil(b"0\r\n\r\n")
            await asyncio.sleep(1.2)


# -- connections that do nothing -------------------------------------------------------------------


async def test_empty_lines_do_not_keep_a_connection_open(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are bytes, but begin no request."""
    monkeypatch.setattr(outflow, "GOODBYE_S", 0.05)
    async with serve() as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await reader.readuntil(b"0\r\n\r\n")
        monkeypatch.setattr(protocol, "HEAD_S", 0.05)
        writer.write(b"\r\n")
        assert await rest_of(reader) == b""


async def test_the_rest_of_a_body_that_was_answered_is_not_awaited_for_ever(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "REST_S", 0.05)
    monkeypatch.setattr(outflow, "GOODBYE_S", 0.05)
    async with serve() as server:
        reader, writer = await server.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n")
        assert b"fine" in await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"{")
        assert await rest_of(reader) == b""


async def test_a_connection_that_idles_is_closed(serve: Serve) -> None:
    async with serve(keep_alive_s=0.5) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await reader.readuntil(b"0\r\n\r\n")
        assert await rest_of(reader) == b""


# -- many connections ------------------------------------------------------------------------------


async def test_idle_connections_make_room_for_new_ones(serve: Serve) -> None:
    async with serve(connections=3) as server:
        idle = [await server.connect() for _ in range(5)]
        reader, writer = await server.connect()
        writer.write(GET)
        assert b"fine" in await reader.readuntil(b"0\r\n\r\n")
        for silent, _ in idle[:3]:
            assert await rest_of(silent) == b""
        reader, writer = idle[4]
        writer.write(GET)
        assert b"fine" in await reader.readuntil(b"0\r\n\r\n")


async def test_where_all_are_busy_a_new_one_gets_503(serve: Serve) -> None:
    async with serve(connections=1) as server:
        busy, writer = await server.connect()
        writer.write(GET.replace(b"/", b"/flood", 1))
        await busy.readuntil(b"\r\n")
        reader, writer = await server.connect()
        writer.write(GET)
        answer = await rest_of(reader)
        assert fault_in(answer) == (503, "too_many_connections")
        assert b"retry-after" in answer.lower()
        assert b"connection: close" in answer.lower()


async def test_one_address_can_be_kept_to_its_share(serve: Serve) -> None:
    async with serve(connections_per_host=1) as server:
        await server.connect()
        reader, writer = await server.connect()
        writer.write(GET)
        assert fault_in(await rest_of(reader)) == (503, "too_many_connections")


# -- clients that do not read ----------------------------------------------------------------------


async def test_a_client_that_stops_reading_is_cut_off(serve: Serve) -> None:
    async with serve(write_stall_s=0.3) as server:
        reader, writer = await server.connect()
        writer.write(GET.replace(b"/", b"/flood", 1))
        await reader.readuntil(b"\r\n")
        writer.transport.pause_reading()
        await asyncio.wait_for(server.app.gone.wait(), 30)
        kernel_and_client = 6_000_000
        assert server.app.sent < kernel_and_client, "memory stays bounded meanwhile"


async def test_a_client_that_reads_slowly_but_reads_is_served(serve: Serve) -> None:
    async with serve(write_stall_s=0.7) as server:
        reader, writer = await server.connect()
        writer.write(GET.replace(b"/", b"/flood", 1))
        until = asyncio.get_running_loop().time() + 2.1
        while asyncio.get_running_loop().time() < until:
            assert await reader.read(65536)
            await asyncio.sleep(0.01)
        assert not server.app.gone.is_set()


async def test_a_connection_that_closes_is_not_held_by_a_silent_client(serve: Serve) -> None:
    """Over TLS closing takes two; the client of this test says nothing more."""
    async with serve() as server:
        reader, writer = await server.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert b"fine" in await rest_of(reader)


# -- the door --------------------------------------------------------------------------------------


only_tls = pytest.mark.parametrize("serve", ["tls"], indirect=True)


async def say(address: Any, data: bytes) -> bytes:
    """To the bare port."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    answer = await rest_of(reader)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return answer


@only_tls
async def test_plain_http_is_told_to_use_https(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "HEAR_S", 0.2)
    async with serve() as server:
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n" + b"x" * 90000
        for data in (GET, post):
            answer = await say(server.address, data)
            assert fault_in(answer) == (400, "tls_required")
            assert b"https://" in answer


@only_tls
@pytest.mark.parametrize("data", [b"\x00\x01", b"\xff" * 9, b"\x16\x03\x01\x00\x05hello"])
async def test_other_garbage_is_just_closed(serve: Serve, data: bytes) -> None:
    async with serve() as server:
        assert not (await say(server.address, data)).startswith(b"HTTP")


@only_tls
async def test_a_handshake_has_a_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.1)
    async with serve() as server:
        assert await say(server.address, b"") == b""
        assert await say(server.address, b"\x16\x03\x01\x02\x00\x01\x00") == b""


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    start = "no TLS connection with 127"
    return [record.message for record in caplog.records if record.message.startswith(start)]


@only_tls
async def test_who_cannot_be_shaken_hands_with_is_named_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """It is how an operator learns that a client lacks the CA."""
    caplog.set_level("INFO", "appliance.api")
    async with serve() as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(connect_without_the_ca, server)
        await say(server.address, b"\x16\x03\x01\x00\x05hello")
        async with asyncio.timeout(30):
            while len(said := named(caplog)) < 2:
                await asyncio.sleep(0.01)
    assert len(said) == 2
    assert "unknown ca" in said[0]
    assert not [r for r in caplog.records if r.levelname == "ERROR"]


@only_tls
async def test_connections_in_the_handshake_are_counted_and_make_room(serve: Serve) -> None:
    async with serve(connections=2) as server:
        held = [await asyncio.open_connection(*server.address) for _ in range(4)]
        reader, writer = await server.connect()
        writer.write(GET)
        assert b"fine" in await reader.readuntil(b"0\r\n\r\n")
        for silent, _ in held[:3]:
            assert await rest_of(silent) == b""
        for _, writer in held:
            writer.close()


@only_tls
async def test_a_request_right_behind_the_handshake_is_not_lost(serve: Serve) -> None:
    """TLS 1.3 clients may send it in the same packet as the end of their handshake."""
    async with serve() as server:
        for _ in range(20):
            answer = await asyncio.to_thread(ask_at_once, server)
            assert answer.startswith(b"HTTP/1.1 200")


def connect_without_the_ca(server: Server) -> None:
    with socket.create_connection(server.address, 5) as connection:
        ssl.create_default_context().wrap_socket(connection, server_hostname="localhost")


def ask_at_once(server: Server) -> bytes:
    """Handshake by hand, so that its end and the request go out together."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    assert server._client is not None
    tls = server._client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(server.address, 5) as connection:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
        tls.write(GET)
        connection.sendall(outgoing.read())
        while True:
            try:
                return tls.read(65536)
            except ssl.SSLWantReadError:
                incoming.write(connection.recv(65536))
