"""The machine's IPv6 addresses, as the kernel lists them: no netlink is needed."""

import socket
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("/proc/net/if_inet6")
_TEMPORARY, _DAD_FAILED, _DEPRECATED, _TENTATIVE = 0x01, 0x08, 0x20, 0x40
_GLOBAL, _LINK = 0x00, 0x20


@dataclass(frozen=True, slots=True)
class Address6:
    """One address of one interface."""

    address: str
    prefix: int
    interface: str
    index: int
    scope: int
    flags: int

    @property
    def is_global(self) -> bool:
        return self.scope == _GLOBAL

    @property
    def temporary(self) -> bool:
        """A privacy address, which changes daily."""
        return bool(self.flags & _TEMPORARY)

    @property
    def link_local(self) -> bool:
        return self.scope == _LINK

    @property
    def usable(self) -> bool:
        """It stays, is ours alone, and others on the network can call it."""
        unfit = _TEMPORARY | _DAD_FAILED | _DEPRECATED | _TENTATIVE
        return self.scope in (_GLOBAL, _LINK) and not self.flags & unfit


def addresses6(table: Path = TABLE) -> tuple[Address6, ...]:
    """In the kernel's order; none where it has no IPv6."""
    try:
        rows = [line.split() for line in table.read_text("ascii").splitlines()]
    except (OSError, UnicodeError):
        return ()
    return tuple(
        Address6(
            socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)),
            int(prefix, 16), name, int(index, 16), int(scope, 16), int(flags, 16),
        )
        for address, index, prefix, scope, flags, name in rows
    )  # fmt: skip
