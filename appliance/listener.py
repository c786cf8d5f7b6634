"""The socket that the box listens on, and room for what comes over it."""

import logging
import resource
import socket

from appliance.alone import CannotServe
from appliance.api.connections import SPARE, watch_peers
from appliance.config import Config

log = logging.getLogger(__name__)

OTHERS = 256
"""Open files besides connections: the ledger's, the journal's, the children's, the readers'."""


def listen(config: Config) -> socket.socket:
    """Bound to the configured address. Raises CannotServe."""
    _make_room(config.limits.connections)
    server = config.server
    host = server.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    watch_peers(listener, config.limits.write_stall_s)
    try:
        listener.bind((host, server.port))
    except OSError as error:
        listener.close()
        raise CannotServe(
            f"cannot listen on {server.host}:{server.port}: {error.strerror}. Stop what "
            "listens there, or set server.port"
        ) from None
    return listener


def _make_room(connections: int) -> None:
    """Lets this process have as many files open as so many connections need: without one to spare
    neither the ledger could be read nor an engine be started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        log.warning(
            "limits.connections = %d needs %d open files, and this process may have %d: lower it, "
            "or raise LimitNOFILE= of the service (`ulimit -Hn`)",
            connections,
            needed,
            allowed,
        )
