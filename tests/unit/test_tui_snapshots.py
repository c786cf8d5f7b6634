"""What reaches the terminal, colours included: two states as pictures. After a change that is
meant: `pytest tests/unit/test_tui_snapshots.py --snapshot-update`, and look at the difference."""

from collections.abc import Callable

from tests.unit.console_picture import TARGET, StillLink, still_console
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


def test_picture_of_the_docs_shows_the_overview_and_fetches_nothing() -> None:
    svg = TARGET.read_text(encoding="utf-8")
    assert "SERVING" in svg.replace("&#160;", " ")
    assert "url(http" not in svg
    assert len(svg) < 100_000
