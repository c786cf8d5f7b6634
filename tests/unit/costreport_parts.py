"""A ledger of a month, and what it costs."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

from appliance.accounts.cost import DAY_NS, Costing, PrefillPace, Rates
from appliance.config import CostConfig
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.rows import RequestRow
from tests.unit.test_cost import a_row

CONFIG = CostConfig(
    currency="EUR",
    device_price=2400,
    device_life_years=4,
    electricity_per_kwh=0.3,
    watts_idle=60,
    watts_busy=200,
    overhead_per_month=30,
)
FIRST = (date(2026, 1, 1) - date(1970, 1, 1)).days
NOW = (FIRST + 2) * DAY_NS


def ledger(
    state: Path, rows: Sequence[RequestRow], config: CostConfig = CONFIG, *, first_number: int = 1
) -> Path:
    """A ledger of these rows, priced; more of them for one that is there."""
    path, costing = state / "ledger.sqlite", Costing(Rates.of(config), PrefillPace())
    state.mkdir(exist_ok=True)
    db = connect(path)
    priced = [msgspec.structs.replace(row, number=i) for i, row in enumerate(rows, first_number)]
    priced = [msgspec.structs.replace(row, costs=costing(row)) for row in priced]
    with transaction(db):
        append(db, [(row, None) for row in priced])
    db.close()
    return path


def a_month() -> list[RequestRow]:
    """Two tenants on two days, a refusal, and energy that was measured once."""
    return [
        a_row(wall_ns=FIRST * DAY_NS, tenant="legal", scenario="summary", cached_tokens=30),
        a_row(wall_ns=(FIRST + 1) * DAY_NS, tenant="legal", key_id="k2", key_name="other"),
        a_row(wall_ns=(FIRST + 1) * DAY_NS, tenant="sales", energy_uj=70_000_000),
        a_row(
            wall_ns=FIRST * DAY_NS, tenant="sales", outcome="refused", prompt_tokens=0,
            prefill_tokens=0, completion_tokens=0, prefill_ns=0, decode_ns=0, count=3,
        ),
    ]  # fmt: skip
