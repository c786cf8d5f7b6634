"""The cost report: its sums, its split, its texts, its command and its route."""

import csv
import io
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts.allocation import Usage
from appliance.accounts.cost import DAY_NS, NANO
from appliance.accounts.costreport import Report, build, report
from appliance.accounts.prices import CloudPrice
from appliance.accounts.sums import DIMENSIONS, BadReport, Period, Sums
from appliance.commands.costcsv import as_csv
from appliance.commands.costtable import WIDTH, cells_of, decimals, layout, table
from appliance.config import CostConfig
from tests.unit.costreport_parts import CONFIG, FIRST, NOW, a_month, ledger
from tests.unit.test_cost import a_row

TWO_DAYS = Period(date(2026, 1, 1), date(2026, 1, 2), 2 * DAY_NS)

some_rows = st.lists(
    st.builds(
        Usage,
        group=st.tuples(st.text(max_size=30)),
        requests=st.integers(0, 10**6),
        prompt_tokens=st.integers(0, 10**9),
        cached_tokens=st.integers(0, 10**6),
        completion_tokens=st.integers(0, 10**9),
        prefill_ns=st.integers(0, 10**15),
        decode_ns=st.integers(0, 10**15),
        cost_prefill=st.integers(0, 10**14),
        cost_decode=st.integers(0, 10**14),
        cost_cached=st.integers(0, 10**12),
        cost_idle=st.integers(0, 10**15),
    ),
    min_size=1,
    max_size=8,
)
some_configs = st.builds(
    CostConfig,
    overhead_per_month=st.floats(0, 10**6),
    weight_time=st.floats(0.1, 9),
    weight_requests=st.floats(0, 9),
    weight_context=st.floats(0, 9),
)


def a_report(
    rows: Sequence[Usage],
    *by: str,
    config: CostConfig = CONFIG,
    prices: Sequence[CloudPrice] = (),
    **more: Any,
) -> Report:
    return build(
        config, Sums(by=by or ("tenant",), period=TWO_DAYS, rows=tuple(rows), **more), prices
    )


# -- the figures -----------------------------------------------------------------------------------


@given(some_rows, some_configs)
def test_rows_sum_to_the_total_to_the_nano(rows: list[Usage], config: CostConfig) -> None:
    found = a_report(rows, config=config)
    total = found.total
    for stage in ("prefill", "decode", "cached", "idle", "total"):
        parts = [getattr(row.standard, stage) for row in found.rows]
        assert sum(parts) == getattr(total.standard, stage)
    assert sum(row.actual for row in found.rows) + found.unallocated == total.actual
    assert total.actual == found.fixed + found.energy
    assert sum(row.variance for row in found.rows) + found.unallocated == total.variance


def test_ledger_is_summed_by_every_dimension(tmp_path: Path) -> None:
    path = ledger(tmp_path, a_month())
    reports = [report(path, CONFIG, [name], now_ns=NOW) for name in DIMENSIONS]
    assert all(found.total == reports[0].total for found in reports)
    groups = [[row.group for row in found.rows] for found in reports]
    keys, tenants, scenarios, models, days = groups
    assert {(key["key"], key["key_name"]) for key in keys} == {("k", "app"), ("k2", "other")}
    assert [tenant["tenant"] for tenant in tenants] == ["legal", "sales"]
    assert {scenario["scenario"] for scenario in scenarios} == {"", "summary"}
    assert models == [{"model": "m"}]
    assert days == [{"day": "2026-01-01"}, {"day": "2026-01-02"}]
    total = reports[0].total
    assert (total.requests, total.refused, total.prompt_tokens) == (6, 3, 150)
    assert total.device_ns == 900_000_000
    assert reports[0].wall_ns == 2 * DAY_NS


def test_several_dimensions_make_one_group_each(tmp_path: Path) -> None:
    found = report(ledger(tmp_path, a_month()), CONFIG, ["day", "tenant"], now_ns=NOW)
    assert [tuple(row.group.values()) for row in found.rows] == [
        ("2026-01-01", "legal"),
        ("2026-01-01", "sales"),
        ("2026-01-02", "sales"),
        ("2026-01-02", "legal"),
    ]


def test_energy_per_token_is_of_what_was_measured(tmp_path: Path) -> None:
    found = report(ledger(tmp_path, a_month()), CONFIG, ["tenant"], now_ns=NOW)
    legal, sales = found.rows
    assert (legal.energy_uj, legal.joules_per_token) == (None, None)
    assert (sales.energy_uj, sales.joules_per_token) == (70_000_000, 1.0)
    assert found.total.joules_per_token == 1.0


