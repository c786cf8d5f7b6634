"""Where a text may end: after sentences and whole lines, never in a fence or within a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.landing_text import Prose


def prose(text: str | bytes) -> Prose:
    made = Prose()
    made.feed(text if isinstance(text, bytes) else text.encode())
    return made


@pytest.mark.parametrize(
    "text",
    [
        "It works.", "It works!", "Does it?", "It works. ", 'She said "yes."', "(It works.)",
        "**It works.**", "In the year 1998.", "Wait…", "它有效。", "真的吗？", "好！",
        "“好。”", "（好。）",
        "See e.g. the manual. It works.", "Use `x` here.", "1. Wash it.",
    ],
)  # fmt: skip
def test_a_text_may_end_after_a_sentence(text: str) -> None:
    assert prose(text).boundary == "sentence"


@pytest.mark.parametrize(
    "text",
    [
        "", "It works", "It works,", "It works:", "For example, e.g.", "Dear Mr.", "by J.", "1.",
        "  2.", "- 3.", 'He said "yes.', "(see above.", "**Note.", "Use `x.", "它有效", "它有效，",
        "“好。", "（好。",
    ],
)  # fmt: skip
def test_a_text_may_not_end_elsewhere(text: str) -> None:
    assert prose(text).boundary == ""


@pytest.mark.parametrize(
    "text",
    ["- apples\n", "1. wash it\n", "| a | b |\n", "Roses are red and blue\n", "玫瑰是红色的花\n"],
)
def test_a_text_may_end_after_a_whole_line(text: str) -> None:
    assert prose(text).boundary == "line"


@pytest.mark.parametrize(
    "text",
    ["# Apples\n", "**Apples**\n", "These are:\n", "Dear John,\n", "|---|---|\n", "Apples\n"],
)
def test_a_line_that_announces_another_is_no_end(text: str) -> None:
    assert prose(text).boundary == ""


def test_nothing_ends_within_a_code_fence() -> None:
    inside = prose("Look:\n```python\nprint('It works.')\n")
    assert inside.in_fence
    assert inside.boundary == ""
    assert inside.fence_end == "```"
    inside.feed(b"x = 1")
    assert inside.fence_end == "\n```"


@pytest.mark.parametrize("mark", ["```", "~~~~", "  ```"])
def test_what_closes_a_fence_closes_it(mark: str) -> None:
    made = prose(f"Look:\n{mark}py\nx = 1")
    made.feed(made.fence_end.encode())
    assert not made.in_fence
    assert made.boundary == "line"
    made.feed(b"\nIt works.")
    assert made.boundary == "sentence"


def test_a_shorter_mark_does_not_close_a_longer_fence() -> None:
    assert prose("````\n```\n").in_fence


def test_nothing_ends_within_a_character() -> None:
    made = prose("好。".encode()[:-1])
    assert not made.whole
    assert made.boundary == ""
    made.feed("好。".encode()[-1:])
    assert made.boundary == "sentence"


def test_a_copy_goes_its_own_way() -> None:
    made = prose("It works")
    assert made.after(b".").boundary == "sentence"
    assert made.boundary == ""


@given(st.text(alphabet='a.!`~\n 。()"*', max_size=80), st.integers(1, 7))
def test_it_makes_no_difference_how_the_text_is_cut_into_tokens(text: str, size: int) -> None:
    data, pieces = text.encode(), Prose()
    for at in range(0, len(data), size):
        pieces.feed(data[at : at + size])
    whole = prose(text)
    assert (pieces.boundary, pieces.in_fence, pieces.fence_end) == (
        whole.boundary, whole.in_fence, whole.fence_end,
    )  # fmt: skip
