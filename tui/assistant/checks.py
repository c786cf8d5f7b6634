"""What may be entered: checked here, whichever face asked. Nothing is read or written."""

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime

LEAST_PASSWORD = 8
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
_INTERFACE = re.compile(r"[^/\s\x00-\x1f]{1,15}")


class Wrong(Exception):
    """What was entered cannot be used, or something failed: the key of the word that says why
    (tui/words_assistant.py), and what it tells of."""

    def __init__(self, key: str, *told: str, field: str = "") -> None:
        super().__init__(key, *told)
        self.key, self.told, self.field = f"assist.wrong.{key}", told, field

    def at(self, field: str) -> "Wrong":
        """The same, of the field in which it was entered."""
        self.field = self.field or field
        return self


@dataclass(frozen=True, slots=True)
class Static:
    """An address that stays, as ADDRESS/PREFIX. `gateway` and `dns` may be empty: a site may have
    neither."""

    address: str
    gateway: str = ""
    dns: tuple[str, ...] = ()


def static(address: str, gateway: str = "", dns: str = "") -> Static:
    """From what was typed: ADDRESS/PREFIX, an address or nothing, addresses with blanks between.
    Raises Wrong, with the field."""
    at = _interface(address.strip())
    way = _address(gateway.strip(), "net.gateway") if gateway.strip() else None
    names = tuple(str(_address(one, "net.dns")) for one in dns.replace(",", " ").split())
    if at.ip.is_multicast or at.ip.is_unspecified or at.ip.is_loopback:
        raise Wrong("no_interface_address", str(at.ip), field="net.address")
    if at.version == 4 and at.network.prefixlen < 31 and at.ip in (at.network[0], at.network[-1]):
        raise Wrong("whole_network", str(at.ip), field="net.address")
    if way is not None and (way.version != at.version or way not in at.network or way == at.ip):
        raise Wrong("gateway", str(way), str(at.network), field="net.gateway")
    return Static(str(at), str(way or ""), names)


def _interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    try:
        found = ipaddress.ip_interface(text)
    except ValueError:
        raise Wrong("address", text, field="net.address") from None
    if "/" not in text:
        raise Wrong("prefix", text, field="net.address")
    if "%" in text:  # a scope is of the machine that typed it
        raise Wrong("address", text, field="net.address")
    return found


def _address(text: str, field: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise Wrong("address", text, field=field) from None


def interface(name: str) -> str:
    """The name as it is. Raises Wrong: it would not be one in a file of networkd."""
    if not _INTERFACE.fullmatch(name):
        raise Wrong("interface", name, field="net.interface")
    return name


def time_server(text: str) -> str:
    """A host name or an address. Raises Wrong."""
    if not HOST.fullmatch(text.strip()):
        raise Wrong("time_server", text, field="time.server")
    return text.strip()


def moment(text: str) -> str:
    """A UTC time as timedatectl takes it, to the minute. Raises Wrong."""
    try:
        return f"{datetime.strptime(text.strip(), '%Y-%m-%d %H:%M'):%Y-%m-%d %H:%M:00}"
    except ValueError:
        raise Wrong("moment", text, field="time.now") from None


def password(first: str, again: str) -> str:
    """The password; empty: it stays what it is. Raises Wrong."""
    if not first and not again:
        return ""
    if len(first) < LEAST_PASSWORD:
        raise Wrong("short", str(LEAST_PASSWORD), field="login.first")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in first):
        raise Wrong("control", field="login.first")
    if first != again:
        raise Wrong("not_same", field="login.again")
    return first


def key_name(text: str, field: str) -> str:
    """Of an app or a person. Raises Wrong."""
    if not _NAME.fullmatch(text.strip()):
        raise Wrong("name", text, field=field)
    return text.strip()


def names(text: str) -> tuple[str, ...]:
    """Host names and addresses with blanks between, for the certificate. Raises Wrong."""
    found = tuple(dict.fromkeys(text.replace(",", " ").split()))
    for one in found:
        if not HOST.fullmatch(one):
            raise Wrong("host", one, field="serve.names")
    return found
