"""What there is to tell of the box (RFC 6763), and which of it answers a question. Pure."""

import hashlib
import ipaddress
import platform
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.config import Config
from appliance.discovery.wire import Kind, Name, Question, Record, lower, name_of, packed

LOCAL: Name = (b"local",)
KIND: Name = name_of("_openai._tcp.local")
_KINDS: Name = name_of("_services._dns-sd._udp.local")
SHORT_S, LONG_S = 120, 4500
"""How long others may believe what depends on addresses and ports, and what does not (RFC 6762,
10)."""
_MOST_LABEL = 63
_MACHINE_ID = Path("/etc/machine-id")
_ONLY_TXT_AND_SRV = bytes([0, 5, 0, 0, 0x80, 0, 0x40])
"""Which kinds there are, as NSEC says it: so that nobody waits for what does not come."""


def host_label(config: Config) -> str:
    """The box's own name below `.local`, unless another box has it. The machine's own may be
    announced by others on it, with other addresses; this one is ours alone."""
    try:
        machine = _MACHINE_ID.read_text("ascii").strip()
    except (OSError, UnicodeError):
        machine = platform.node()
    about = f"steelyard mdns {machine} {config.server.state_dir}"
    return f"steelyard-{hashlib.sha256(about.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Service:
    """The box as others see it."""

    label: str
    """For people; made shorter where it must be."""
    host: str
    """Below `.local`."""
    port: int
    texts: tuple[str, ...]
    number: int = 1
    """The how-manieth of that name we are."""

    @property
    def instance(self) -> Name:
        tail = f" ({self.number})" if self.number > 1 else ""
        room = _MOST_LABEL - len(tail)
        label = self.label.encode()[:room].decode(errors="ignore").strip() or "Steelyard"
        return (f"{label}{tail}".encode(), *KIND)

    @property
    def host_name(self) -> Name:
        return (
            f"{self.host}{f'-{self.number}' if self.number > 1 else ''}".encode(),
            *LOCAL,
        )

    def unique(self, addresses: Sequence[str]) -> tuple[Record, ...]:
        """What nobody else may say."""
        srv = struct.pack(">HHH", 0, 0, self.port) + packed(self.host_name)
        txt = b"".join(bytes([len(text)]) + text for text in map(str.encode, self.texts))
        instance, host = self.instance, self.host_name
        return (
            Record(instance, Kind.SRV, srv, SHORT_S, flush=True),
            Record(instance, Kind.TXT, txt or b"\0", LONG_S, flush=True),
            *(Record(host, *_packed(address), SHORT_S, flush=True) for address in addresses),
        )

    def shared(self) -> tuple[Record, ...]:
        """What every box of the kind says."""
        return (
            Record(KIND, Kind.PTR, packed(self.instance), LONG_S),
            Record(_KINDS, Kind.PTR, packed(KIND), LONG_S),
        )

    def nothing_else(self, addresses: Sequence[str]) -> tuple[Record, ...]:
        """That there is no more under our names."""
        instance, host = self.instance, self.host_name
        return (
            Record(instance, Kind.NSEC, packed(instance) + _ONLY_TXT_AND_SRV, LONG_S, flush=True),
            Record(host, Kind.NSEC, packed(host) + _kinds_of(addresses), SHORT_S, flush=True),
        )

    def answers(
        self, questions: Iterable[Question], addresses: Sequence[str], known: Iterable[Record] = ()
    ) -> list[Record]:
        """What answers them, but what the asker says that it knows already."""
        had = {record.identity: record.ttl for record in known}
        all_records = (*self.unique(addresses), *self.shared())
        found: dict[Record, None] = {}
        for question in questions:
            name = lower(question.name)
            there = [record for record in all_records if lower(record.name) == name]
            fit = [record for record in there if question.kind in (record.kind, Kind.ANY)]
            if not fit:
                rest = self.nothing_else(addresses)
                fit = [record for record in rest if lower(record.name) == name]
            found |= dict.fromkeys(fit)
        return [record for record in found if had.get(record.identity, 0) < record.ttl / 2]

    def beside(self, answers: Sequence[Record], addresses: Sequence[str]) -> tuple[Record, ...]:
        """What an asker will ask next."""
        if not any(record.kind in (Kind.PTR, Kind.SRV) for record in answers):
            return ()
        return tuple(record for record in self.unique(addresses) if record not in answers)


def _packed(address: str) -> tuple[Kind, bytes]:
    """Kind and data of an address's record."""
    found = ipaddress.ip_address(address)
    return (Kind.A if found.version == 4 else Kind.AAAA), found.packed


def _kinds_of(addresses: Sequence[str]) -> bytes:
    """A bit for each kind of address (RFC 4034, 4.1.2)."""
    kinds = {_packed(address)[0] for address in addresses}
    bits = bytearray(1 + max(kinds, default=0) // 8)
    for kind in kinds:
        bits[kind // 8] |= 0x80 >> kind % 8
    return bytes([0, len(bits), *bits])


def service_of(config: Config, *, port: int, tls: bool, version: str) -> Service:
    """The box with this configuration."""
    return Service(
        label=config.discovery.name or f"Steelyard {platform.node()}",
        host=host_label(config),
        port=port,
        texts=(
            "txtvers=1",
            "path=/v1",
            f"scheme={'https' if tls else 'http'}",
            f"version={version}",
        ),
    )
