"""The machine's networks, and a socket on each that speaks multicast DNS."""

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from appliance.discovery.addresses import Address6, addresses6

GROUP, GROUP6, PORT = "224.0.0.251", "ff02::fb", 5353
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_IFF_UP, _IFF_LOOPBACK, _IFF_MULTICAST = 0x1, 0x8, 0x1000
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29
"""Of Linux; switched off, a socket hears the networks alone that it joined."""
_TTL = 255
_INTERFACES = "/sys/class/net"
_REQUEST = struct.Struct("256s")


@dataclass(frozen=True, slots=True)
class Network:
    """One interface's address of one kind, and whom it reaches without a router."""

    address: str
    reach: ipaddress.IPv4Network | ipaddress.IPv6Network
    interface: str = ""
    index: int = 0
    """The interface's number, which IPv6 goes by."""
    also: tuple[str, ...] = ()
    """What the interface has of the other kind: it is told on both."""

    @property
    def told(self) -> tuple[str, ...]:
        """All of its addresses, IPv4 first."""
        return tuple(sorted((self.address, *self.also), key=lambda one: ":" in one))

    def near(self, host: str) -> bool:
        """Whether a sender is on it. Strangers from afar get nothing: not even to send us against
        others."""
        try:
            found = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if found.version == 6 and self.reach.version == 6 and found.is_link_local:
            return True
        return found in self.reach


def networks(host: str) -> tuple[Network, ...]:
    """Those on which a server bound to `host` can be reached: of a wildcard, all that can carry
    multicast; else the one with that address. `::` takes both kinds, and each interface tells all
    of its addresses."""
    four = tuple(_networks())
    if host in ("0.0.0.0", ""):
        return four
    if ":" not in host:
        return tuple(one for one in four if one.address == host)
    six = tuple(_networks6(addresses6()))
    if host != "::":
        return tuple(one for one in six if one.address == host)
    return (*(_with(one, six) for one in four), *(_with(one, four) for one in six))


def _with(network: Network, others: Sequence[Network]) -> Network:
    also = (one.address for one in others if one.interface == network.interface)
    return replace(network, also=tuple(also))


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
                address = socket.inet_ntoa(_asked(probe, _SIOCGIFADDR, request)[20:24])
                mask = socket.inet_ntoa(_asked(probe, _SIOCGIFNETMASK, request)[20:24])
            except OSError:
                continue  # an interface without an address
            if _carries(probe, name):
                reach = ipaddress.IPv4Network(f"{address}/{mask}", strict=False)
                yield Network(address, reach, name)


def _networks6(found: Sequence[Address6]) -> Iterator[Network]:
    """One address for each interface: a global one that stays, else its link-local one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name in dict.fromkeys(one.interface for one in found):
            own = [one for one in found if one.interface == name and one.usable]
            best = min(own, key=lambda one: one.link_local, default=None)
            if best is not None and _carries(probe, name):
                reach = ipaddress.IPv6Network(f"{best.address}/{best.prefix}", strict=False)
                yield Network(best.address, reach, name, best.index)


def _carries(probe: socket.socket, name: str) -> bool:
    """Whether the interface is up, is not the loopback, and carries multicast."""
    try:
        flags = _asked(probe, _SIOCGIFFLAGS, _REQUEST.pack(name.encode()))[16:18]
    except OSError:
        return False
    (on,) = struct.unpack("H", flags)
    return bool(on & _IFF_UP and on & _IFF_MULTICAST and not on & _IFF_LOOPBACK)


def _asked(probe: socket.socket, what: int, request: bytes) -> bytes:
    return fcntl.ioctl(probe, what, request)


class Link:
    """A socket on one network. Raises OSError."""

    def __init__(self, network: Network, *, group: str = "", port: int = PORT) -> None:
        """`group`: another one than that of multicast DNS."""
        self.network = network
        six = network.reach.version == 6
        group = group or (GROUP6 if six else GROUP)
        self._to: tuple[str, int] | tuple[str, int, int, int] = (group, port)
        self.socket = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # Others on this machine may speak on the port too.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if six:
                self._to = (group, port, 0, network.index)
                self._set_up6(group, port)
            else:
                self._set_up(group, port)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise

    def _set_up(self, group: str, port: int) -> None:
        sock, own = self.socket, socket.inet_aton(self.network.address)
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _TTL)
        sock.bind(("", port))
        member = socket.inet_aton(group) + own
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

    def _set_up6(self, group: str, port: int) -> None:
        """The kind of an address is its own socket's: IPv4 has another."""
        sock, index = self.socket, self.network.index
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _TTL)
        sock.bind(("::", port))
        member = socket.inet_pton(socket.AF_INET6, group) + struct.pack("=I", index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)

    def tell(self, packet: bytes) -> None:
        """Everybody on the network."""
        self.socket.sendto(packet, self._to)

    def reply(self, packet: bytes, to: tuple[str, int] | tuple[str, int, int, int]) -> None:
        """One that asked; `to` as the packet came from there."""
        self.socket.sendto(packet, to)

    def close(self) -> None:
        self.socket.close()
