"""The console as a picture, for docs and snapshots: `python -m tests.unit.console_picture` writes
the pictures of the docs anew."""

import asyncio
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance.frames import Live, Rows, State
from tests.unit.console_scene import ANSWERS, LIVE_SHOWN, ROWS_SHOWN, STATE_SHOWN
from tui.app import Console
from tui.link import Answer, Link
from tui.screens.all import every_screen
from tui.settings import Settings
from tui.trust import Trust

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = {"console.svg": (1, (80, 24)), "console-calibration.svg": (3, (140, 45))}
"""Of the docs: the screen's number, and the terminal's size."""


class StillLink(Link):
    """A box that has told one thing, and stands still."""

    def __init__(
        self,
        live: Live = LIVE_SHOWN,
        rows: Rows = ROWS_SHOWN,
        state: State = STATE_SHOWN,
        answers: Mapping[str, Any] = ANSWERS,
    ) -> None:
        super().__init__("http://box7:8421", "k", Trust("http://box7:8421"), now=lambda: 1000.0)
        self.live, self.rows, self.state = live, rows, state
        self.received = 1000.0 - 0.1
        self._answers = answers
        self.answered: set[str] = set()

    async def follow(self) -> None:
        """Nothing further comes."""

    async def ask(self, path: str) -> Answer:
        self.answered.add(path)
        return Answer(self._answers.get(path, {}))

    async def told(self, console: Console) -> None:
        """Until the screen that is shown has had all it asked for."""
        desk = console.desk
        while {query.path for query in desk.screen.wants(desk.view())} - self.answered:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # what came is the screen's now


def still_console(link: Link | None = None, **given: Any) -> Console:
    """A console whose clock stands, after a minute of numbers that went up and down."""
    link = link or StillLink()
    settings = Settings(**({"operator": "alice", "version": "0"} | given))
    console = Console(lambda _: link, link.url, every_screen(), settings, now=lambda: 1000.0)
    for second in range(60):
        swing = math.sin(second / 6)
        live = replace(
            LIVE_SHOWN,
            out_tok_s=200 + 40 * swing,
            ttft_p99_ms=800 - 300 * swing,
            itl_p99_ms=60 + 5 * swing,
            e2e_p99_ms=12_000 + 4000 * math.sin(second / 9),
        )
        console.desk.past.add(940.0 + second, live)
    return console


async def picture(number: int, size: tuple[int, int]) -> str:
    """A screen as SVG."""
    link = StillLink()
    console = still_console(link)
    async with console.run_test(size=size) as pilot:
        await pilot.press(str(number))
        await link.told(console)
        console._paint()
        await pilot.pause()
        svg = console.export_screenshot(title="steelyard tui", simplify=True)
    # Fonts would be fetched from elsewhere: whoever looks has a monospaced one.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    for name, (number, size) in PICTURES.items():
        (DOCS / name).write_text(asyncio.run(picture(number, size)), encoding="utf-8")
