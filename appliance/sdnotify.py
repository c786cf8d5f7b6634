"""Tells systemd where the daemon stands (sd_notify(3)); without systemd it does nothing."""

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Sends `state`: lines of NAME=VALUE such as READY=1."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
            link.sendto(state.encode(), address)
    except OSError as error:
        log.warning("systemd was not told %r: %s", state, error)
