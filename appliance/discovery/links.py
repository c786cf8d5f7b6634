"""The machine's networks, and a socket on each that speaks multicast DNS."""

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

GROUP, PORT = "224.0.0.251", 5353
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_IFF_UP, _IFF_LOOPBACK, _IFF_MULTICAST = 0x1, 0x8, 0x1000
_IP_MULTICAST_ALL = 49
"""Of Linux; switched off, a socket hears the networks alone that it joined."""
_TTL = 255
_INTERFACES = "/sys/class/net"
_REQUEST = struct.Struct("256s")


@dataclass(frozen=True, slots=True)
class Network:
    """One interface's first IPv4 address, and whom it reaches without a router."""

    address: str
    reach: ipaddress.IPv4Network


def networks(host: str) -> tuple[Network, ...]:
    """Those on which a server bound to `host` can be reached: of a wildcard, all that can carry
    multicast; else the one with that address. IPv4."""
    found = tuple(_networks())
    if host in ("0.0.0.0", "::", ""):
        return found
    return tuple(one for one in found if one.address == host)


def interface_names() -> list[str]:
    """Of all of this machine. A sandbox without netlink still has the kernel's list of files."""
    try:
        return [name for _, name in socket.if_nameindex()]
    except OSError:
        return sorted(os.listdir(_INTERFACES))


def _networks() -> Iterator[Network]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name in interface_names():
            request = _REQUEST.pack(name.encode())
            try:
                flags = _asked(probe, _SIOCGIFFLAGS, request)[16:18]
                address = socket.inet_ntoa(_asked(probe, _SIOCGIFADDR, request)[20:24])
                mask = socket.inet_ntoa(_asked(probe, _SIOCGIFNETMASK, request)[20:24])
            except OSError:
                continue  # an interface without an address
            (on,) = struct.unpack("H", flags)
            if on & _IFF_UP and on & _IFF_MULTICAST and not on & _IFF_LOOPBACK:
                yield Network(address, ipaddress.IPv4Network(f"{address}/{mask}", strict=False))


def _asked(probe: socket.socket, what: int, request: bytes) -> bytes:
    return fcntl.ioctl(probe, what, request)


class Link:
    """A socket on one network. Raises OSError."""

    def __init__(self, network: Network, *, group: str = GROUP, port: int = PORT) -> None:
        self.network = network
        self._to = (group, port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._set_up(group, port)
        except BaseException:
            self.socket.close()
            raise

    def _set_up(self, group: str, port: int) -> None:
        """Others on this machine may speak on the port too."""
        sock, own = self.socket, socket.inet_aton(self.network.address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _TTL)
        sock.bind(("", port))
        member = socket.inet_aton(group) + own
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        sock.setblocking(False)

    def tell(self, packet: bytes) -> None:
        """Everybody on the network."""
        self.socket.sendto(packet, self._to)

    def reply(self, packet: bytes, to: tuple[str, int]) -> None:
        """One that asked."""
        self.socket.sendto(packet, to)

    def close(self) -> None:
        self.socket.close()
