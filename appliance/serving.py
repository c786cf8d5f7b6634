"""The HTTP server on the daemon's listener."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from appliance.alone import CannotServe
from appliance.api.protocol import bounded
from appliance.config import Config
from appliance.tls import TlsState

CLOSE_S = 5.0
"""For clients that do not read, once the server is to end."""


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: the daemon stops in stages."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def start_http(
    app: ASGIApp, config: Config, tls: TlsState | None, listener: socket.socket
) -> tuple[Server, asyncio.Task[None]]:
    """Returns when it answers: the server, and the task that is done when the server is. Raises
    CannotServe."""
    server = Server(
        uvicorn.Config(
            app,
            http=bounded(config.limits, tls.context if tls else None),
            loop="none",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=2048,
            timeout_graceful_shutdown=int(CLOSE_S),
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if serving.done():
        await serving
        raise CannotServe("the HTTP server did not start: see the log above")
    return server, serving
