"""uvicorn's HTTP protocol with bounds that it lacks: on header lines, on the number of connections,
and on the time that a client takes to send and to read.

The daemon passes `bounded(...)` to uvicorn as `http`. Without it one client could fill the memory
with a header that never ends, or hold on to its request by not reading the answer. A connection is
always in one of four states, each with a time of its own: header lines arrive (`HEAD_S`), a request
is worked on (its body within `limits.body_s`, and the answer must keep leaving), the rest of a body
arrives that was answered before its end (`REST_S`), or nothing happens (`limits.keep_alive_s`).
"""

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from appliance.api.connections import Connections, Place
from appliance.api.door import Door
from appliance.api.faults import (
    HeadersTooLarge,
    TooManyConnections,
    TooSlow,
    answer_fault,
    encode_fault,
)
from appliance.api.outflow import Outflow
from appliance.config import LimitsConfig
from appliance.errors import ApiError, BadRequest

HEAD_S = 30.0
"""Seconds from the first byte of a request to the end of its header lines."""
REST_S = 10.0
"""Seconds for the rest of a body whose answer has been sent."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections that overstep a bound."""

    def __init__(self, limits: LimitsConfig, connections: Connections, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.timeout_keep_alive = math.ceil(limits.keep_alive_s)
        self._limits = limits
        self._connections = connections
        self._place: Place | None = None
        self._outflow: Outflow | None = None
        self._head = 0
        self._in_head = True
        self._behind = False
        """The head under way began behind another request, in the bytes that have just come."""
        self._whole = False
        """The request that was begun last has arrived to its end."""
        self._timer: asyncio.TimerHandle | None = None

    # -- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        place = self._connections.enter(host, transport.abort)
        if place is None:
            transport.abort()
        else:
            self._begin((transport,), place)

    def begin(
        self, tls: asyncio.Transport, below: asyncio.Transport, place: Place
    ) -> "BoundedProtocol":
        """In place of `connection_made`, behind a `Door`."""
        super().connection_made(tls)
        place.drop = tls.abort
        self._begin((tls, below), place)
        return self

    def _begin(self, layers: tuple[asyncio.Transport, ...], place: Place) -> None:
        self._place = place
        self._outflow = Outflow(layers, self._limits.write_stall_s)
        if place.refused:
            self.app = answer_fault(TooManyConnections())
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._outflow is not None:
            self._outflow.stop()
        if self._place is not None:
            self._place.leave()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self._watch_closing()

    def timeout_keep_alive_handler(self) -> None:
        self._hang_up()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._outflow is not None:
            self._outflow.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._outflow is not None:
            self._outflow.rest()

    # -- the request -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._behind = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            if not self._behind:  # else most of it may be the body of the one before
                self._head += len(data)
            if self._head > self._limits.header_bytes:
                self._refuse(HeadersTooLarge(self._limits.header_bytes))
        elif self._whole and self._idle and self.timeout_keep_alive_task is None:
            self._begin_head()  # bytes that begin no request, such as empty lines

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:
            self._begin_head()
            self._behind = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._whole = False
        self._stop_timer()
        if self._place is not None:
            self._place.work()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        if self._idle:
            self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_closing()
        elif self._idle:
            if self._place is not None:
                self._place.wait()
            if not self._whole and not self._in_head:
                self._start_timer(REST_S, self._hang_up)

    def send_400_response(self, msg: str) -> None:
        """In the shape of every other fault."""
        self._refuse(BadRequest("this is no valid HTTP request", code="invalid_http"))

    @property
    def _idle(self) -> bool:
        """All requests that began were answered."""
        return self.cycle is None or self.cycle.response_complete

    # -- time ------------------------------------------------------------------------------------

    def _begin_head(self) -> None:
        self._head = 0
        self._in_head = True
        self._start_timer(HEAD_S, self._too_slow)

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self._idle:
            # The next request's head, which is not read while answers are written.
            self._start_timer(HEAD_S, self._too_slow)
        elif self._head:
            self._refuse(TooSlow())
        else:
            self._hang_up()

    # -- ends ------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
            self._watch_closing()

    def _watch_closing(self) -> None:
        if self._outflow is not None and self.transport.is_closing():
            self._outflow.watch()

    def _refuse(self, fault: ApiError) -> None:
        """Answers without the application, which never sees this request."""
        if self.transport.is_closing():
            return
        if self._idle:
            body = encode_fault(fault)
            head = (
                b"content-type: application/json\r\nserver: steelyard\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(body)
            )
            self.transport.write(STATUS_LINE[fault.status] + head + body)
        self._hang_up()


def bounded(limits: LimitsConfig, tls: Callable[[], ssl.SSLContext] | None = None) -> Any:
    """uvicorn's `http`: makes the protocol of each connection. `tls` gives the context for the next
    one; without it the connections are plain."""
    connections = Connections(limits.connections, limits.connections_per_host)

    def make(**kwargs: Any) -> asyncio.Protocol:
        http = BoundedProtocol(limits, connections, **kwargs)
        if tls is None:
            return http
        return Door(http.begin, tls, connections, kwargs["server_state"].connections)

    return make
