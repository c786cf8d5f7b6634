"""Under which names and addresses clients reach this box."""

import fcntl
import re
import socket
import struct

from appliance.config import WILDCARDS, Config
from appliance.discovery import host_label
from appliance.discovery.addresses import addresses6
from appliance.discovery.links import interface_names
from appliance.tls.certificates import normal

MOST_NAMES = 256

_SIOCGIFADDR = 0x8915
_HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?|[0-9a-f:.]+")


def wanted_names(config: Config) -> tuple[str, ...]:
    """What the box's own certificate is for, those of the configuration first."""
    host = normal(config.server.host)
    machine = socket.gethostname()
    wanted = [*config.tls.names, *config.server.allowed_hosts]
    wanted += addresses(host) if host in WILDCARDS else [host]
    wanted += [f"{host_label(config)}.local"] if config.discovery.mdns else []
    wanted += [machine, f"{machine}.local", "localhost", "127.0.0.1", "::1"]
    known = dict.fromkeys(map(normal, wanted))
    return tuple(name for name in known if _HOST.fullmatch(name))[:MOST_NAMES]


def addresses(host: str) -> list[str]:
    """The machine's addresses that a server on this wildcard can be reached at."""
    return [*_ipv4(), *(_ipv6() if host == "::" else ())]


def _ipv4() -> list[str]:
    """The first address of each interface."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for interface in interface_names():
            request = struct.pack("256s", interface.encode())
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an address
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6() -> list[str]:
    """Addresses of global scope that stay: privacy addresses change daily, and nobody connects to
    them."""
    return [one.address for one in addresses6() if one.is_global and not one.temporary]
