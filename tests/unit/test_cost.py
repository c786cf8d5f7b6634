"""The price model: rates, the cost of a request, exact splits, actual cost and its allocation."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.accounts.allocation import (
    Usage,
    Weights,
    actual_cost,
    allocate,
    total_of,
    weigh,
)
from appliance.accounts.cost import (
    DAY_NS,
    NANO,
    Costing,
    PrefillPace,
    Rates,
    cost_of,
    rounded,
    split,
)
from appliance.accounts.prices import read_prices
from appliance.config import ConfigError, CostConfig, load
from appliance.ledger.rows import RequestRow

DOC = Path(__file__).parents[2] / "docs" / "cost.md"
HOUR_NS = 3600 * NANO

some_ns = st.integers(0, 10**15)
some_tokens = st.integers(0, 10**9)
some_configs = st.builds(
    CostConfig,
    device_price=st.floats(0, 1e9),
    device_life_years=st.floats(0.1, 50),
    electricity_per_kwh=st.floats(0, 1e5),
    watts_idle=st.floats(0, 1e6),
    watts_busy=st.floats(0, 1e6),
    overhead_per_month=st.floats(0, 1e9),
    utilisation=st.floats(0.0001, 1),
    cached_weight=st.floats(0, 1),
)


def a_row(**changes: Any) -> RequestRow:
    """A final row of 100 ms on a prompt of 50 tokens and 200 ms on an answer of 20."""
    row = RequestRow(
        wall_ns=DAY_NS, number=1, id="r", trace_id="t", request_id="q",
        route="/v1/chat/completions", key_id="k", key_name="app", tenant="legal", scenario="",
        model="m", model_sha256="", template_sha256="", build="", sampling={}, n=1, max_tokens=20,
        tier="default", stream=False, outcome="length", status=200, prompt_tokens=50,
        cached_tokens=0, prefill_tokens=50, completion_tokens=20, hidden_tokens=0,
        drafted_tokens=0, accepted_tokens=0, received_wall_ns=1, received_ns=1, submitted_ns=1,
        started_ns=1, first_token_ns=1, ended_ns=1, boot_id="", prefill_ns=100_000_000,
        decode_ns=200_000_000, parallel=1, preemptions=0, exclusive=False,
    )  # fmt: skip
    return replace(row, **changes)


# -- the documented example ------------------------------------------------------------------------


def blocks() -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", DOC.read_text(), re.M | re.S)


def example_config() -> CostConfig:
    body = next(block for block in blocks() if block.startswith("[cost]"))
    return CostConfig(**{**tomllib.loads(body)["cost"], "price_list": ""})


def example_request() -> dict[str, int]:
    return {k: int(v) for k, v in re.findall(r"^\| `(\w+)` \| (\d+) \|$", DOC.read_text(), re.M)}


def test_worked_example_of_the_documentation_is_right() -> None:
    rates = Rates.of(example_config())
    costs = cost_of(rates, **example_request())
    told = re.findall(r"^\| (\w+) \|.*\| (\d+) \| (\d\.\d{9}) \|$", DOC.read_text(), re.M)
    assert [name for name, _, _ in told] == ["prefill", "decode", "cached", "idle", "total"]
    for name, nano, amount in told:
        assert getattr(costs, name) == int(nano), name
        assert amount == f"{int(nano) / NANO:.9f}"


def test_rates_of_the_documentation_are_right() -> None:
    rates, text = Rates.of(example_config()), DOC.read_text()
    for rate in (rates.fixed, rates.busy, rates.idle):
        assert f"{rate / 10**18:.12f}" in text
    for rate in (rates.busy, rates.idle):
        assert f"{rate * 3600 / 10**18:.6f}" in text


def test_measured_energy_of_the_documentation_is_right() -> None:
    found = re.search(
        r"\((\d+) µJ\), prefill would cost (\d+) and decode (\d+) nano", DOC.read_text()
    )
    assert found is not None
    energy, prefill, decode = map(int, found.groups())
    costs = cost_of(Rates.of(example_config()), **example_request(), energy_uj=energy)
    assert (costs.prefill, costs.decode) == (prefill, decode)


def test_cloud_prices_of_the_documentation_are_right(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(next(block for block in blocks() if "[[price]]" in block))
    for price in read_prices(file, "EUR"):
        cost = price.cost(prompt_tokens=1200, cached_tokens=1000, completion_tokens=300)
        assert re.search(rf"{cost / NANO:.9f}[A-Z ]* at {price.name}", DOC.read_text())


# -- rates and requests ----------------------------------------------------------------------------


def test_without_prices_everything_costs_nothing() -> None:
    rates = Rates.of(CostConfig())
    assert not rates.configured
    costs = cost_of(rates, prefill_ns=HOUR_NS, decode_ns=HOUR_NS, cached_tokens=9, energy_uj=10**12)
    assert costs.total == 0


def test_device_price_is_spread_over_its_life() -> None:
    rates = Rates.of(CostConfig(device_price=1000, device_life_years=2, utilisation=1))
    costs = cost_of(rates, prefill_ns=0, decode_ns=2 * 31_557_600 * NANO, cached_tokens=0)
    assert costs.total == pytest.approx(1000 * NANO, abs=100)


def test_an_hour_at_a_thousand_watts_costs_a_kilowatt_hour() -> None:
    rates = Rates.of(CostConfig(electricity_per_kwh=0.25, watts_busy=1000, utilisation=1))
    costs = cost_of(rates, prefill_ns=HOUR_NS, decode_ns=0, cached_tokens=0)
    assert (costs.prefill, costs.total) == (NANO // 4, NANO // 4)


def test_measured_energy_goes_before_declared_watts() -> None:
    rates = Rates.of(CostConfig(electricity_per_kwh=0.36, watts_busy=9999, utilisation=1))
    costs = cost_of(rates, prefill_ns=1, decode_ns=3, cached_tokens=0, energy_uj=40_000_000)
    assert (costs.prefill, costs.decode) == (1000, 3000)


def test_an_energy_of_zero_counts_as_measured() -> None:
    rates = Rates.of(CostConfig(electricity_per_kwh=1, watts_busy=1000, utilisation=1))
    assert cost_of(rates, prefill_ns=HOUR_NS, decode_ns=0, cached_tokens=0, energy_uj=0).total == 0


def test_a_box_that_always_computes_has_no_idle_share() -> None:
    config = CostConfig(overhead_per_month=100, utilisation=1)
    assert cost_of(Rates.of(config), prefill_ns=HOUR_NS, decode_ns=0, cached_tokens=0).idle == 0


def test_cached_tokens_cost_their_weight_of_computed_ones() -> None:
    rates = Rates.of(CostConfig(overhead_per_month=1_000_000, cached_weight=0.5, utilisation=1))
    computed = cost_of(rates, prefill_ns=10 * NANO, decode_ns=0, cached_tokens=0, prefill_tokens=10)
    reused = cost_of(
        rates, prefill_ns=0, decode_ns=0, cached_tokens=10, mean_prefill_ns_per_token=NANO
    )
    assert reused.cached == pytest.approx(computed.prefill / 2, abs=1)
    assert reused.total == reused.cached


def test_mean_prefill_time_falls_back_on_the_requests_own() -> None:
    rates = Rates.of(CostConfig(overhead_per_month=1000))
    own = cost_of(rates, prefill_ns=5000, decode_ns=0, cached_tokens=10**9, prefill_tokens=5)
    given_ = cost_of(
        rates, prefill_ns=5000, decode_ns=0, cached_tokens=10**9, mean_prefill_ns_per_token=1000
    )
    assert own == given_
    assert own.cached > 0


@given(some_configs, some_ns, some_ns, some_tokens, some_tokens, st.none() | some_ns)
def test_costs_are_never_negative_integers_and_the_same_each_time(
    config: CostConfig, prefill: int, decode: int, cached: int, computed: int, energy: int | None
) -> None:
    facts: dict[str, Any] = {
        "prefill_ns": prefill, "decode_ns": decode, "cached_tokens": cached,
        "prefill_tokens": computed, "energy_uj": energy,
    }  # fmt: skip
    costs = cost_of(Rates.of(config), **facts)
    stages = (costs.prefill, costs.decode, costs.cached, costs.idle)
    assert all(type(stage) is int and stage >= 0 for stage in stages)
    assert costs == cost_of(Rates.of(config), **facts)
    assert costs.total == sum(stages)


def test_costing_prices_a_row_at_the_mean_of_those_before_it() -> None:
    costing = Costing(Rates.of(CostConfig(overhead_per_month=1e6, utilisation=1)), PrefillPace())
    first = costing(a_row(prefill_ns=50_000, prefill_tokens=50))
    second = costing(a_row(prefill_ns=10, prefill_tokens=1, cached_tokens=1000))
    assert first.cached == 0
    assert (
        second.cached
        == cost_of(
            costing.rates,
            prefill_ns=0,
            decode_ns=0,
            cached_tokens=1000,
            mean_prefill_ns_per_token=1000,
        ).cached
    )
    assert costing.pace == PrefillPace(50_010, 51)


def test_a_row_without_device_time_costs_nothing_and_teaches_nothing() -> None:
    pace = PrefillPace(1000, 1)
    costing = Costing(Rates.of(CostConfig(overhead_per_month=1e6)), pace)
    lost = a_row(prefill_ns=0, decode_ns=0, cached_tokens=40, outcome="failed")
    assert costing(lost).total == 0
    assert pace == PrefillPace(1000, 1)


# -- splits ----------------------------------------------------------------------------------------


@given(st.integers(-(10**30), 10**30), st.lists(st.integers(0, 10**30), min_size=1))
def test_parts_sum_to_the_whole_and_are_fair(total: int, weights: list[int]) -> None:
    parts = split(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        if whole:
            assert abs(part * whole - total * weight) < whole
        else:
            assert abs(part * len(weights) - total) < len(weights)


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(0, 10**6))
def test_who_weighs_more_never_bears_less(weights: list[int], total: int) -> None:
    shares = sorted(zip(weights, split(total, weights), strict=True))
    for (light, less), (heavy, more) in pairwise(shares):
        assert light == heavy or less <= more


def test_one_part_is_the_whole() -> None:
    assert split(7, [3]) == [7]
    assert split(7, [0]) == [7]
    assert split(0, []) == []


@pytest.mark.parametrize(("over", "under", "gives"), [(1, 2, 1), (1, 3, 0), (-1, 2, 0), (7, 2, 4)])
def test_halves_are_rounded_up(over: int, under: int, gives: int) -> None:
    assert rounded(over, under) == gives


# -- actual cost -----------------------------------------------------------------------------------

some_usage = st.builds(
    Usage,
    requests=st.integers(0, 10**9),
    prompt_tokens=some_tokens,
    completion_tokens=some_tokens,
    prefill_ns=some_ns,
    decode_ns=some_ns,
)
some_weights = st.builds(Weights, *[st.integers(0, 10**9)] * 3)


@given(st.integers(0, 10**18), st.lists(some_usage), some_weights)
def test_allocation_sums_to_the_whole(total: int, rows: list[Usage], weights: Weights) -> None:
    found = allocate(total, rows, weights)
    assert sum(found.parts) + found.unallocated == total
    assert len(found.parts) == len(rows)
    assert all(part >= 0 for part in found.parts)


@given(st.lists(some_usage, min_size=2, max_size=8), some_weights)
def test_a_finer_grouping_splits_alike(rows: list[Usage], weights: Weights) -> None:
    fine = weigh(rows, weights)
    coarse = weigh([total_of(rows[:2]), *rows[2:]], weights)
    assert sum(fine[:2]) * sum(coarse) == coarse[0] * sum(fine)


def test_time_alone_counts_by_default() -> None:
    rows = [
        Usage(requests=1, prefill_ns=10, decode_ns=20, prompt_tokens=5),
        Usage(requests=99, prefill_ns=60, decode_ns=10, prompt_tokens=95),
    ]
    assert allocate(1000, rows, Weights.of(CostConfig())).parts == (300, 700)
    by_request = Weights.of(CostConfig(weight_time=0, weight_requests=2))
    assert allocate(1000, rows, by_request).parts == (10, 990)
    by_context = Weights.of(CostConfig(weight_time=0, weight_context=0.5))
    assert allocate(1000, rows, by_context).parts == (50, 950)
    both = Weights.of(CostConfig(weight_time=1, weight_requests=1))
    assert allocate(1000, rows, both).parts == (155, 845)


def test_refusals_bear_nothing_and_an_unused_box_is_nobodys() -> None:
    refused = Usage(requests=5, refused=5)
    by_request = Weights.of(CostConfig(weight_requests=1))
    assert allocate(100, [refused, Usage(requests=1)], by_request).parts == (0, 100)
    assert allocate(100, [refused], by_request).unallocated == 100
    assert allocate(100, [], by_request).unallocated == 100


def test_actual_cost_is_time_and_energy() -> None:
    config = CostConfig(
        overhead_per_month=730.5, electricity_per_kwh=1, watts_busy=300, watts_idle=100
    )
    used = Usage(
        prefill_ns=HOUR_NS,
        decode_ns=3 * HOUR_NS,
        measured_ns=HOUR_NS,
        energy_uj=5 * 3_600_000 * 10**6,
    )
    actual = actual_cost(Rates.of(config), 24 * HOUR_NS, used)
    assert actual.fixed == pytest.approx(24 * NANO, abs=10)
    # 5 kWh measured in one hour, three hours at 300 W, twenty idle at 100 W.
    assert actual.energy == pytest.approx((5 + 0.9 + 2) * NANO, abs=10)
    assert actual.utilisation == pytest.approx(4 / 24)


def test_a_box_used_as_expected_has_no_variance() -> None:
    config = CostConfig(
        device_price=3000, electricity_per_kwh=0.3, watts_busy=250, watts_idle=50, utilisation=0.2
    )
    rates = Rates.of(config)
    day = Usage(prefill_ns=DAY_NS // 20, decode_ns=DAY_NS * 3 // 20)
    standard = cost_of(
        rates, prefill_ns=day.prefill_ns, decode_ns=day.decode_ns, cached_tokens=0
    ).total
    assert actual_cost(rates, DAY_NS, day).total == pytest.approx(standard, abs=5)


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("currency = 'eur'", "three capital letters such as `EUR`"),
        ("currency = ''", "cost.currency: it is empty"),
        ("utilisation = 0", "cost.utilisation: 0 is out of bounds"),
        ("utilisation = 1.1", "from 0.0001 to 1"),
        ("device_price = -1", "cost.device_price: -1 is out of bounds"),
        ("device_life_years = 0", "from 0.1 to 50"),
        ("cached_weight = 2", "from 0 to 1"),
        ("watts_busy = 10\nwatts_idle = 20", "cost.watts_busy: it is less than cost.watts_idle"),
        ("weight_time = 0", "cost.weight_time: with cost.weight_requests"),
    ],
)
def test_wrong_setting_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text(f"[cost]\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(file, {})


def test_price_list_starts_from_the_file_it_stands_in(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text("[cost]\nprice_list = 'prices.toml'\n")
    assert load(file, {}).cost.price_list == str(tmp_path / "prices.toml")
