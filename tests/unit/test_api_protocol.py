"""Bounds on what arrives before a request is one."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from appliance.api import protocol
from appliance.api.protocol import bounded


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


@asynccontextmanager
async def talk(header_bytes: int = 2048) -> AsyncIterator[Any]:
    """A connection to a server that answers everything with "fine"."""
    listener = socket.create_server(("127.0.0.1", 0))
    http = bounded(header_bytes)
    server = uvicorn.Server(uvicorn.Config(_app, http=http, lifespan="off", log_config=None))
    task = asyncio.create_task(server._serve([listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        server.should_exit = True
        await task
        listener.close()


def fault_in(answer: bytes) -> Any:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


async def test_a_request_within_bounds_is_served() -> None:
    async with talk() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 1500 + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("line", [b"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", b"a" * 64])
async def test_header_lines_without_end_are_431(line: bytes) -> None:
    async with talk() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + line * (2048 // len(line)))
        assert fault_in(await reader.read()) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "bytes_sent", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02"]
)
async def test_what_is_no_http_has_our_shape(bytes_sent: bytes) -> None:
    async with talk() as (reader, writer):
        writer.write(bytes_sent)
        assert fault_in(await reader.read()) == (400, "invalid_http")


async def test_header_lines_that_do_not_come_are_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.05)
    async with talk() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHo")
        assert fault_in(await reader.read()) == (408, "timeout")
    async with talk() as (reader, writer):
        assert await reader.read() == b""


async def test_a_kept_connection_is_not_cut_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.05)
    async with talk() as (reader, writer):
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"fine" in await reader.readuntil(b"0\r\n\r\n")
            await asyncio.sleep(0.08)
