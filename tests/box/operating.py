"""An operator at the console of a real box: types, and looks until something can be seen."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.box.running import RunningBox
from tui.app import Console
from tui.lines import text_of, width_of
from tui.link import Link
from tui.screens.all import every_screen
from tui.settings import Settings
from tui.trust import Trust

PATIENCE_S = 60.0


class Operator:
    """Sits at a console: types, and looks until something can be seen."""

    def __init__(self, app: Console, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> str:
        rows = self.app.desk.lines()
        assert [width_of(row) for row in rows] == [80] * 24
        return "\n".join(map(text_of, rows))

    async def type(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.screen, text)

    async def opens(self, key: str) -> None:
        """Presses it until its dialog is there: what it must know first may be on its way."""

        def there() -> bool:
            return self.app.desk.box is not None

        deadline = time.monotonic() + PATIENCE_S
        while not there():
            assert time.monotonic() < deadline, f"{key} opens nothing\n{self.screen}"
            await self.type(key)
            await asyncio.sleep(0 if there() else 0.05)

    async def answers(self, key: str) -> None:
        """To a dialog, once it can be seen."""
        await self.until(lambda: self.app.desk.box is not None and self.app.desk.armed, "a dialog")
        await self.type(key)

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never seen: {what}\n{self.screen}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def console(box: RunningBox, key: str, folder: Path) -> AsyncIterator[Operator]:
    def connect(url: str) -> Link:
        return Link(url, key, Trust(url, file=folder / "known"))

    settings = Settings(operator="爱丽丝", version="test", folder=folder)
    app = Console(connect, box.url, every_screen(), settings, unanswered_s=0.01)
    async with app.run_test(size=(80, 24)) as pilot:
        yield Operator(app, pilot)
    assert not app.report
