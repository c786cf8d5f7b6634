"""What the box tells of conflicts, operators' actions and faults, and the rows of screen 5."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tui.figures import NONE
from tui.filters import Field
from tui.grid import Column
from tui.moments import brief
from tui.screens.requests_rows import abridged, short
from tui.view import View


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A client had other tokens than the ledger."""

    seq: int
    wall_ns: int
    id: str
    trace_id: str = ""
    key_id: str = ""
    choice: int = 0
    claimed: str = ""
    digest: str = ""
    first_difference: int | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator, or the box itself, did."""

    seq: int
    hash: str
    wall_ns: int
    action: str
    target: str = ""
    key_id: str = ""
    key_name: str = ""
    operator: str = ""
    host: str = ""
    detail: Mapping[str, Any] = {}

    @property
    def who(self) -> str:
        """The name that was claimed, else the key's; empty for the box itself."""
        return self.operator or self.key_name


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written."""

    what: str
    detail: str
    seq: int | None = None
    last_seq: int | None = None
    segment: int | None = None
    entry: str = ""
    stored: str = ""
    computed: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    rows: int = 0
    requests: int = 0
    seals: int = 0
    fault_count: int = 0
    faults: tuple[Fault, ...] = ()
    seconds: float = 0.0


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Of GET /admin/audit/ledger/verify."""

    state: str
    by: str = ""
    ended_ms: int = 0
    done: int = 0
    total: int | None = None
    rate: float | None = None
    eta_ms: int | None = None
    verdict: Verdict | None = None
    problem: str = ""

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self.verdict.faults if self.verdict is not None else ()


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a replay: an entry of the chain, and its report while that is kept."""

    seq: int = 0
    choice: int = 0
    result: str = ""
    positions: int = 0
    differing: int = 0
    facts: Mapping[str, Any] = {}


PENDING = Replay(result="pending")


def replays_of(data: Any) -> dict[tuple[str, int], Replay]:
    """The last replay of each answer by id and choice, from GET /v1/audit/{id}."""
    found: dict[tuple[str, int], Replay] = {}
    for record in data["requests"]:
        name = str(record["request"]["id"])
        for entry in record["audits"]:
            if entry["kind"] == "replay":
                found[name, int(entry["choice"])] = msgspec.convert(entry, Replay)
        for choice in record["replays_pending"]:
            found[name, int(choice)] = PENDING
    return found


def when(wall_ns: int, view: View) -> str:
    """UTC: the time of today, else day and minute."""
    return brief(wall_ns / 1e6, view.live.at_ms if view.live is not None else 0)


def place_of(fault: Fault, view: View) -> str:
    words = view.words
    if fault.seq is not None:
        if fault.last_seq is not None and fault.last_seq > fault.seq:
            return words("audit.fault.rows", seq=fault.seq, last=fault.last_seq)
        return words("audit.fault.row", seq=fault.seq)
    if fault.segment is not None:
        return words("audit.fault.segment", segment=fault.segment)
    return view.foreign(fault.what)


def _hash(hash: str, view: View) -> str:
    return abridged(view.foreign(hash)) or NONE


def conflict_columns(
    names: Mapping[str, str], result: Callable[[Conflict, View], str]
) -> tuple[Column[Conflict], ...]:
    """`names`: of keys by id. `result`: what came of it, in words."""
    return (
        Column("audit.col.when", 11, lambda r, v: when(r.wall_ns, v)),
        Column("audit.col.request", 7, lambda r, v: short(v.foreign(r.id))),
        Column(
            "audit.col.key",
            10,
            lambda r, v: v.foreign(names.get(r.key_id, r.key_id)) or NONE,
            rank=1,
            most=12,
        ),
        Column("audit.col.result", 20, result, most=200),
    )


def action_columns(names: Mapping[str, str]) -> tuple[Column[Action], ...]:
    """`names`: of keys by id, which is what actions on keys tell of."""
    return (
        Column("audit.col.acted", 11, lambda r, v: when(r.wall_ns, v)),
        Column(
            "audit.col.who", 10, lambda r, v: v.foreign(r.who) or v.words("audit.by.box"), most=12
        ),
        Column("audit.col.akey", 10, lambda r, v: v.foreign(r.key_name) or NONE, rank=1, most=12),
        Column("audit.col.what", 16, lambda r, v: v.foreign(_what(r, names)), most=200),
        Column("audit.col.row", 8, lambda r, v: str(r.seq), right=True),
    )


def _what(row: Action, names: Mapping[str, str]) -> str:
    return f"{row.action} {names.get(row.target, row.target)}".strip()


FAULTS: tuple[Column[Fault], ...] = (
    Column("audit.col.fault", 14, place_of),
    Column("audit.col.kind", 9, lambda r, v: v.foreign(r.what), rank=1),
    Column("audit.col.detail", 14, lambda r, v: v.foreign(r.detail), most=200),
    Column("audit.col.stored", 10, lambda r, v: _hash(r.stored, v), rank=2),
    Column("audit.col.computed", 10, lambda r, v: _hash(r.computed, v), rank=2),
)


def conflict_fields(row: Conflict) -> Mapping[str, Field]:
    return {"id": row.id, "trace": row.trace_id, "key": row.key_id, "row": float(row.seq)}


def action_fields(row: Action) -> Mapping[str, Field]:
    return {
        "who": row.who,
        "key": row.key_name,
        "what": row.action,
        "target": row.target,
        "host": row.host,
        "row": float(row.seq),
    }


def fault_fields(row: Fault) -> Mapping[str, Field]:
    return {"what": row.what, "detail": row.detail, "entry": row.entry, "row": row.seq}


ACTION_ORDERS: Mapping[str, Callable[[Action], Any] | None] = {
    "newest": None,
    "who": lambda row: row.who.casefold(),
    "what": lambda row: row.action,
}
