"""The console's HTTP side: follows `/events` and connects anew by itself, asks and acts.

Lives on the event loop of the console and never blocks it. Nothing is raised to callers: what
fails becomes a Problem.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from appliance.frames import Frame, Live, Rows, State, decode
from tui.problem import Problem, of_answer, of_error
from tui.sse import Events
from tui.trust import Shown, Trust

SCHEMA = 1
CONNECT_S = 5.0
SILENCE_S = 6.0
"""Without a frame for so long the connection counts as gone: ten are due each second."""
ANSWER_S = 15.0
STREAM_S = 120.0
"""Between two pieces of an answer that is being written: it may wait in the queue."""
DELAYS_S = (1.0, 2.0, 3.0, 5.0)
"""Before each further try to connect; the last one for all that follow."""
AGAIN_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Before an action whose answer was lost is asked about again."""
FRAMES = {"live": Live, "rows": Rows, "state": State}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request."""

    data: Any = None
    problem: Problem | None = None
    done: bool | None = True
    """False: it was not carried out. None: nobody knows, the connection broke."""


class Link:
    """One console's connection to one box."""

    def __init__(
        self,
        url: str,
        key: str,
        trust: Trust,
        *,
        operator: str = "",
        now: Callable[[], float] = time.monotonic,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.url = url.rstrip("/")
        self.operator = operator
        self.live: Live | None = None
        self.rows: Rows | None = None
        self.state: State | None = None
        self.received: float | None = None
        """When the last frame came, on this machine's monotonic clock."""
        self.problem: Problem | None = None
        """Why nothing comes; None while something does."""
        self.retry_at: float | None = None
        self.shown: Shown | None = None
        """A certificate that waits for the operator's word."""
        self._key = key
        self._trust = trust
        self._now = now
        self._changed = changed
        self._client: httpx.AsyncClient | None = None
        self._wake = asyncio.Event()

    @property
    def keyless(self) -> bool:
        return not self._key

    # -- frames ------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Read frames until cancelled."""
        failures = 0
        while True:
            before = self.received
            try:
                self.problem = await self._read() or Problem("link.ended")
            except Exception as error:
                self.problem = self._told(error)
            failures = 0 if self.received != before else failures + 1
            await self._offer()
            await self._pause(DELAYS_S[min(failures, len(DELAYS_S) - 1)])

    async def _read(self) -> Problem | None:
        """Frames until the stream ends, or why there are none."""
        timeout = httpx.Timeout(CONNECT_S, read=SILENCE_S)
        query = {"frames": ",".join(FRAMES)}
        headers = self._headers() | {b"Accept": b"text/event-stream"}
        async with self._http().stream(
            "GET", "/events", params=query, headers=headers, timeout=timeout
        ) as answer:
            if answer.status_code != 200:
                body = await answer.aread()
                return of_answer(answer.status_code, body, self.url, "metrics") or _other(self.url)
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                return _other(self.url)
            events = Events()
            async for piece in answer.aiter_bytes():
                for event in events.feed(piece):
                    if event.name in FRAMES and (problem := self._take(event.data)):
                        return problem
        return None

    def _take(self, data: bytes) -> Problem | None:
        frame: Frame = decode.decode(data)
        match frame:
            case Live():
                if frame.schema != SCHEMA:
                    return Problem("link.schema", (f"{frame.version}, schema {frame.schema}",))
                self.live = frame
            case Rows():
                self.rows = frame
            case State():
                self.state = frame
        self.received, self.problem, self.retry_at = self._now(), None, None
        self._changed()
        return None

    async def _offer(self) -> None:
        """A certificate that was not believed is looked at, for the operator to judge."""
        self.shown = None
        if self.problem is not None and self.problem.key == "link.certificate":
            with contextlib.suppress(OSError, TimeoutError):
                self.shown = await self._trust.look()

    async def _pause(self, seconds: float) -> None:
        self.retry_at = self._now() + seconds
        self._wake.clear()
        self._changed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def retry(self) -> None:
        """Connect now, without waiting for the time of the next try."""
        self._wake.set()

    async def believe(self, shown: Shown) -> None:
        """The operator compared the fingerprint and takes the certificate. Raises OSError."""
        self.shown = None
        try:
            self._trust.confirm(shown)
        finally:
            await self.close()
            self.retry()

    async def close(self) -> None:
        """Let go of all connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # -- requests ----------------------------------------------------------------------------------

    async def ask(self, path: str) -> Answer:
        """GET: reads, changes nothing."""
        return await self._once("GET", path, None, {})

    async def act(
        self, method: str, path: str, body: object = None, *, idempotent: bool = False
    ) -> Answer:
        """Carry something out. If the connection breaks before the answer, it is asked again under
        the same Idempotency-Key where that is safe; else nobody knows, and that is said."""
        headers = {b"Idempotency-Key": secrets.token_hex(16).encode()}
        answer = await self._once(method, path, body, headers)
        for delay in AGAIN_S if idempotent else ():
            if answer.done is not None:
                break
            await asyncio.sleep(delay)
            again = await self._once(method, path, body, headers)
            # Not reached this time says nothing of the first time.
            answer = answer if again.done is False and _unreached(again) else again
        return answer

    async def _once(
        self, method: str, path: str, body: object, headers: Mapping[bytes, bytes]
    ) -> Answer:
        try:
            answer = await self._http().request(
                method,
                path,
                content=None if body is None else msgspec.json.encode(body),
                headers=self._headers() | _typed(body) | dict(headers),
                timeout=httpx.Timeout(CONNECT_S, read=ANSWER_S),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return Answer(problem=self._told(error), done=False)
        except httpx.TransportError as error:
            return Answer(problem=self._told(error), done=None)
        except Exception as error:
            return Answer(problem=self._told(error), done=False)
        problem = of_answer(answer.status_code, answer.content, self.url, _scope(path))
        if problem is not None:
            return Answer(problem=problem, done=False)
        return Answer(_data(answer.content))

    async def stream(self, path: str, body: object) -> AsyncGenerator[Answer, None]:
        """The events of an answer while it is written. The last one has a problem, or the data
        None once the end mark came."""
        timeout = httpx.Timeout(CONNECT_S, read=STREAM_S)
        try:
            async with self._http().stream(
                "POST",
                path,
                content=msgspec.json.encode(body),
                headers=self._headers() | _typed(body),
                timeout=timeout,
            ) as answer:
                async for part in _parts(answer, self.url, _scope(path)):
                    yield part
        except Exception as error:
            yield Answer(problem=self._told(error), done=None)

    # -- how ---------------------------------------------------------------------------------------

    def _told(self, error: Exception) -> Problem:
        return of_error(error, self.url, heard=self.received is not None)

    def _http(self) -> httpx.AsyncClient:
        """One client for all; proxies of the environment are not asked, they would get the key."""
        if self._client is None:
            self._client = httpx.AsyncClient(
                base_url=self.url, verify=self._trust.context(), trust_env=False
            )
        return self._client

    def _headers(self) -> dict[bytes, bytes]:
        """As bytes, for names and keys may hold any letters."""
        found = {b"User-Agent": b"steelyard-console"}
        if self._key:
            found[b"Authorization"] = b"Bearer " + self._key.encode("utf-8")
        if self.operator:
            found[b"X-Operator"] = self.operator.encode("utf-8")
        return found


async def _parts(answer: httpx.Response, url: str, scope: str) -> AsyncIterator[Answer]:
    if answer.status_code != 200:
        problem = of_answer(answer.status_code, await answer.aread(), url, scope)
        yield Answer(problem=_when(problem, answer) or _other(url), done=False)
        return
    events = Events()
    async for piece in answer.aiter_bytes():
        for event in events.feed(piece):
            if event.data == b"[DONE]":
                yield Answer()
                return
            yield Answer(_data(event.data))
    yield Answer(problem=Problem("link.cut"), done=None)


def _when(problem: Problem | None, answer: httpx.Response) -> Problem | None:
    """With the time after which the box would be asked again, where it names one."""
    seconds = answer.headers.get("retry-after")
    if problem is None or problem.key != "link.said" or not seconds:
        return problem
    message, code = problem.args
    return Problem(problem.key, (message, f"{code}, Retry-After {seconds} s"))


def _other(url: str) -> Problem:
    return Problem("link.other", (url,))


def _unreached(answer: Answer) -> bool:
    return answer.problem is not None and answer.problem.key in ("link.refused", "link.timeout")


def _typed(body: object) -> dict[bytes, bytes]:
    return {} if body is None else {b"Content-Type": b"application/json"}


def _data(body: bytes) -> Any:
    """JSON where it is JSON, else the text; None for none."""
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")


def _scope(path: str) -> str:
    return "infer" if path.startswith("/v1/") and "audit" not in path else "admin"
