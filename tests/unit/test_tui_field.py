"""The text field: wide signs, cursor, words and lines."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.chat_screen_parts import KEYS, TEXTS
from tui.cells import foreign
from tui.field import Field
from tui.lines import text_of, width_of


def drawn(field: Field, width: int = 10, height: int = 3) -> list[str]:
    return [text_of(row).rstrip() for row in field.draw(foreign, width, height)]


def test_wide_signs_are_kept_whole_at_the_edge() -> None:
    field = Field("a称重称重称", many=True)
    assert drawn(field) == ["a称重称重", "称_", ""]


def test_up_and_down_keep_the_cell_across_wide_signs() -> None:
    field = Field("称重称\nabcdef\n重", many=True)
    drawn(field)
    field.press("up")
    assert field.at == 6
    field.press("end")
    field.press("up")
    assert field.at == 3
    field.press("down")
    assert field.text[: field.at] == "称重称\nabcdef"


def test_words_and_lines_are_cut_whole() -> None:
    field = Field("one 称重 two\nlast", many=True)
    field.press("up")
    field.press("end")
    field.press("ctrl+w")
    assert field.text == "one 称重 \nlast"
    field.press("ctrl+u")
    assert field.text == "\nlast"
    field.press("ctrl+right")
    field.press("ctrl+left")
    field.press("ctrl+k")
    assert field.text == "\n"


def test_what_cannot_be_drawn_shows_escaped_and_is_deleted_whole() -> None:
    field = Field("a\x1bb", many=True)
    assert drawn(field)[0] == r"a\x1bb_"
    field.press("left")
    field.press("backspace")
    assert field.text == "ab"


def test_one_line_takes_no_line_breaks() -> None:
    field = Field("a\nb")
    assert field.text == "a b"
    assert not field.press("ctrl+j")
    assert not field.press("up")
    assert not field.press("f5")


def test_many_empty_lines_are_no_trouble() -> None:
    field = Field("\n" * 5000, many=True, most=20_000)
    assert len(drawn(field)) == 3
    field.press("up")
    assert field.at == 4999


@given(TEXTS, st.lists(KEYS, max_size=40), st.integers(2, 40), st.integers(1, 6))
def test_a_field_is_exact_and_its_cursor_in_sight(
    text: str, pressed: list[str], width: int, height: int
) -> None:
    field = Field(text, many=True, most=100)
    width = max(width, 11)  # the longest escape and the cursor behind it
    for key in pressed:
        field.press(key)
        rows = field.draw(foreign, width, height)
        assert [width_of(row) for row in rows] == [width] * height
        assert 0 <= field.at <= len(field.text) <= 100
        assert any(span.role == "select" for row in rows for span in row)


@given(TEXTS, TEXTS)
def test_typing_is_inserting_at_the_cursor(before: str, after: str) -> None:
    field = Field(most=1000, many=True)
    for sign in before + after:
        field.press(sign)
    kept = "".join(sign for sign in before + after if sign.isprintable())
    assert field.text == kept.encode("utf-8", "replace").decode()