def test_days_outside_the_period_are_left_out(tmp_path: Path) -> None:
    path, day = ledger(tmp_path, a_month()), date(2026, 1, 2)
    found = report(path, CONFIG, ["tenant"], now_ns=NOW, first=day, last=day)
    assert found.total.requests == 2
    assert found.wall_ns == DAY_NS


def test_period_is_this_month_to_date_from_the_first_use() -> None:
    now = FIRST * DAY_NS + 20 * DAY_NS + 5
    period = Period.between(None, None, now, date(2026, 1, 11))
    assert period == Period(date(2026, 1, 11), date(2026, 1, 21), 10 * DAY_NS + 5)
    for used in (None, date(1970, 1, 1), date(2025, 12, 31), date(2027, 1, 1)):
        assert Period.between(None, None, now, used).first == date(2026, 1, 1)


def test_period_counts_only_time_that_has_passed() -> None:
    assert Period.of(date(2026, 1, 1), date(2026, 1, 31), NOW).wall_ns == 2 * DAY_NS
    assert Period.of(date(2030, 1, 1), date.max, NOW).wall_ns == 0
    assert Period.between(date(2030, 1, 1), None, NOW, None).last == date(2030, 1, 1)
    assert Period.between(None, date(2025, 2, 3), NOW, None).first == date(2025, 2, 1)
    with pytest.raises(BadReport, match="swap the days"):
        Period.of(date(2026, 1, 2), date(2026, 1, 1), NOW)


def test_cloud_prices_are_compared_with_both_costs() -> None:
    rows = [Usage(group=("a",), prompt_tokens=10**6, completion_tokens=10**6, prefill_ns=1)]
    found = a_report(rows, prices=[CloudPrice("Example", NANO, 0, 2 * NANO)])
    (cloud,) = found.cloud
    assert cloud.cost == 3 * NANO
    assert cloud.minus_standard == 3 * NANO
    assert cloud.minus_actual == 3 * NANO - found.total.actual


# -- what it says ----------------------------------------------------------------------------------


def test_report_without_prices_says_which_settings_to_fill_in() -> None:
    text = table(a_report([Usage(group=("a",), requests=1)], config=CostConfig()))
    assert "No prices are configured, so every cost is 0" in text
    for name in ("device_price", "overhead_per_month", "electricity_per_kwh", "watts_busy"):
        assert f"cost.{name}" in text.replace("\n", " ")


def test_report_tells_of_a_second_currency(tmp_path: Path) -> None:
    path = ledger(tmp_path, a_month())
    assert report(path, CONFIG, ["tenant"], now_ns=NOW).notes == ()
    (note,) = report(path, CostConfig(device_price=1), ["tenant"], now_ns=NOW).notes
    assert note.startswith("The ledger also has costs in EUR")


def test_only_the_currencies_of_the_period_are_told_of(tmp_path: Path) -> None:
    before, after = a_row(wall_ns=FIRST * DAY_NS), a_row(wall_ns=(FIRST + 1) * DAY_NS)
    path = ledger(tmp_path, [before])
    ledger(tmp_path, [after], CostConfig(currency="USD", device_price=1), first_number=2)
    dollars = CostConfig(currency="USD", device_price=1)

    def notes(first: date, config: CostConfig) -> int:
        last = date(2026, 1, 2)
        return len(report(path, config, ["day"], now_ns=NOW, first=first, last=last).notes)

    assert notes(date(2026, 1, 1), dollars) == 1
    assert notes(date(2026, 1, 2), dollars) == 0, "it was told to begin here"
    assert notes(date(2026, 1, 2), CONFIG) == 1


def test_a_currency_between_two_long_spells_of_another_is_told_of(tmp_path: Path) -> None:
    many, dollars = 1200, CostConfig(currency="USD", device_price=1)
    first = [a_row(wall_ns=FIRST * DAY_NS)] * many
    path = ledger(tmp_path, first)
    ledger(tmp_path, [a_row(wall_ns=FIRST * DAY_NS + 9)], dollars, first_number=many + 1)
    third = [a_row(wall_ns=(FIRST + 1) * DAY_NS)] * many
    ledger(tmp_path, third, first_number=many + 2)
    (note,) = report(path, CONFIG, ["tenant"], now_ns=NOW).notes
    assert note.startswith("The ledger also has costs in USD")


def test_report_tells_when_energy_of_computing_is_left_out() -> None:
    config = CostConfig(electricity_per_kwh=0.3)
    (note,) = a_report([Usage(group=("a",), decode_ns=1)], config=config).notes
    assert "cost.watts_busy is 0" in note


