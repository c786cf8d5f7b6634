"""How long an answer may still become, read from a survival table."""

from math import exp, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.commands import Expect
from appliance.engine.expectation import Expectation, read

LENGTHS = tuple(range(1, 4001))
MEAN = 200.0


def exponential() -> Expectation:
    """Without memory: whatever was generated, what is to come is the same."""
    return Expectation(LENGTHS, tuple(exp(-length / MEAN) for length in LENGTHS))


def coarse() -> Expectation:
    lengths = (4, 9, 20, 45, 100, 220, 500, 1100)
    return Expectation(lengths, tuple(exp(-length / MEAN) for length in lengths))


@st.composite
def tables(draw: st.DrawFn) -> Expectation:
    lengths = sorted(draw(st.sets(st.integers(0, 5000), min_size=1, max_size=24)))
    chances = draw(st.lists(st.floats(0, 1), min_size=len(lengths), max_size=len(lengths)))
    table = read(Expect("", tuple(lengths), tuple(sorted(chances, reverse=True))))
    assert table is not None
    return table


@pytest.mark.parametrize("generated", [0, 1, 77, 300])
def test_what_is_to_come_of_an_answer_without_memory_is_always_the_same(generated: int) -> None:
    table = exponential()
    assert table.remaining_quantile(generated, 0.5, 10**6) == pytest.approx(0.693 * MEAN, abs=1)
    assert table.remaining_quantile(generated, 0.9, 10**6) == pytest.approx(2.303 * MEAN, abs=1)
    assert table.remaining(generated, 4000) == pytest.approx(MEAN, abs=0.5)
    assert table.remaining_worst(generated, 4000) == pytest.approx(3.303 * MEAN, rel=0.01)


def test_coarse_table_is_nearly_as_good() -> None:
    fine, rough = exponential(), coarse()
    for generated in (0, 30, 150):
        for tau in (0.3, 0.6, 0.8):
            expected = fine.remaining_quantile(generated, tau, 1000)
            assert rough.remaining_quantile(generated, tau, 1000) == pytest.approx(
                expected, rel=0.15
            )


def test_long_answer_of_a_mixture_is_expected_to_become_longer_still() -> None:
    """Most answers end early; one that did not is of the other kind."""
    table = Expectation((10, 20, 400, 600), (0.9, 0.2, 0.18, 0.0))
    assert table.remaining_quantile(0, 0.5, 1000) < 20
    assert table.remaining_quantile(30, 0.5, 1000) > 300


@given(table=tables(), generated=st.integers(0, 6000), cap=st.integers(1, 6000))
def test_what_is_expected_is_within_what_is_possible(
    table: Expectation, generated: int, cap: int
) -> None:
    left = max(cap - generated, 1)
    if not table.knows(generated):
        return
    quantiles = [table.remaining_quantile(generated, tau, cap) for tau in (0.0, 0.3, 0.6, 0.99)]
    assert all(1 <= quantile <= left for quantile in quantiles)
    assert quantiles == sorted(quantiles)
    mean, worst = table.remaining(generated, cap), table.remaining_worst(generated, cap)
    assert 0 <= mean <= left * (1 + 1e-9)
    assert worst >= mean * (1 - 1e-6) - 1


def test_beyond_its_last_length_only_max_tokens_ends_an_answer() -> None:
    table = Expectation((10, 100), (0.8, 0.5))
    assert table.remaining_quantile(0, 0.7, 900) == 900
    assert table.remaining_quantile(300, 0.6, 900) == 600
    assert table.remaining(300, 900) == pytest.approx(600)


def test_outlived_table_knows_nothing() -> None:
    table = Expectation((10, 100), (0.8, 0.0))
    assert table.knows(99)
    assert not table.knows(100)


@pytest.mark.parametrize(
    ("tokens", "survival"),
    [
        ((), ()),
        ((1, 2), (0.5,)),
        ((1,), (nan,)),
        ((1,), (inf,)),
        ((1,), (1.5,)),
        ((1,), (-0.1,)),
        ((2, 1), (0.5, 0.4)),
        ((1, 1), (0.5, 0.4)),
        ((1, 2), (0.4, 0.5)),
        ((-3, 2), (0.5, 0.4)),
    ],
)
def test_junk_is_no_table(tokens: tuple[int, ...], survival: tuple[float, ...]) -> None:
    assert read(Expect("r", tokens, survival)) is None


@pytest.mark.parametrize(("tokens", "survival"), [((0,), (1.0,)), ((5,), (0.0,)), ((0, 9), (1, 0))])
def test_smallest_tables_are_tables(tokens: tuple[int, ...], survival: tuple[float, ...]) -> None:
    table = read(Expect("r", tokens, survival))
    assert table is not None
    assert 1 <= table.remaining_quantile(0, 0.6, 50) <= 50
