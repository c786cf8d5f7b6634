"""A box that follows a script: real sockets, HTTP/1.1 by hand, so that a test decides every byte
that a console gets and when the connection breaks."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from appliance.frames import Frame, Live, RequestRow, Rows, encode
from tests.unit.console_views import LIVE, ROWS


def make_live(**changes: Any) -> Live:
    """A calm box."""
    return replace(LIVE, **changes)


def make_rows(count: int = 2, total: int | None = None) -> Rows:
    requests = tuple(
        RequestRow(
            id=f"8f{number:02x}", key=f"key-{number % 7}", tenant="sales", scenario="reply",
            state="decode" if number < 8 else "waiting", pool="A", tier="default",
            pos=max(0, number - 7), prompt_tok=400 + number, gen_tok=number, limit_tok=512,
            p10_tok=40, p50_tok=120, p90_tok=300, wait_ms=200, run_ms=900, eta_ms=3000,
        )
        for number in range(count)
    )  # fmt: skip
    return replace(ROWS, total=count if total is None else total, requests=requests)


def event(frame: Frame) -> bytes:
    """A frame as it goes over the line."""
    name = str(msgspec.json.decode(encode(frame))["type"])
    return b"event: " + name.encode() + b"\ndata: " + encode(frame) + b"\n\n"


@dataclass(slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Reply:
    """What is sent back. `cut`: the connection ends in the middle of it."""

    status: int = 200
    body: bytes = b"{}"
    type: str = "application/json"
    cut: bool = False

    @classmethod
    def json(cls, data: object, status: int = 200) -> Self:
        return cls(status, json.dumps(data).encode())

    @classmethod
    def refusal(cls, status: int, code: str, message: str = "No.") -> Self:
        return cls.json({"error": {"message": message, "type": "t", "code": code}}, status)


@dataclass(slots=True)
class ConsoleBox:
    """The server. `/events` sends `stream`'s pieces, then stays open until `hang_up` is called."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    events: Reply | None = None
    """Instead of a stream."""
    replies: dict[tuple[str, str], list[Reply]] = field(default_factory=dict)
    """By method and path: the next ones; the last stays."""
    close_after: bool = False
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    connections: int = 0

    def send(self, *frames: Frame) -> None:
        """To all that listen now, and first to those that come."""
        data = b"".join(map(event, frames))
        self.pieces.append(data)
        for writer in self.writers:
            writer.write(_chunk(data))

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    def calls(self, method: str = "POST") -> list[Asked]:
        return [one for one in self.asked if one.method == method]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await _read(reader)) is not None:
                if not asked.method:
                    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    await writer.drain()
                    break
                self.asked.append(asked)
                await self._answer(asked, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        path = asked.path.partition("?")[0]
        if path == "/events" and self.events is None:
            await self._stream(writer)
            return
        waiting = self.replies.get((asked.method, path), [])
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0] if waiting else Reply()
        if path == "/events" and self.events is not None:
            reply = self.events
        head = (
            f"HTTP/1.1 {reply.status} X\r\nContent-Type: {reply.type}\r\n"
            f"Content-Length: {len(reply.body)}\r\n\r\n"
        )
        if reply.cut:
            raise ConnectionError
        writer.write(head.encode() + reply.body)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for piece in self.pieces:
            writer.write(_chunk(piece))
            await writer.drain()
        if self.close_after:
            writer.write(b"0\r\n\r\n")
            raise ConnectionError
        self.writers.add(writer)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    line = await reader.readline()
    if not line.strip():
        return None
    if not line.endswith(b"HTTP/1.1\r\n"):
        return Asked("", "", {}, b"")
    method, path, _ = line.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("utf-8", "replace").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


@asynccontextmanager
async def console_box(
    tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[ConsoleBox]:
    """A scripted box on a free port."""
    box = ConsoleBox(**settings)
    server = await asyncio.start_server(box.handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    box.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield box
    finally:
        server.close()
        box.hang_up()
