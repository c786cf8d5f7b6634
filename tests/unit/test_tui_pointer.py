"""The mouse, and how often to paint."""

from pathlib import Path

from textual.events import CursorPosition

from tests.unit.console_box import make_live
from tests.unit.console_shop import Shop, open_shop
from tui.pace import ASK_S, SLOW_TICK_S, TICK_S, Pace
from tui.pointer import key_at, screen_at
from tui.screens.all import every_screen


async def click(shop: Shop, text: str, *, row: int | None = None) -> None:
    """On the first letter of that text, in the row named or the first that has it."""
    rows = shop.text
    y = row if row is not None else next(at for at, line in enumerate(rows) if text in line)
    await shop.pilot.click(shop.app.paper, offset=(rows[y].index(text), y))
    await shop.pilot.pause()


async def test_a_screen_is_opened_by_its_name_in_row_1(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        await click(it, "2Rq", row=0)
        assert "2>Requests" in it.text[0]
        await click(it, "age", row=0)
        assert "2>Requests" in it.text[0]


async def test_a_screen_is_opened_by_its_number_where_names_have_no_room(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        it.link.live = make_live(state="DEGRADED", degraded="gpu,board,forecast")
        it.app._paint()
        assert it.text[0].split() == [
            *("age", "0.0s", "box7", "DEGRADED", "gpu,board,forecast"),
            *("1>Overview", *"23456789", "alice"),
        ]
        await click(it, " 4 ", row=0)
        assert "4>Accounts" not in it.text[0]
        await click(it, "4 5", row=0)
        assert "4>Accounts" in it.text[0]


async def test_a_hint_is_pressed_by_its_key_or_its_word(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        await click(it, "help", row=23)
        assert "Help" in it.screen
        await click(it, "Esc", row=23)
        assert it.desk.box is None
        await click(it, "?", row=23)
        assert it.desk.box is not None


async def test_a_click_moves_the_cursor_and_another_opens_the_row(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        await it.press("2")
        table = it.desk.screen.table
        assert table is not None
        rows = [at for at, line in enumerate(it.text) if line.startswith(">")]
        await it.pilot.click(it.app.paper, offset=(20, rows[0] + 2))
        assert table.at == 2
        before = it.screen
        await it.pilot.click(it.app.paper, offset=(20, rows[0] + 2))
        await it.until(lambda: it.screen != before)
        assert table.at == 2


async def test_a_click_outside_the_rows_changes_nothing(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        await it.press("9")
        table = it.desk.screen.table
        assert table is not None
        at = table.at
        await it.pilot.click(it.app.paper, offset=(2, 21))
        assert table.at == at
        assert it.desk.box is None


async def test_a_click_cannot_act_in_a_dialog_that_was_not_yet_seen(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen(), unanswered_s=60.0) as it:
        await it.press("D")
        assert it.desk.box is not None
        assert not it.desk.armed
        await click(it, "y", row=23)
        assert not it.link.acted
        it.app.post_message(CursorPosition(0, 0))
        it.app.post_message(CursorPosition(0, 0))
        await it.armed()
        await click(it, "y", row=23)
        await it.until(lambda: it.link.acted)


async def test_the_wheel_moves_the_cursor(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        await it.press("2")
        table = it.desk.screen.table
        assert table is not None
        it.app._wheel(1)
        assert table.at == 3
        it.app._wheel(-1)
        assert table.at == 0


async def test_nothing_is_where_nothing_is_drawn(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        lines = it.desk.lines()
        assert key_at(lines[-1], 79) == ""
        assert screen_at(lines[0], 500) == ""
        for y in (-1, 24):
            it.app._click(lines, 0, y)
        assert it.desk.box is None


def test_two_late_answers_slow_the_painting_and_two_quick_ones_end_that() -> None:
    pace, now = Pace(), 0.0

    def answer(took: float) -> bool:
        nonlocal now
        assert pace.due(now)
        pace.asked(now)
        assert not pace.due(now)
        now += took
        changed = pace.answered(now)
        now += ASK_S
        return changed

    assert not answer(0.8)
    assert pace.tick_s == TICK_S
    assert answer(0.4)
    assert pace.tick_s == SLOW_TICK_S
    assert not answer(0.2)
    assert not answer(0.1)
    assert answer(0.05)
    assert pace.tick_s == TICK_S


def test_one_question_at_a_time_and_none_where_the_operator_has_said() -> None:
    pace = Pace()
    pace.asked(0.0)
    assert not pace.due(1000.0)
    assert not Pace().answered(1.0)
    told = Pace(slow=True)
    assert told.tick_s == SLOW_TICK_S
    assert not told.due(0.0)