def test_unused_period_says_when_the_box_was_used() -> None:
    text = table(a_report([], used=(date(2025, 3, 1), date(2025, 4, 1))))
    assert "No requests. The box cost 6.1207, which nobody caused." in text.replace("\n", " ")
    assert "the ledger has usage from 2025-03-01 to 2025-04-01" in text.replace("\n", " ")


def test_what_nobody_caused_has_a_line() -> None:
    refused = a_report([Usage(group=("a",), requests=2, refused=2)])
    assert re.search(r"^\(nobody\) +100\.0 +6\.1", table(refused), re.M)
    assert as_csv(refused).splitlines()[-1].startswith("(nobody),")


# -- tables ----------------------------------------------------------------------------------------


def numbers(text: str, title: str) -> tuple[list[list[Decimal]], list[Decimal]]:
    """The rows of one table and its total, labels left out."""
    body = text.partition(title)[2].split("\n\n")[1].splitlines()
    rules = [i for i, line in enumerate(body) if set(line) == {"-"}]
    columns = len(body[-1].split()) - 1
    rows = [cells(line, columns) for line in body[rules[0] + 1 : rules[1]]]
    return [row for row in rows if row], cells(body[-1], columns)


def cells(line: str, columns: int) -> list[Decimal]:
    found = line.split()[-columns:]
    if len(found) < columns or any(not re.fullmatch(r"-|-?[\d.]+", cell) for cell in found):
        return []
    return [Decimal(cell) if cell != "-" else Decimal(0) for cell in found]


@given(some_rows, some_configs)
def test_printed_numbers_add_up_as_printed(rows: list[Usage], config: CostConfig) -> None:
    rows = [renamed(row, f"t{place}") for place, row in enumerate(rows)]
    text = table(a_report(rows, config=config))
    parts, total = numbers(text, "Standard cost")
    for row in [*parts, total]:
        assert sum(row[1:5]) == row[5]
    assert [sum(column) for column in zip(*parts, strict=True)] == total
    parts, total = numbers(text, "Actual cost")
    for row in [*parts, total]:
        assert row[1] - row[2] == row[3]
    assert [sum(column) for column in zip(*parts, strict=True)] == total
    parts, total = numbers(text, "Use")
    assert [sum(column) for column in zip(*parts, strict=True)][:4] == total[:4]


def renamed(row: Usage, name: str) -> Usage:
    return Usage(**{**{n: getattr(row, n) for n in Usage.__dataclass_fields__}, "group": (name,)})


@given(some_rows, some_configs)
def test_tables_fit_eighty_columns_and_move_no_cursor(
    rows: list[Usage], config: CostConfig
) -> None:
    text = table(a_report(rows, config=config, prices=[CloudPrice("x" * 64, 1, 1, 1)]))
    for line in text.splitlines():
        assert cells_of(line) <= WIDTH, line
        assert line.isprintable(), line


def test_long_labels_stand_on_lines_of_their_own() -> None:
    text = layout("T", ["by", "n"], [["x" * 100, "1"], ["表" * 60, "2"]], ["3"])
    lines = text.splitlines()
    assert "x" * 80 in lines
    assert "表" * 40 in lines
    assert all(cells_of(line) <= WIDTH for line in lines)


@pytest.mark.parametrize(
    ("amounts", "places"),
    [
        ((0,), 2),
        ((1,), 8),
        ((123_450,), 8),
        ((NANO,), 4),
        ((123 * NANO,), 2),
        ((NANO // 10_000, 5000 * NANO), 5),
        ((0, 5000 * NANO), 2),
        ((10**7 * NANO,), 0),
    ],
)
def test_decimals_show_five_digits_within_ten_characters(
    amounts: tuple[int, ...], places: int
) -> None:
    assert decimals(*amounts) == places


# -- CSV -------------------------------------------------------------------------------------------


def test_csv_is_exact_and_holds_no_formula() -> None:
    rows = [
        Usage(group=("=cmd()", 'a"b,c'), requests=1, decode_ns=7, cost_decode=1),
        Usage(group=("k", "d"), requests=2, decode_ns=5, cost_idle=10**9 + 1),
    ]
    found = a_report(rows, "key", "tenant", names={"k": "app", "=cmd()": "+x"})
    read = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [(row["key"], row["key_name"], row["tenant"]) for row in read] == [
        ("k", "app", "d"),
        ("'=cmd()", "'+x", 'a"b,c'),
    ]
    assert [row["standard"] for row in read] == ["1.000000001", "0.000000001"]
    assert sum(Decimal(row["actual"]) for row in read) * NANO == found.total.actual
    assert {row["currency"] for row in read} == {"EUR"}
