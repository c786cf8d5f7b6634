"""Where a daemon of this machine listens, as the kernel tells: it may have been started with
another `--host` or `--port` than its configuration's."""

from ipaddress import ip_address
from pathlib import Path

from appliance.config import WILDCARDS
from appliance.config.server import ServerConfig
from appliance.doctor.sockets import PROC, Holder, Listener, on_port, ports_of

ROOT = 0
"""Whoever is root may read every key as it is."""


def standing(holder: Holder | None, server: ServerConfig, proc: Path = PROC) -> tuple[str, int]:
    """Address and port to ask. `holder`: of the state's lock; None: it is out of our sight."""
    listens = ports_of(holder.pid, proc) if holder is not None else []
    if not listens:
        return server.host, server.port
    ports = {one.port for one in listens}
    port = server.port if server.port in ports else min(ports)
    return _address(server.host, [one for one in listens if one.port == port]), port


def belongs(holder: Holder | None, server: ServerConfig, proc: Path = PROC) -> bool | None:
    """Whether what listens there is the box's: a socket of the lock's holder or, where we may not
    see whose sockets are whose, none but root's (a container's port) and those of the user to whom
    the state belongs. None: that user is out of our sight, too."""
    if holder is not None and ports_of(holder.pid, proc):
        return True
    try:
        owners = {ROOT, server.state_dir.stat().st_uid}
    except OSError:
        return None
    return all(one.owner in owners for one in on_port(server.port, server.host, proc))


def _address(host: str, listens: list[Listener]) -> str:
    """The configured one if they take connections to it; else one of theirs."""
    try:
        wanted = ip_address(WILDCARDS.get(host.strip("[]"), host).strip("[]").partition("%")[0])
    except ValueError:
        return host  # a name: only the resolver knows
    wild = any(one.wild and ip_address(one.address).version >= wanted.version for one in listens)
    if wild or any(ip_address(one.address) == wanted for one in listens):
        return host
    return min(one.address for one in listens)
