"""What was used, from the ledger's daily sums: for quotas at start, for a key's own figures, and
for reports. Reads only."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from sqlite3 import Connection

import msgspec

from appliance.accounts.allocation import Usage
from appliance.accounts.limits import money
from appliance.accounts.quotas import DAY_S, Past, Quotas
from appliance.accounts.sums import EPOCH, day_number, foreign, read_sums
from appliance.ledger.database import connect, explained

_COST = "cost_prefill + cost_decode + cost_cached + cost_idle"
_COLUMNS = ("requests", "refused", "prompt_tokens", "cached_tokens", "completion_tokens")


class Figures(msgspec.Struct, frozen=True):
    """Sums over requests that have ended."""

    requests: int = 0
    """Refused ones among them."""
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: int = 0
    """Nano."""

    def __add__(self, other: "Figures") -> "Figures":
        both = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Figures(*(a + b for a, b in both))

    def shown(self) -> dict[str, int | str]:
        """As the outside sees them: money as a decimal."""
        return {
            "requests": self.requests,
            "refused": self.refused,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "cost": money(self.cost),
        }


class Line(msgspec.Struct, frozen=True):
    """One group of a report."""

    group: dict[str, str]
    figures: Figures
    key_name: str | None = None
    """Where the report is by key."""

    def shown(self) -> dict[str, object]:
        named = {} if self.key_name is None else {"key_name": self.key_name}
        return {**self.group, **named, **self.figures.shown()}


def quotas_of(path: Path) -> Quotas:
    """Quotas that go on from the ledger. Raises LedgerError."""
    quotas = Quotas()
    load(quotas, path, time.monotonic(), time.time())
    return quotas


def load(quotas: Quotas, path: Path, now: float, wall: float) -> None:
    """Lets the quotas go on from the ledger; from nothing where there is none yet. Raises
    LedgerError."""
    if not path.exists() or not path.stat().st_size:
        quotas.load((), now, wall)
        return
    with _reading(path) as db:
        last = _last_wall(db)
        wall = max(wall, last)
        first = datetime.fromtimestamp(wall, UTC).date().replace(day=1)
        found = db.execute(
            f"SELECT key_id, tenant, day, SUM(prompt_tokens + completion_tokens), SUM({_COST})"
            " FROM usage_daily WHERE day >= ? GROUP BY key_id, tenant, day",
            (day_number(first),),
        )
        quotas.load([Past(*row) for row in found], now, wall)


def _last_wall(db: Connection) -> float:
    """When the ledger's last request ended; 0 where it has none."""
    found = db.execute(
        "SELECT wall_ns FROM entries WHERE kind = 'request' ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    return float(found[0]) / 1e9 if found is not None else 0.0


def by_day(path: Path, key_id: str, first: date, last: date) -> dict[date, Figures]:
    """What a key used on each day on which it used anything. Raises LedgerError."""
    if not path.exists():
        return {}
    sums = ", ".join(f"SUM({name})" for name in _COLUMNS)
    with _reading(path) as db:
        found = db.execute(
            f"SELECT day, {sums}, SUM({_COST}) FROM usage_daily"
            " WHERE key_id = ? AND day BETWEEN ? AND ? GROUP BY day",
            (key_id, day_number(first), day_number(last)),
        )
        return {EPOCH + timedelta(days=row[0]): Figures(*row[1:]) for row in found}


def report(
    path: Path,
    by: Sequence[str],
    *,
    currency: str,
    now_ns: int,
    first: date | None,
    last: date | None,
) -> tuple[date, date, list[Line], list[str]]:
    """Usage by group, the days it is of, and what is to be said of it. Raises LedgerError,
    sums.BadReport."""
    with _reading(path) as db:
        sums = read_sums(db, by, now_ns=now_ns, first=first, last=last)
    lines = [_line(by, row, sums.names) for row in sums.rows]
    lines.sort(key=lambda line: tuple(line.group.values()))
    return sums.period.first, sums.period.last, lines, foreign(sums.currencies, currency)


def _line(by: Sequence[str], row: Usage, names: Mapping[str, str]) -> Line:
    group = dict(zip(by, row.group, strict=True))
    figures = Figures(
        row.requests,
        row.refused,
        row.prompt_tokens,
        row.cached_tokens,
        row.completion_tokens,
        row.standard,
    )
    return Line(group, figures, names.get(group["key"], "") if "key" in group else None)


@contextmanager
def _reading(path: Path) -> Iterator[Connection]:
    with closing(connect(path, read_only=True)) as db, explained(path):
        yield db.conn


def today_of(wall: float) -> date:
    """The day (UTC) of a wall clock."""
    return EPOCH + timedelta(days=int(wall // DAY_S))
