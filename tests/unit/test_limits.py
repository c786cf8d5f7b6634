"""Limits of keys and tenants, as they are written."""

import pytest

from appliance.accounts.limits import (
    NANO,
    Limits,
    LimitsRefused,
    limits_from,
    limits_from_text,
    money,
    shown,
)


def test_limits_are_read_from_the_command_line_and_from_json() -> None:
    pairs = ("tokens_per_min=20000", "cost_per_month=12.5", "priority=flex")
    wanted = Limits(tokens_per_min=20000, cost_per_month=12_500_000_000, priority="flex")
    assert limits_from_text(pairs) == wanted
    assert limits_from({"tokens_per_min": 20000, "cost_per_month": "12.50", "priority": "flex",
                        "concurrent": None}) == wanted  # fmt: skip
    assert limits_from({"cost_per_month": 0.1}).cost_per_month == 100_000_000
    assert shown(wanted)["cost_per_month"] == "12.50"
    assert limits_from(shown(wanted)) == wanted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"requests": 5}, "there are requests_per_min"),
        ({"requests_per_min": 0}, "whole number from 1"),
        ({"concurrent": True}, "whole number from 1"),
        ({"tokens_per_day": 1.5}, "whole number from 1"),
        ({"tokens_per_day": "5"}, "whole number from 1"),
        ({"tokens_per_day": 2**53}, "whole number from 1"),
        ({"cost_per_month": "1e3"}, "such as 12.50"),
        ({"cost_per_month": "-1"}, "such as 12.50"),
        ({"cost_per_month": 0}, "such as 12.50"),
        ({"cost_per_month": "١٢"}, "such as 12.50"),
        ({"cost_per_month": float("nan")}, "such as 12.50"),
        ({"priority": "highest"}, "one of priority, default, flex"),
    ],
)
def test_limit_that_cannot_be_is_refused_by_name(given: dict[str, object], says: str) -> None:
    with pytest.raises(LimitsRefused, match=says) as caught:
        limits_from(given)
    assert caught.value.name == next(iter(given))


def test_limit_without_a_value_is_refused() -> None:
    with pytest.raises(LimitsRefused, match="write name=value"):
        limits_from_text(("concurrent",))


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0.00"), (NANO, "1.00"), (1, "0.000000001"), (12_345_000_000, "12.345"), (-NANO, "-1.00")],
)
def test_money_is_shown_exactly(nano: int, text: str) -> None:
    assert money(nano) == text
