"""The socket that the box listens on."""

import socket

from appliance.alone import CannotServe
from appliance.api.connections import watch_peers
from appliance.config import Config


def listen(config: Config) -> socket.socket:
    """Bound to the configured address. Raises CannotServe."""
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
