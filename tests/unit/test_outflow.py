"""What waits for a client."""

import asyncio
from asyncio import sslproto
from typing import Any

from appliance.api.outflow import Outflow


async def test_a_tls_connection_that_was_closed_twice_has_nothing_waiting() -> None:
    """As uvicorn does when a request ends just as its client leaves."""

    class Tls:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: 0

    loop, tls = asyncio.get_running_loop(), Tls()
    transport = sslproto._SSLProtocolTransport(loop, tls)  # type: ignore[attr-defined]
    flow = Outflow([transport], 1.0)
    for _ in range(2):
        transport.close()
    assert flow.waiting == 0
    flow.watch()
    flow.stop()
