"""The rows of screen 2: live requests from the frames, ended ones from the ledger."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from appliance.frames import RequestRow
from tui.expected import WIDTH, expected
from tui.figures import NONE, UNKNOWN, count, money, seconds
from tui.filters import Field
from tui.grid import Column
from tui.moments import DAY, brief
from tui.view import View

NANO = 1e9
"""Money and time of the ledger."""
SHORT = 6
"""Signs of an id in the table."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """In nano of the currency."""

    currency: str = ""
    prefill: int = 0
    decode: int = 0
    cached: int = 0
    idle: int = 0

    @property
    def total(self) -> int:
        return self.prefill + self.decode + self.cached + self.idle


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    digest: str = ""
    completion_tokens: int = 0


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A final row of the ledger, as GET /admin/history tells it."""

    seq: int
    hash: str
    id: str
    wall_ns: int
    outcome: str
    key_name: str = ""
    tenant: str = ""
    scenario: str = ""
    route: str = ""
    model: str = ""
    tier: str = ""
    stream: bool = False
    n: int = 1
    max_tokens: int = 0
    count: int = 1
    status: int = 0
    code: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    completion_tokens: int = 0
    hidden_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    received_ns: int = 0
    submitted_ns: int = 0
    started_ns: int = 0
    first_token_ns: int = 0
    ended_ns: int = 0
    parallel: int = 0
    preemptions: int = 0
    exclusive: bool = False
    energy_uj: int | None = None
    energy_source: str = ""
    forecast: Mapping[str, Any] | None = None
    costs: Costs | None = None
    choices: tuple[Choice, ...] = ()
    recovered: bool = False
    exact: bool = True

    @property
    def audits(self) -> bool:
        """It was a replay for an audit: it has no tokens of its own."""
        return "/audit/" in self.route

    @property
    def prepare_ms(self) -> float | None:
        return _between(self.received_ns, self.submitted_ns)

    @property
    def wait_ms(self) -> float | None:
        return _between(self.submitted_ns, self.started_ns or self.ended_ns)

    @property
    def prefill_ms(self) -> float | None:
        return _between(self.started_ns, self.first_token_ns or self.ended_ns)

    @property
    def decode_ms(self) -> float | None:
        return _between(self.first_token_ns, self.ended_ns)

    @property
    def total_ms(self) -> float | None:
        return _between(self.received_ns or self.submitted_ns, self.ended_ns)


def _between(start: int, end: int) -> float | None:
    """Milliseconds; None where it never came to it."""
    return (end - start) / 1e6 if start and end >= start else None


def forecast_of(ended: Ended) -> tuple[int | None, int | None, int | None]:
    """p10, p50, p90, in tokens."""
    told = ended.forecast or {}
    p10, p50, p90 = (told.get(name) for name in ("p10_tok", "p50_tok", "p90_tok"))
    return _whole(p10), _whole(p50), _whole(p90)


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, int | float) else None


def short(id: str) -> str:
    """The telling part of an id: what is before its `-` is the same for all."""
    return (id.rpartition("-")[2] or id)[:SHORT]


def abridged(hash: str) -> str:
    """`9f3a..c1`."""
    return hash if len(hash) < 9 else f"{hash[:4]}..{hash[-2:]}"


def cost(nano: int) -> str:
    """Money of one request, which may be next to nothing."""
    return "<0.00001" if 0 < nano < 10_000 else money(nano / NANO)


def state_of(row: RequestRow, view: View) -> str:
    """The first of the queue is `wait 1`."""
    known = view.words.or_else(f"requests.state.{row.state}", view.foreign(row.state))
    return known.format(pos=row.pos + 1) if row.state == "waiting" else known


def outcome_of(row: Ended, view: View) -> str:
    """How it ended; refusals that came too fast to be told apart have a number."""
    known = view.words.or_else(f"requests.end.{row.outcome}", view.foreign(row.outcome))
    return f"x{row.count} {known}" if row.count > 1 else known


def _or_none(value: float | None, show: Callable[[float | None], str]) -> str:
    return NONE if value is None else show(value)


def _generated(row: RequestRow, view: View) -> str:
    return count(row.gen_tok, 5) if row.gen_tok else NONE


def _cached(row: RequestRow) -> str:
    """Nothing is reused before it runs."""
    if row.cached_tok is None:
        return NONE if row.state == "waiting" else UNKNOWN
    return count(row.cached_tok)


def _bar(row: RequestRow, view: View) -> str:
    generated = row.gen_tok if row.state != "waiting" else None
    return expected(generated, row.p10_tok, row.p50_tok, row.p90_tok)


