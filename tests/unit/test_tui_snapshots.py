"""What reaches the terminal, colours included: two states as pictures. After a change that is
meant: `pytest tests/unit/test_tui_snapshots.py --snapshot-update`, and look at the difference."""

import html
import re
from collections.abc import Callable

import pytest

from tests.unit.console_picture import DOCS, PICTURES, StillLink, picture, still_console
from tui.problem import Problem

Compare = Callable[..., bool]


def test_overview_in_colours_of_its_own(snap_compare: Compare) -> None:
    assert snap_compare(still_console(theme="dark"), terminal_size=(80, 24))


def test_requests_in_chinese_after_the_link_was_lost(snap_compare: Compare) -> None:
    link = StillLink()
    link.received, link.retry_at = 1000.0 - 42, 1000.0 + 3
    link.problem = Problem("link.refused", (link.url,))
    console = still_console(link, lang="zh", theme="terminal")
    assert snap_compare(console, press=["2", "j"], terminal_size=(80, 24))


@pytest.mark.parametrize("name", PICTURES)
async def test_pictures_of_the_docs_show_the_console_as_it_is_and_fetch_nothing(name: str) -> None:
    svg = (DOCS / name).read_text(encoding="utf-8")
    assert words_of(svg) == words_of(await picture(*PICTURES[name])), (
        "python -m tests.unit.console_picture draws them anew"
    )
    assert "SERVING" in words_of(svg)
    assert "url(http" not in svg
    assert len(svg) < 200_000


def words_of(svg: str) -> str:
    return html.unescape(re.sub(r"<style.*?</style>|<[^>]*>|\s", "", svg, flags=re.DOTALL))
