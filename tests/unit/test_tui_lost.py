"""What a console says once its box has gone, also of what it had not read by then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.unit.app_parts import shop
from tests.unit.console_box import ConsoleBox, Reply, console_box, event, make_live
from tests.unit.console_views import past, view
from tui.frame import whole
from tui.lines import text_of
from tui.link import Link
from tui.problem import Problem
from tui.screens.all import every_screen
from tui.trust import Trust
from tui.view import View

SOON_S = 20.0


class Told:
    """What a link said, in turn."""

    def __init__(self, box: ConsoleBox) -> None:
        trust = Trust(box.url, file=Path("/nowhere"))
        self.link = Link(box.url, "sk", trust, changed=self._changed)
        self.problems: list[Problem] = []
        self._event = asyncio.Event()

    def _changed(self) -> None:
        if self.link.problem is not None:
            self.problems.append(self.link.problem)
        self._event.set()

    async def until_heard(self) -> None:
        while self.link.live is None:
            self._event.clear()
            await self._event.wait()

    async def until_told(self) -> None:
        while not self.problems:
            self._event.clear()
            await self._event.wait()


@asynccontextmanager
async def heard(box: ConsoleBox) -> AsyncIterator[Told]:
    """A link that has had a frame of the box."""
    box.send(make_live())
    told = Told(box)
    task = asyncio.create_task(told.link.follow())
    try:
        async with asyncio.timeout(SOON_S):
            await told.until_heard()
            yield told
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await told.link.close()


async def test_a_daemon_that_dies_is_not_taken_for_another_program() -> None:
    """Its end amid the stream, as after a kill: no last chunk, only the end of the connection."""
    async with console_box() as box, heard(box) as told:
        for writer in box.writers:
            writer.close()
        await told.until_told()
        assert told.problems[0] == Problem("link.broke", (box.url,))


async def test_an_action_amid_which_the_daemon_dies_is_unknown_and_says_that_it_broke_off() -> None:
    async with console_box() as box, heard(box) as told:
        box.replies["POST", "/admin/engine/restart"] = [Reply(cut=True)]
        answer = await told.link.act("POST", "/admin/engine/restart")
        assert answer.done is None
        assert answer.problem == Problem("link.broke", (box.url,))


async def test_what_was_never_heard_may_be_anything() -> None:
    async with console_box() as box:
        box.replies["GET", "/admin/keys"] = [Reply(cut=True)]
        link = Link(box.url, "sk", Trust(box.url, file=Path("/nowhere")))
        answer = await link.ask("/admin/keys")
        await link.close()
        assert answer.problem == Problem("link.no_http", (box.url,))


async def test_a_broken_connection_is_lost_at_once_and_a_frame_brings_it_back(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as it:
        assert it.text[0].startswith("age 0.0s")
        it.link.problem = Problem("link.refused", ("http://box7",))
        it.link.retry_at = it.link.clock() + 1
        assert it.text[0].startswith("LOST 0.0s, retry 1 s")
        assert it.text[-2] == "Nothing listens at http://box7: is the daemon up, is --url right?"
        await it.press("X")
        assert it.desk.box is None
        it.link._take(event(make_live()).split(b"data: ")[1].strip())
        assert it.text[0].startswith("age 0.0s")


async def test_silence_alone_is_late_for_four_seconds(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.link.clock.now += 4.0
        assert it.text[0].startswith("LATE 4.0s")


async def test_plots_have_a_gap_from_the_moment_the_connection_broke(tmp_path: Path) -> None:
    async with shop(tmp_path) as it:
        it.desk.lines()
        it.link.problem = Problem("link.refused", ("http://box7",))
        it.link.clock.now += 2.0
        it.desk.lines()
        it.link.clock.now += 1.0
        it.link.problem, it.link.received = None, it.link.clock()
        it.desk.lines()
        assert it.desk.past.shown["out_tok_s"][-4:].count(None) == 2


def lost(width: int = 80) -> View:
    return view(
        "lost", width=width, problem="Nothing listens at http://box7.", history=past(900)
    )  # fmt: skip


@pytest.mark.parametrize("number", [2, 4, 5])
def test_what_was_not_read_before_the_line_was_lost_is_not_said_to_be_read_now(number: int) -> None:
    screens = every_screen()
    screen = screens[number - 1]
    if number == 2:
        screen.press("tab", view())
    drawn = "\n".join(text_of(row) for row in whole(lost(), screen, screens))
    assert "reading" not in drawn
    assert "not read before the connection was lost" in drawn
