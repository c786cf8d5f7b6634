"""Area `port`: can the box have its port, who has it, and does it answer where clients ask?"""

import errno
import socket
from collections.abc import Iterator

from appliance.banner import base_url
from appliance.config import WILDCARDS, Config, is_loopback
from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground
from appliance.doctor.running import Box
from appliance.doctor.sockets import holder_of, on_port
from appliance.tls import tls_on
from appliance.tls.names import addresses

_FOREIGN = "stop it, or set server.port to another"


def look(ground: Ground) -> Iterator[Finding]:
    server = ground.config.server
    if ground.box.runs:
        yield from _of_the_box(ground.config, ground.box)
        return
    where = f"{server.host}:{server.port}"
    problem = bindable(server.host, server.port)
    if problem is None:
        yield ok("port.listen", f"{where} is free for the box")
    elif problem == errno.EADDRINUSE:
        yield fail("port.listen", f"{where} is taken by {_who(server.host, server.port)}", _FOREIGN)
    elif problem == errno.EACCES:
        yield fail(
            "port.listen",
            f"{where} is not for this user: ports below 1024 are root's",
            "set server.port to 1024 or more",
        )
    elif problem == errno.EADDRNOTAVAIL:
        yield fail(
            "port.listen",
            f"{server.host} is no address of this machine now",
            "set server.host to one it has (`ip address`), or to 0.0.0.0; with DHCP the address "
            "may have changed",
        )
    else:
        told = errno.errorcode.get(problem, str(problem))
        yield fail("port.listen", f"{where} cannot be listened on: {told}", "set server.host")


def bindable(host: str, port: int) -> int | None:
    """The error's number; None: it can. Listens for an instant, and takes no connection."""
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((bare, port))
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EIO
    return None


def _who(host: str, port: int) -> str:
    """Only root sees other users' sockets."""
    for listener in on_port(port, host):
        if found := holder_of(listener.inode):
            return str(found)
    return "a process that this user cannot see (`sudo steelyard doctor --only port` names it)"


def _of_the_box(config: Config, box: Box) -> Iterator[Finding]:
    if not box.url:
        yield note("port.listen", "where the running box listens cannot be seen by this user")
        return
    yield ok("port.listen", f"the box has it: {box.url}")
    host = config.server.host.strip("[]")
    if is_loopback(host):
        yield ok("port.lan", f"{host} is for this machine alone, as configured")
        return
    port = int(box.url.rpartition(":")[2])
    for address in addresses(host) if host in WILDCARDS else [host]:
        if is_loopback(address):
            continue
        yield _answers(config, address, port)


def _answers(config: Config, address: str, port: int) -> Finding:
    """From here alone: whether a firewall lets others through is not seen from inside."""
    url = base_url(address, port, tls=tls_on(config))
    found = Box.find(config, url=url).get("/health")
    if found.ok:
        return ok(
            "port.lan", f"{url} answers (from this machine; a firewall is not seen from here)"
        )
    return warn(
        "port.lan",
        f"{url} does not answer: {found.why or found.status}",
        "see `ip address` and the firewall (`nft list ruleset`)",
    )
