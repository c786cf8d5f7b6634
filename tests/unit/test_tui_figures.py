"""Numbers in few cells, bands and plots."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui import figures
from tui.cells import cells

number = st.none() | st.floats() | st.integers(-(10**15), 10**15).map(float)
bound = st.none() | st.floats(-1e9, 1e9)
series = st.lists(st.none() | st.floats(), max_size=200)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (figures.number(None), "?"),
        (figures.number(math.nan), "?"),
        (figures.number(0), "0"),
        (figures.number(212.4), "212"),
        (figures.number(0.42), "0.42"),
        (figures.number(0.0004), "0.00040"),
        (figures.count(20000, 5), "20000"),
        (figures.count(1_840_112, 5), "1840k"),
        (figures.count(None), "?"),
        (figures.scaled(1_840_112, "tok"), "1.84 Mtok"),
        (figures.scaled(612, "tok"), "612 tok"),
        (figures.with_unit(212.4, "t/s"), "212 t/s"),
        (figures.with_unit(None, "t/s"), "?"),
        (figures.percent(61.2), "61 %"),
        (figures.percent(0), "0 %"),
        (figures.duration(910), "910 ms"),
        (figures.duration(999.7), "1.0 s"),
        (figures.duration(4100), "4.1 s"),
        (figures.duration(95_000), "95 s"),
        (figures.duration(1_320_000), "22 min"),
        (figures.duration(3 * 864e5), "3 d"),
        (figures.duration(None), "?"),
        (figures.seconds(200), "0.2"),
        (figures.age(0.1), "0.1s"),
        (figures.age(42), "42s"),
        (figures.age(240), "4min"),
        (figures.age(None), "?"),
        (figures.money(0.42), "0.42"),
        (figures.money(0.0004), "0.00040"),
        (figures.money(0), "0.00"),
        (figures.money(None), "?"),
        (figures.bounds(150, None), ">150"),
        (figures.bounds(None, 2000), "<2000"),
        (figures.bounds(5, 35), "5-35"),
        (figures.bounds(None, None), "-"),
        (figures.bar(0.6, 12), "[######....]"),
        (figures.bar(None, 6), "[?   ]"),
    ],
)
def test_numbers_show_in_few_cells(shown: str, wanted: str) -> None:
    assert shown == wanted


@pytest.mark.parametrize(
    ("value", "lo", "hi", "wanted"),
    [
        (212, 150, None, "..(==o===="),
        (100, 150, None, ".!(======="),
        (910, None, 2000, "(==o===).."),
        (2500, None, 2000, "(======)!."),
        (9000, None, 2000, "(======).!"),
        (0, None, 24, "(o=====).."),
        (27.4, 5, 35, ".(===o=).."),
        (None, 5, 35, ".(=====).."),
        (2, 5, 35, "!(=====).."),
        (1, None, None, "          "),
    ],
)
def test_a_band_shows_where_the_value_is(
    value: float | None, lo: float | None, hi: float | None, wanted: str
) -> None:
    assert figures.band(value, lo, hi) == wanted


@given(number, bound, bound, st.integers(6, 40))
def test_a_band_has_its_width_and_one_sign_at_most(
    value: float | None, lo: float | None, hi: float | None, width: int
) -> None:
    drawn = figures.band(value, lo, hi, width)
    known = value is not None and math.isfinite(value) and (lo is not None or hi is not None)
    assert len(drawn) == width
    assert drawn.count("o") + drawn.count("!") == known
    assert ("!" in drawn) == (known and figures.outside(value, lo, hi))


@given(st.integers(0, 10**18) | st.floats(0, 1e15), st.integers(4, 12))
def test_a_count_keeps_to_its_cells(value: float, width: int) -> None:
    assert len(figures.count(value, width)) <= max(width, 5)


@given(number)
def test_every_number_is_told_without_a_fault(value: float | None) -> None:
    for told in (
        figures.number(value),
        figures.scaled(value, "tok"),
        figures.percent(value),
        figures.duration(value),
        figures.seconds(value),
        figures.money(value),
    ):
        assert told
        assert told.isascii()
        unknown = value is None or not math.isfinite(value)
        assert (told == "?") == unknown


@given(series, st.integers(0, 70), st.integers(1, 8), st.booleans())
def test_a_plot_has_its_width_in_every_row(
    values: list[float | None], width: int, height: int, ascii: bool
) -> None:
    rows = figures.plot(values, width, height, ascii)
    assert [cells(row) for row in rows] == [width] * height
    assert all(row.isascii() for row in rows) or not ascii


def test_unknown_is_a_gap_and_zero_is_not() -> None:
    assert figures.spark([0.0, None, 2.0, 4.0], 4, ascii=True) == ". =#"
    assert figures.spark([None, None, 0.0, 4.0], 2, ascii=False) == " ⣸"


def test_a_short_past_stands_at_the_right() -> None:
    assert figures.spark([1.0, 1.0], 5, ascii=True) == "   ##"


@given(st.none() | st.floats(), st.integers(2, 40))
def test_a_bar_has_its_width(share: float | None, width: int) -> None:
    assert len(figures.bar(share, width)) == width