LIVE: tuple[Column[RequestRow], ...] = (
    Column("requests.col.id", SHORT, lambda r, v: short(v.foreign(r.id))),
    Column("requests.col.key", 7, lambda r, v: v.foreign(r.key), most=16),
    Column("requests.col.state", 8, state_of),
    Column("requests.col.prompt", 6, lambda r, v: count(r.prompt_tok), right=True, rank=5),
    Column(
        "requests.col.cached",
        6,
        lambda r, v: _cached(r),
        right=True,
        rank=6,
    ),
    Column("requests.col.gen", 5, _generated, right=True),
    Column("requests.col.bar", WIDTH, _bar, rank=1),
    Column("requests.col.pool", 2, lambda r, v: v.foreign(r.pool), right=True, rank=7),
    Column("requests.col.wait", 6, lambda r, v: seconds(r.wait_ms), right=True, rank=3),
    Column("requests.col.eta", 6, lambda r, v: seconds(r.eta_ms), right=True, rank=2),
    Column("requests.col.tenant", 8, lambda r, v: v.foreign(r.tenant), rank=8, most=12),
    Column("requests.col.scenario", 10, lambda r, v: v.foreign(r.scenario), rank=9, most=20),
    Column("requests.col.tier", 8, lambda r, v: v.foreign(r.tier), rank=10),
)


def _ended(row: Ended, view: View) -> str:
    """The time of today, else the day."""
    return brief(row.wall_ns / 1e6, view.live.at_ms if view.live is not None else 0, DAY)


def _cost(row: Ended, view: View) -> str:
    return NONE if row.costs is None else cost(row.costs.total)


PAST: tuple[Column[Ended], ...] = (
    Column("requests.col.id", SHORT, lambda r, v: short(v.foreign(r.id))),
    Column("requests.col.key", 8, lambda r, v: v.foreign(r.key_name) or NONE, most=16),
    Column("requests.col.outcome", 8, outcome_of, most=12),
    Column("requests.col.ended", 8, _ended, rank=5),
    Column("requests.col.prompt", 6, lambda r, v: count(r.prompt_tokens), right=True, rank=6),
    Column("requests.col.gen", 5, lambda r, v: count(r.completion_tokens, 5), right=True),
    Column(
        "requests.col.bar",
        WIDTH,
        lambda r, v: expected(r.completion_tokens, *forecast_of(r)),
        rank=3,
    ),
    Column("requests.col.wait", 6, lambda r, v: _or_none(r.wait_ms, seconds), right=True, rank=2),
    Column("requests.col.total", 7, lambda r, v: _or_none(r.total_ms, seconds), right=True),
    Column("requests.col.tenant", 8, lambda r, v: v.foreign(r.tenant), rank=8, most=12),
    Column("requests.col.scenario", 10, lambda r, v: v.foreign(r.scenario), rank=9, most=20),
    Column("requests.col.cached", 6, lambda r, v: count(r.cached_tokens), right=True, rank=10),
    Column("requests.col.cost", 9, _cost, right=True, rank=7),
)


def live_fields(row: RequestRow) -> Mapping[str, Field]:
    """What `/` can ask of a live request; times in seconds."""
    return {
        "id": row.id,
        "key": row.key,
        "tenant": row.tenant,
        "scenario": row.scenario,
        "state": row.state,
        "pool": row.pool,
        "tier": row.tier,
        "flags": " ".join(row.flags),
        "prompt": row.prompt_tok,
        "cached": row.cached_tok,
        "gen": row.gen_tok,
        "wait": row.wait_ms / 1e3,
        "run": None if row.run_ms is None else row.run_ms / 1e3,
        "eta": None if row.eta_ms is None else row.eta_ms / 1e3,
        "cost": row.cost,
    }


def past_fields(row: Ended) -> Mapping[str, Field]:
    """The same of an ended one."""
    return {
        "id": row.id,
        "key": row.key_name,
        "tenant": row.tenant,
        "scenario": row.scenario,
        "state": row.outcome,
        "outcome": row.outcome,
        "code": row.code,
        "tier": row.tier,
        "prompt": row.prompt_tokens,
        "cached": row.cached_tokens,
        "gen": row.completion_tokens,
        "wait": _in_s(row.wait_ms),
        "total": _in_s(row.total_ms),
        "cost": None if row.costs is None else row.costs.total / NANO,
    }


def _in_s(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3


LIVE_ORDERS: Mapping[str, Callable[[RequestRow], Any] | None] = {
    "order": None,
    "run": lambda row: -(row.run_ms or 0),
    "wait": lambda row: -row.wait_ms,
    "tokens": lambda row: -(row.prompt_tok + row.gen_tok),
    "key": lambda row: row.key,
}
PAST_ORDERS: Mapping[str, Callable[[Ended], Any] | None] = {
    "newest": None,
    "total": lambda row: -(row.total_ms or 0),
    "wait": lambda row: -(row.wait_ms or 0),
    "tokens": lambda row: -(row.prompt_tokens + row.completion_tokens),
    "key": lambda row: row.key_name,
}
