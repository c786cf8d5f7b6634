"""Who asked what, and how it went: ids in and out, one log line, one count per request."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.accounts.tally import NOBODY, Holder
from appliance.api.faults import Internal, answer_fault
from appliance.api.passes import Pass
from appliance.errors import shutting_down
from appliance.observe.metrics import Metrics

log = logging.getLogger("appliance.access")
bugs = logging.getLogger("appliance.api")

_SCOPE_KEY = "steelyard.trace"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_ZERO_TRACE, _ZERO_SPAN = "0" * 32, "0" * 16


class ClientGone(Exception):
    """The client closed the connection: there is nobody to answer."""


@dataclass(slots=True)
class Trace:
    """One request's facts, filled in on its way. Times are monotonic seconds."""

    request_id: str
    trace_id: str
    span_id: str
    flags: str
    started: float
    parent_id: str = ""
    """The client's span; empty where it named none."""
    route: str = ""
    """The route's template; empty where none matched."""
    granted: str = ""
    """The need that the guard found satisfied."""
    key_id: str = ""
    key_name: str = ""
    scopes: frozenset[str] = frozenset()
    """Of the key."""
    tenant: str = ""
    holder: Holder = NOBODY
    """The key and the tenant with their limits."""
    quota: Pass | None = None
    """On generating routes."""
    user: str = ""
    scenario: str = ""
    """What the client says it does: `metadata.scenario`."""
    admitted: bool = False
    """It has an account of its own in the ledger."""
    status: int = 0
    outcome: str = ""
    tickets: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    queue_ms: float = 0.0
    ttft_ms: float = 0.0

    @property
    def sampled(self) -> bool:
        """Whether a collector is to hear of it: as the client's own tracing decided, else yes."""
        return not self.parent_id or int(self.flags, 16) & 1 == 1

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def begin(connection: HTTPConnection, now: float) -> Trace:
    """The client's ids where they are well-formed, else ours."""
    given = connection.headers.get("x-request-id", "")
    request_id = given if _REQUEST_ID.fullmatch(given) else "req_" + secrets.token_hex(12)
    trace_id, parent_id, flags = _parent(connection.headers.get("traceparent", ""))
    return Trace(request_id, trace_id, secrets.token_hex(8), flags, now, parent_id)


def _parent(header: str) -> tuple[str, str, str]:
    """Trace, the client's span and flags, in hex."""
    found = _TRACEPARENT.fullmatch(header.strip())
    if found is None:
        return secrets.token_hex(16), "", "00"
    version, trace_id, span_id, flags = found.groups()
    if version == "ff" or trace_id == _ZERO_TRACE or span_id == _ZERO_SPAN:
        return secrets.token_hex(16), "", "00"
    return trace_id, span_id, flags


def trace_of(connection: HTTPConnection) -> Trace:
    """The trace that `Tracing` began for this request."""
    trace = connection.scope[_SCOPE_KEY]
    assert isinstance(trace, Trace)
    return trace


class Tracing:
    """Outermost: gives each request its ids, answers bugs with 500, writes the log line."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tell: Callable[[Trace, str, str], None] | None = None,
    ) -> None:
        """`tell` hears of each request that has a line in the log: its trace, its method and what
        it came to."""
        self._app = app
        self._metrics = metrics
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = begin(HTTPConnection(scope), time.monotonic())
        scope[_SCOPE_KEY] = trace

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                _name(MutableHeaders(scope=message), trace)
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except ClientGone:
            trace.outcome = "disconnected"
        except asyncio.CancelledError:
            await self._cut_off(trace, scope, receive, send_named)
        except Exception:
            await self._bug(trace, scope, receive, send_named)
        finally:
            self._finish(trace, scope)

    async def _cut_off(self, trace: Trace, scope: Scope, receive: Receive, send: Send) -> None:
        """The server stops and has waited long enough, e.g. for a body: the task ends here."""
        trace.outcome = "cut_off"
        if not trace.status:
            fault = shutting_down(retry_after=30)
            await answer_fault(fault)(scope, receive, send)

    async def _bug(self, trace: Trace, scope: Scope, receive: Receive, send: Send) -> None:
        bugs.exception("request %s failed by a bug of ours", trace.request_id)
        trace.outcome = "bug"
        if not trace.status:
            await answer_fault(Internal(trace.request_id))(scope, receive, send)

    def _finish(self, trace: Trace, scope: Scope) -> None:
        took = time.monotonic() - trace.started
        outcome = trace.outcome or _outcome(trace.status)
        self._metrics.request_done(trace.route or "unknown", outcome)
        level = _level(scope["method"], trace)
        if self._tell is not None and level > logging.DEBUG:
            self._tell(trace, scope["method"], outcome)
        log.log(
            level,
            "request=%s method=%s route=%s status=%d outcome=%s key=%s user=%s ticket=%s "
            "prompt=%d cached=%d completion=%d queue_ms=%.1f ttft_ms=%.1f ms=%.1f",
            trace.request_id,
            scope["method"],
            trace.route or "-",
            trace.status,
            outcome,
            _word(trace.key_name),
            _word(trace.user),
            trace.tickets or "-",
            trace.prompt_tokens,
            trace.cached_tokens,
            trace.completion_tokens,
            trace.queue_ms,
            trace.ttft_ms,
            took * 1000,
        )


def _level(method: str, trace: Trace) -> int:
    """What looks on without changing anything comes every second from consoles and dashboards:
    worth a line only where it fails."""
    watching = method in ("GET", "HEAD") and trace.status < 400
    return logging.DEBUG if watching else logging.INFO


def _word(text: str) -> str:
    """A client's text as one harmless word of the line."""
    return re.sub(r"[^A-Za-z0-9@._-]", "_", text[:64]) or "-"


def _outcome(status: int) -> str:
    """What a request that touched no model came to."""
    if status == 0:
        return "disconnected"
    return "ok" if status < 400 else "refused" if status < 500 else "failed"


def _name(headers: MutableHeaders, trace: Trace) -> None:
    headers["Server"] = "steelyard"
    headers["X-Request-Id"] = trace.request_id
    headers["traceparent"] = trace.traceparent
    headers["openai-processing-ms"] = str(round((time.monotonic() - trace.started) * 1000))
    headers.setdefault("Cache-Control", "no-store")
    if trace.quota is not None:
        headers.update(trace.quota.headers())
    headers.setdefault("X-Content-Type-Options", "nosniff")
