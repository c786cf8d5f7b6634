"""The list with a cursor, and its filter."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.filters import matches, parse
from tui.lines import line, text_of, width_of
from tui.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    key: str = "crm"
    wait: float | None = 0.0


def table(*rows: Row) -> Table[Row]:
    made: Table[Row] = Table(
        lambda row: row.id,
        lambda row: {"id": row.id, "key": row.key, "wait": row.wait},
        {"order": None, "wait": lambda row: -(row.wait or 0.0)},
    )
    made.show(rows)
    return made


def ids(table: Table[Row]) -> list[str]:
    return [row.id for row in table.rows]


A, B, C = Row("a", "crm-bot", 3.0), Row("b", "wiki", 12.0), Row("c", "crm-old", None)


def test_the_cursor_rests_on_the_first_row_until_it_is_moved() -> None:
    rows = table(A, B)
    rows.show((C, A, B))
    assert rows.current == C


def test_a_moved_cursor_follows_its_id() -> None:
    rows = table(A, B, C)
    rows.press("down")
    rows.show((C, A, B))
    assert (rows.current, rows.at) == (B, 2)


def test_when_its_row_has_gone_the_cursor_stays_at_its_place() -> None:
    rows = table(A, B, C)
    rows.press("j")
    rows.show((A, C))
    assert rows.current == C
    rows.show((A, B, C))
    assert rows.current == C
    rows.show(())
    assert rows.current is None


def test_sorting_keeps_the_cursor_on_its_row() -> None:
    rows = table(A, B, C)
    rows.select("a")
    assert rows.next_order() == "wait"
    assert ids(rows) == ["b", "a", "c"]
    assert rows.current == A
    assert rows.next_order() == "order"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "abc"),
        ("key:crm", "ac"),
        ("key:CRM wait>2", "a"),
        ("wait<10", "a"),
        ("wait>2", "ab"),
        ("wiki", "b"),
        ("nothing", ""),
        ("state:wait", ""),
        ("wait>x", ""),
        ("key:", "abc"),
    ],
)
def test_a_filter_keeps_what_all_its_terms_hold_for(text: str, found: str) -> None:
    rows = table(A, B, C)
    rows.find(text)
    assert "".join(ids(rows)) == found
    assert rows.total == 3


@given(st.text())
def test_no_filter_can_fail(text: str) -> None:
    matches(parse(text), {"key": "crm", "wait": 3.0, "none": None})


def test_a_long_table_has_a_scroll_bar_and_shows_the_cursor() -> None:
    rows = table(*(Row(f"id-{at}") for at in range(100)))
    rows.press("end")
    drawn = [text_of(row) for row in rows.draw(12, 5, lambda row: line(row.id))]
    assert drawn[-1] == ">id-99     #"
    assert drawn[0] == " id-95     |"


keys = st.sampled_from(["up", "down", "pageup", "pagedown", "home", "end", "j", "k", "x"])


@given(
    st.lists(st.tuples(keys, st.integers(0, 30), st.integers(0, 12)), max_size=30),
    st.integers(2, 40),
)
def test_whatever_is_pressed_the_cursor_is_seen(
    steps: list[tuple[str, int, int]], width: int
) -> None:
    rows = table()
    for key, count, height in steps:
        rows.show([Row(str(at)) for at in range(count)])
        rows.press(key)
        drawn = rows.draw(width, height, lambda row: line(row.id))
        assert [width_of(row) for row in drawn] == [width] * height
        marks = [text_of(row)[0] for row in drawn].count(">")
        assert marks == (1 if count and height else 0)


def test_ten_thousand_rows_are_no_burden() -> None:
    rows = table(*(Row(str(at)) for at in range(10_000)))
    rows.find("key:crm")
    assert len(rows.rows) == 10_000
    assert len(rows.draw(80, 20, lambda row: line(row.id))) == 20
