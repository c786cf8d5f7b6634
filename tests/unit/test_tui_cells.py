"""Signs, cells and lines: widths are exact, and no text of others acts on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.cells import cell, cells, clip, drawn, foreign, letter, pad, skip
from tui.lines import (
    Line,
    Span,
    beside,
    columns,
    fill,
    fit,
    head,
    line,
    overlay,
    paint,
    safe,
    tail,
    text_of,
    width_of,
    wrap,
)

anything = st.text(st.characters(blacklist_categories=()), max_size=60)
clean = anything.map(foreign)
width = st.integers(0, 90)
lines = st.lists(st.builds(Span, clean), max_size=5).map(tuple)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\x07\x7f", "a\\x0ab\\x09c\\x07\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066x\u2069\u200b\ufeff", "\\u2066x\\u2069\\u200b\\ufeff"),
        ("\ud800", "\\ud800"),
        ("e\u0301", "e\\u0301"),
        ("\u05d0", "\\u05d0"),
        ("\U000e0041", "\\U000e0041"),
        ("称重 ok", "称重 ok"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_text_of_others_shows_as_text(text: str, shown: str) -> None:
    assert foreign(text, letters=True) == shown


def test_letters_stay_only_where_they_are_one_cell() -> None:
    assert foreign("Käse €5 Привет", letters=True) == "Käse €5 Привет"
    assert foreign("Kä") == "K\\xe4"


@given(anything)
def test_foreign_text_has_only_signs_of_sure_width(text: str) -> None:
    assert all(drawn(sign) for sign in foreign(text))
    shown = foreign(text, letters=True)
    assert all(drawn(sign) or letter(sign) for sign in shown)
    assert foreign(foreign(text)) == foreign(text)


def test_no_sign_that_may_be_drawn_is_a_control_a_mark_or_turns_text_around() -> None:
    for sign in map(chr, range(0x110000)):
        if drawn(sign) or letter(sign):
            assert unicodedata.category(sign)[0] not in "CM"
            assert unicodedata.bidirectional(sign) not in ("R", "AL", "RLE", "RLO", "RLI", "AN")


def test_the_painter_counts_the_same_cells_for_every_sign() -> None:
    signs = [sign for sign in map(chr, range(0x110000)) if drawn(sign) or letter(sign)]
    assert [sign for sign in signs if cell_len(sign) != cell(sign)] == []


@given(clean)
def test_the_painter_counts_the_same_cells_for_whole_texts(text: str) -> None:
    assert cell_len(text) == cells(text)


@given(clean, width)
def test_a_cut_text_fits_and_is_a_beginning(text: str, width: int) -> None:
    cut = clip(text, width)
    assert text.startswith(cut)
    assert cells(cut) <= width
    assert cut == text or cells(cut) >= width - 1


@given(clean, width)
def test_a_skipped_text_keeps_the_place_of_what_is_left(text: str, width: int) -> None:
    left = skip(text, width)
    assert cells(left) == max(0, cells(text) - width)


@given(clean, width, st.booleans())
def test_a_padded_text_has_exactly_its_width(text: str, width: int, right: bool) -> None:
    assert cells(pad(text, width, right=right)) == width


@given(lines, width, st.booleans())
def test_a_fitted_line_has_exactly_its_width(row: Line, width: int, right: bool) -> None:
    assert width_of(fit(row, width, right=right)) == width


@given(lines, width)
def test_head_and_tail_share_out_a_line(row: Line, width: int) -> None:
    assert width_of(head(row, width)) <= width
    assert width_of(tail(row, width)) == max(0, width_of(row) - width)


@given(lines, lines, width)
def test_an_overlay_moves_nothing_beside_it(under: Line, over: Line, at: int) -> None:
    drawn = overlay(under, over, at)
    assert width_of(drawn) == max(width_of(under), at + width_of(over))
    assert width_of(head(drawn, at)) in (at, at - 1)


@given(anything.map(foreign), st.integers(2, 60))
def test_wrapped_text_loses_nothing_but_blanks(text: str, width: int) -> None:
    rows = wrap(text, width)
    assert all(cells(row) <= width for row in rows)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")


def test_a_wide_sign_is_never_halved() -> None:
    assert clip("中文", 3) == "中"
    assert text_of(fit(line("中文"), 3)) == "中 "
    assert skip("中文", 1) == " 文"
    assert text_of(overlay(line("中文中"), line("|"), 1)) == " |文中"


def test_what_no_screen_may_draw_becomes_a_question_mark() -> None:
    assert text_of(safe(line("a\x1bb", Span("\u202e中", "bold")))) == "a?b?中"


def test_columns_stand_under_each_other() -> None:
    row = columns(["键", Span("7", "bold"), "long name"], (4, 3, 4), "<><")
    assert text_of(row) == "键     7 long"
    assert [span.role for span in row] == ["plain", "plain", "bold", "plain", "plain"]


def test_panes_stand_beside_each_other() -> None:
    rows = beside([line("ab"), line("c")], [line("x")], 3, 1)
    assert [text_of(row) for row in rows] == ["ab  x", "c   "]


def test_filling_cuts_and_adds() -> None:
    assert [text_of(row) for row in fill([line("abc"), line("d")], 2, 3)] == ["ab", "d ", "  "]
    assert fill([line("a")], 2, 0) == []
    assert paint(line("a", Span("b", "bold")), "dim") == (Span("ab", "dim"),)
