"""What a verification found, and how it is told."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_FAULTS = 1000
"""As many are told apart; more are only counted."""


def plain(text: object) -> str:
    """What a ledger says of itself, as a terminal may see it: whoever altered a row must not be
    able to write over the line that says so."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


@dataclass
class Fault:
    """One thing that is not as it was written."""

    what: str
    """chain, missing, inserted, content, payload, digest, final, seal, signature, head, usage, key,
    tenant, export, file"""
    detail: str
    seq: int | None = None
    last_seq: int | None = None
    """The last of a run of rows with the same fault."""
    segment: int | None = None
    entry: str = ""
    """Kind, request and time, as far as the row still tells."""
    stored: str = ""
    computed: str = ""

    def __str__(self) -> str:
        entry = f" ({self.entry})" if self.entry else ""
        lines = [f"{self._place()}{entry}: {self.detail}"]
        lines += [f"stored    {self.stored}"] if self.stored else []
        lines += [f"computed  {self.computed}"] if self.computed else []
        return "\n      ".join(map(plain, lines))

    def _place(self) -> str:
        if self.seq is not None:
            many = self.last_seq is not None and self.last_seq > self.seq
            return f"rows {self.seq}-{self.last_seq}" if many else f"row {self.seq}"
        return f"seal {self.segment}" if self.segment is not None else self.what


@dataclass
class Verdict:
    """All that was checked, and every fault."""

    path: str
    deep: bool = True
    rows: int = 0
    first_seq: int = 0
    last_seq: int = 0
    head: str = ""
    """Hash of the last entry."""
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: list[int] = field(default_factory=list)
    """Numbers that were admitted and have no final row: in flight, or lost with the machine."""
    seals: int = 0
    signed: int = 0
    """Seals whose signature was checked and holds."""
    signers: list[str] = field(default_factory=list)
    dropped_rows: int = 0
    """Dropped by retention; their seals are here."""
    faults: list[Fault] = field(default_factory=list)
    fault_count: int = 0
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.fault_count

    def fault(self, what: str, detail: str, **where: Any) -> Fault:
        """Note a fault."""
        found = Fault(what, detail, **where)
        self.fault_count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(found)
        return found

    def remark(self, text: str) -> None:
        """Note what is no fault, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        word = "intact" if self.ok else f"NOT INTACT, {_many(self.fault_count, 'fault')}"
        lines = [f"{plain(self.path)}: {word}"]
        lines += [f"  {name:<9} {value}" for name, value in self._facts()]
        lines += [f"  note      {plain(remark)}" for remark in self.remarks]
        lines += [f"  FAULT {fault}" for fault in self.faults]
        if self.fault_count > len(self.faults):
            lines.append(f"  and {self.fault_count - len(self.faults)} more")
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, str]]:
        span = f" ({self.first_seq}-{self.last_seq})" if self.rows else ""
        dropped = f", {self.dropped_rows} before them dropped" if self.dropped_rows else ""
        waiting = f", {len(self.in_flight)} without an end yet" if self.in_flight else ""
        signed = f", {self.signed} signed by {', '.join(self.signers)}" if self.signed else ""
        per_second = round(self.rows / self.seconds) if self.seconds else 0
        how = "everything" if self.deep else "without token digests and older signatures (--fast)"
        return [
            ("rows", f"{self.rows}{span}{dropped}"),
            ("requests", f"{self.requests}{waiting}"),
            ("tokens", f"{self.prompt_tokens} of prompts, {self.completion_tokens} generated"),
            ("seals", f"{self.seals}{signed}"),
            ("head", self.head),
            ("checked", f"{how}, {self.seconds:.1f} s, {per_second} rows/s"),
        ]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def moment(wall_ns: object) -> str:
    """UTC time in words; empty for what is none."""
    if not isinstance(wall_ns, int) or not 0 <= wall_ns < 1 << 63:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall_ns // 10**9))
