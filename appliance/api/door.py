"""In front of HTTP where the box speaks TLS: takes a place for the connection, looks at its first
byte, and shakes hands, all within a time.

uvicorn would hand a listener to the event loop with one context for ever, count only connections
that are past the handshake, and have nothing to say to plain HTTP.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from appliance.api.connections import Connections, Place
from appliance.api.faults import encode_fault
from appliance.errors import BadRequest

log = logging.getLogger("appliance.api")

HANDSHAKE_S = 10.0
"""From the connection to the end of the handshake."""
GOODBYE_S = 300.0
"""For closing in order; `Outflow` ends what does not move, much sooner."""
HEAR_S = 1.0
"""A plain client gets this long to read its answer before the connection is cut."""

_HANDSHAKE = b"\x16"
"""The first byte of a TLS connection."""


Hand = Callable[[asyncio.Transport, asyncio.Transport, Place], asyncio.Protocol]
"""Makes what speaks HTTP over a TLS transport, the one below it, and the connection's place."""


class Door(asyncio.Protocol):
    """Hands the connection to what `hand` makes, once the handshake is done."""

    def __init__(
        self,
        hand: Hand,
        context: Callable[[], ssl.SSLContext],
        connections: Connections,
        known: set[object],
    ) -> None:
        self._hand = hand
        self._context = context
        self._connections = connections
        self._known = known
        """uvicorn's set of connections, which it shuts down when it stops."""
        self._transport: asyncio.Transport | None = None
        self._place: Place | None = None
        self._opening: asyncio.Task[None] | None = None
        self._came = bytearray()
        """What nobody has taken yet: of the handshake, or right behind it."""
        self._heard = asyncio.Event()
        self._lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        host = str((transport.get_extra_info("peername") or ("",))[0])
        self._place = self._connections.enter(host, transport.abort)
        if self._place is None:
            transport.abort()
            return
        self._transport = transport
        self._known.add(self)
        loop = asyncio.get_running_loop()
        self._opening = loop.create_task(self._open(transport, self._place), name="tls")

    def data_received(self, data: bytes) -> None:
        if self._opening is not None and not self._opening.done():
            self._came += data
            self._heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._leave()
        if self._opening is not None and not self._heard.is_set():
            self._opening.cancel()

    def shutdown(self) -> None:
        """uvicorn stops."""
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        self._known.discard(self)
        if self._place is not None:
            self._place.leave()

    async def _open(self, transport: asyncio.Transport, place: Place) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await self._heard.wait()
                if self._came.startswith(_HANDSHAKE):
                    self._hand_over(transport, await self._shake_hands(transport), place)
                elif self._came[:1].isalpha():
                    self._answer_plain(transport)
                else:
                    transport.abort()
        except (OSError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            said = "it took too long" if late else "the client left: does it know the box's CA?"
            log.info("no TLS connection with %s: %s", place.host, str(error) or said)
            self._leave()
            transport.abort()

    async def _shake_hands(self, transport: asyncio.Transport) -> asyncio.Transport:
        shaking = asyncio.create_task(self._start_tls(transport))
        try:
            await asyncio.sleep(0)  # the TLS layer is the transport's protocol from here on
            if shaking.done():
                await shaking
            layer = transport.get_protocol()
            assert isinstance(layer, Fed)
            feed(layer, self._take())
            tls = await shaking
        finally:
            shaking.cancel()
        assert tls is not None
        return tls

    async def _start_tls(self, transport: asyncio.Transport) -> asyncio.Transport | None:
        """Raises OSError. Of a transport that is closed the event loop would say so as of a bug."""
        if transport.is_closing():
            raise ConnectionResetError
        return await asyncio.get_running_loop().start_tls(
            transport,
            self,
            self._context(),
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=GOODBYE_S,
        )

    def _hand_over(
        self, transport: asyncio.Transport, tls: asyncio.Transport, place: Place
    ) -> None:
        if self._lost:
            return
        self._known.discard(self)
        http = self._hand(tls, transport, place)
        tls.set_protocol(http)
        if early := self._take():
            http.data_received(early)

    def _take(self) -> bytes:
        taken = bytes(self._came)
        self._came.clear()
        return taken

    def _answer_plain(self, transport: asyncio.Transport) -> None:
        """Reads on meanwhile: a connection closed on unread data is reset, answer and all."""
        fault = BadRequest(
            "this port speaks TLS: use https:// in place of http://", code="tls_required"
        )
        body = encode_fault(fault)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        transport.write(STATUS_LINE[fault.status] + head % len(body) + body)
        asyncio.get_running_loop().call_later(HEAR_S, transport.abort)


@runtime_checkable
class Fed(Protocol):
    """The part of `asyncio.BufferedProtocol` that TLS layers of all event loops have."""

    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def buffer_updated(self, nbytes: int, /) -> None: ...


def feed(layer: Fed, data: bytes) -> None:
    """Gives it bytes as if they had just arrived."""
    while data:
        room = layer.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        layer.buffer_updated(size)
        data = data[size:]
