"""Whether what was written to a connection leaves it.

A client that stops reading would hold its answer in our memory, and its request in the engine, for
as long as it likes. Also a connection that is being closed is watched: it is not closed before the
rest has left, and over TLS not before the peer has said goodbye.
"""

import asyncio
import logging
from collections.abc import Sequence

log = logging.getLogger("appliance.api")

HIGH_WATER = 64 * 1024
"""Bytes waiting for a client beyond which its answer is written no further."""
LEAST_BYTES = 16 * 1024
"""A client must take so much, or all there is, in the time allowed."""
GOODBYE_S = 1.0
"""For the peer's part in closing, once all has left."""


def _waiting_in(layer: asyncio.Transport) -> int:
    """asyncio's TLS transport that was closed twice has lost what it would ask: nothing waits."""
    try:
        return layer.get_write_buffer_size()
    except AttributeError:
        return 0


class Outflow:
    """The bytes that wait in `layers`, outermost first: the TLS transport and the one below it, or
    a plain transport alone."""

    def __init__(self, layers: Sequence[asyncio.Transport], stall_s: float) -> None:
        self._layers = layers
        self._stall_s = stall_s
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None
        layers[0].set_write_buffer_limits(high=HIGH_WATER)

    @property
    def waiting(self) -> int:
        """Bytes that have not reached the kernel."""
        return sum(map(_waiting_in, self._layers))

    def watch(self) -> None:
        """Something waits, or the connection is closing: look whether it moves."""
        if self._timer is None:
            self._look_later()

    def rest(self) -> None:
        """Nothing waits any more; a connection that is closing is watched on."""
        if self._timer is not None and not self._layers[0].is_closing():
            self.stop()

    def stop(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._left = self.waiting
        wait_s = self._stall_s if self._left else GOODBYE_S
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        left = self.waiting
        if left and self._left - left >= LEAST_BYTES:
            self._look_later()
            return
        self._timer = None
        if left:
            log.warning("a client took nothing for %g s: its connection is cut", self._stall_s)
        if left or self._layers[0].is_closing():
            self._layers[0].abort()
