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
_ONLY_A = bytes([0, 1, 0x40])
_ONLY_TXT_AND_SRV = bytes([0, 5, 0, 0, 0x80, 0, 0x40])
"""Which kinds there are, as NSEC says it: so that nobody waits for an IPv6 address."""


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
            *(
                Record(host, Kind.A, ipaddress.IPv4Address(address).packed, SHORT_S, flush=True)
                for address in addresses
            ),
        )

    def shared(self) -> tuple[Record, ...]:
        """What every box of the kind says."""
        return (
            Record(KIND, Kind.PTR, packed(self.instance), LONG_S),
            Record(_KINDS, Kind.PTR, packed(KIND), LONG_S),
        )

    def nothing_else(self) -> tuple[Record, ...]:
        """That there is no more under our names."""
        instance, host = self.instance, self.host_name
        return (
            Record(instance, Kind.NSEC, packed(instance) + _ONLY_TXT_AND_SRV, LONG_S, flush=True),
            Record(host, Kind.NSEC, packed(host) + _ONLY_A, SHORT_S, flush=True),
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
                fit = [record for record in self.nothing_else() if lower(record.name) == name]
            found |= dict.fromkeys(fit)
        return [record for record in found if had.get(record.identity, 0) < record.ttl / 2]

    def beside(self, answers: Sequence[Record], addresses: Sequence[str]) -> tuple[Record, ...]:
        """What an asker will ask next."""
        if not any(record.kind in (Kind.PTR, Kind.SRV) for record in answers):
            return ()
        return tuple(record for record in self.unique(addresses) if record not in answers)


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
