"""uvicorn's HTTP protocol with bounds that it lacks: on header lines, and on the time they take.

The daemon passes `bounded(...)` to uvicorn as `http`. Without it one client could fill the memory
with a header that never ends.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from appliance.api.faults import HeadersTooLarge, TooSlow, encode_fault
from appliance.errors import ApiError, BadRequest

HEAD_S = 30.0
"""Seconds from the first byte of a request to the end of its header lines."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose header lines are too many or too slow."""

    header_bytes = 65536

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > self.header_bytes:
                self._refuse(HeadersTooLarge(self.header_bytes))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:
            self._begin_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """In the shape of every other fault."""
        self._refuse(BadRequest("this is no valid HTTP request", code="invalid_http"))

    def _begin_head(self) -> None:
        self._head = 0
        self._in_head = True
        self._stop_timer()
        self._timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self._head:
            self._refuse(TooSlow())
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, fault: ApiError) -> None:
        """Answers without the application, which never sees this request."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        body = encode_fault(fault)
        head = (
            b"content-type: application/json\r\nserver: steelyard\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        self.transport.write(STATUS_LINE[fault.status] + head + body)
        self.transport.close()


def bounded(header_bytes: int) -> type[BoundedProtocol]:
    """The protocol with a bound of its own."""
    return type("BoundedProtocol", (BoundedProtocol,), {"header_bytes": header_bytes})
