"""The load generator: one connection per request, raw bytes with their times of arrival.

While a request runs nothing is parsed: the chunks are kept and read when it has ended, so that the
generator takes next to no CPU from the servers it measures. Times are `time.perf_counter` seconds.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Chunk = tuple[float, bytes]
Job = Callable[[], Awaitable[None]]


class LoadError(Exception):
    """A server did not answer as a benchmark needs it to; the run is void."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Reply:
    """One answered request. `marks` holds the arrival of every piece of text (streams only)."""

    sent: float
    ended: float
    marks: tuple[float, ...]
    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def ttft(self) -> float:
        """Seconds to the first text; to the whole answer where nothing was streamed."""
        return (self.marks[0] if self.marks else self.ended) - self.sent

    @property
    def e2e(self) -> float:
        return self.ended - self.sent

    @property
    def gaps(self) -> list[float]:
        """Seconds between one piece of text and the next."""
        return [b - a for a, b in zip(self.marks, self.marks[1:], strict=False)]


class _Exchange(asyncio.Protocol):
    """Writes one request, keeps what comes back until the server closes."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.chunks: list[Chunk] = []
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.chunks.append((time.perf_counter(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


def request_bytes(address: Address, method: str, path: str, body: bytes, key: str = "") -> bytes:
    """An HTTP/1.1 request after which the server closes the connection."""
    auth = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n{auth}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


async def exchange(address: Address, request: bytes, timeout: float) -> tuple[float, list[Chunk]]:
    """When it was sent, and all that came back."""
    loop = asyncio.get_running_loop()
    sent = time.perf_counter()
    transport, wire = await loop.create_connection(
        lambda: _Exchange(request), address.host, address.port
    )
    try:
        await asyncio.wait_for(wire.closed, timeout)
    except TimeoutError:
        raise LoadError(f"no complete answer from port {address.port} in {timeout:.0f} s") from None
    finally:
        transport.close()
    return sent, wire.chunks


def read_head(chunks: Sequence[Chunk]) -> tuple[int, dict[str, str], list[Chunk]]:
    """Status, headers (names in lower case) and the chunks of the body."""
    head = b""
    for number, (at, data) in enumerate(chunks):
        head += data
        top, found, rest = head.partition(b"\r\n\r\n")
        if found:
            first, *lines = top.decode("latin-1").split("\r\n")
            fields = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in fields}
            return int(first.split()[1]), headers, [(at, rest), *chunks[number + 1 :]]
    raise LoadError(f"the server closed the connection after {len(head)} bytes, before a response")


def dechunk(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Takes Transfer-Encoding: chunked off; a piece arrives when its last byte does."""
    held = b""
    for at, data in chunks:
        held += data
        while (line := held.find(b"\r\n")) >= 0:
            size = int(held[:line].partition(b";")[0] or b"0", 16)
            end = line + 2 + size
            if len(held) < end + 2:
                break
            if size:
                yield at, held[line + 2 : end]
            held = held[end + 2 :]


def sse(chunks: Iterable[Chunk]) -> Iterator[tuple[float, dict[str, Any]]]:
    """The JSON events of a stream; comments and [DONE] are passed over."""
    held = b""
    for at, data in chunks:
        *events, held = (held + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            lines = [s[5:].strip() for s in event.split(b"\n") if s.startswith(b"data:")]
            if lines and lines != [b"[DONE]"]:
                yield at, json.loads(b"\n".join(lines))


def text_of(event: dict[str, Any]) -> str:
    """The text that one event or answer brings, in llama-server's form or OpenAI's."""
    if "content" in event:
        return str(event["content"])
    if not event.get("choices"):
        return ""
    choice = event["choices"][0]
    part = choice.get("delta") or choice.get("message") or choice
    return str(part.get("content") or part.get("text") or "")


def counts_of(event: dict[str, Any]) -> tuple[int, int, int] | None:
    """(prompt, completion, cached) tokens where the event tells them."""
    if "tokens_predicted" in event and event.get("stop", True):
        cached = (event.get("timings") or {}).get("cache_n", 0)
        return int(event["tokens_evaluated"]), int(event["tokens_predicted"]), int(cached)
    usage = event.get("usage")
    if not usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    return int(usage["prompt_tokens"]), int(usage["completion_tokens"]), int(cached)


def read_reply(sent: float, chunks: Sequence[Chunk]) -> Reply:
    """Raises LoadError unless the answer is a 200 that is complete and tells its token counts."""
    status, headers, body = read_head(chunks)
    if "chunked" in headers.get("transfer-encoding", ""):
        body = list(dechunk(body))
    if status != 200:
        raise LoadError(f"HTTP {status}: {_join(body)[:300]!r}")
    streamed = headers.get("content-type", "").startswith("text/event-stream")
    events = list(sse(body)) if streamed else [(chunks[-1][0], json.loads(_join(body)))]
    if failed := [event for _, event in events if "error" in event]:
        raise LoadError(f"error in the answer: {failed[0]['error']}")
    texts = [(at, text) for at, event in events if (text := text_of(event))]
    counts = [c for _, event in events if (c := counts_of(event)) is not None]
    if not counts:
        raise LoadError(f"the answer ends without token counts: {_join(body)[-300:]!r}")
    marks = tuple(at for at, _ in texts) if streamed else ()
    ended = events[-1][0]
    return Reply(sent, ended, marks, "".join(text for _, text in texts), *counts[-1])


def _join(chunks: Iterable[Chunk]) -> bytes:
    return b"".join(data for _, data in chunks)


async def post(address: Address, path: str, body: dict[str, Any], timeout: float = 900) -> Reply:
    """One request for text."""
    request = request_bytes(address, "POST", path, json.dumps(body).encode())
    return read_reply(*await exchange(address, request, timeout))


async def call(
    address: Address, method: str, path: str, body: Any = None, key: str = "", timeout: float = 60
) -> tuple[int, bytes]:
    """Any other request: status and body."""
    data = b"" if body is None else json.dumps(body).encode()
    request = request_bytes(address, method, path, data, key)
    _, chunks = await exchange(address, request, timeout)
    status, headers, rest = read_head(chunks)
    chunked = "chunked" in headers.get("transfer-encoding", "")
    return status, _join(dechunk(rest) if chunked else rest)


async def closed_loop(jobs: Iterable[Job], workers: int) -> None:
    """`workers` users at once, each taking the next job when its last one is done."""
    queue = iter(list(jobs))

    async def user() -> None:
        for job in queue:
            await job()

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(user())
