"""A console that runs on a terminal that is not there, linked to a box that is not there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.unit.console_box import make_live, make_rows
from tests.unit.console_views import STATE
from tui.app import Console
from tui.lines import text_of
from tui.link import Answer, Link
from tui.screen import Screen
from tui.settings import Settings
from tui.trust import Shown, Trust

SECRET = "sk-steelyard-shown-once"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class ScriptedLink(Link):
    """A link without a network: answers are what the test puts there."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("http://box7", "k", Trust("http://box7"), now=clock)
        self.clock = clock
        self.acted: list[tuple[str, str, object]] = []
        self.asked: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.taken: list[Shown] = []
        self.streamed: list[tuple[str, object]] = []
        self.live, self.rows, self.state = make_live(), make_rows(20), STATE
        self.received = clock()

    async def follow(self) -> None:
        """Nothing comes unless the test puts it there."""

    async def ask(self, path: str) -> Answer:
        self.asked.append(path)
        return self.answers.get(path, Answer({}))

    async def act(
        self, method: str, path: str, body: object = None, *, idempotent: bool = False
    ) -> Answer:
        self.acted.append((method, path, body))
        return self.answers.get(f"{method} {path}", Answer({"secret": SECRET}))

    async def stream(self, path: str, body: object) -> AsyncGenerator[Answer, None]:
        self.streamed.append((path, body))
        yield Answer()

    async def believe(self, shown: Shown) -> None:
        self.taken.append(shown)
        self.shown = None


class Shop:
    """A console that runs, and what a test looks at."""

    def __init__(self, app: Console, pilot: Pilot[None], link: ScriptedLink) -> None:
        self.app, self.pilot, self.link = app, pilot, link
        self.desk = app.desk

    @property
    def text(self) -> list[str]:
        return [text_of(row).rstrip() for row in self.desk.lines()]

    @property
    def screen(self) -> str:
        return "\n".join(self.text)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def armed(self) -> None:
        """Until the dialog counts as seen."""
        await self.until(lambda: self.desk.armed)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await self.pilot.pause()


@asynccontextmanager
async def open_shop(
    home: Path,
    screens: Sequence[Screen],
    size: tuple[int, int] = (80, 24),
    unanswered_s: float = 0.01,
    **given: Any,
) -> AsyncIterator[Shop]:
    """A console with these screens, in front of alice."""
    clock = Clock()
    link = ScriptedLink(clock)
    settings = Settings(**({"operator": "alice", "version": "0.1", "folder": home} | given))
    app = Console(
        lambda url: link, "http://box7", screens, settings, unanswered_s=unanswered_s, now=clock
    )
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Shop(app, pilot, link)
