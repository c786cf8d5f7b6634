"""The console as a picture, for docs and snapshots: `python -m tests.unit.console_picture` writes
docs/console.svg anew."""

import asyncio
import math
import re
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.unit.console_box import make_live, make_rows
from tests.unit.console_views import STATE
from tui.app import Console
from tui.link import Answer, Link
from tui.screens.all import every_screen
from tui.settings import Settings
from tui.trust import Trust

TARGET = Path(__file__).resolve().parents[2] / "docs/console.svg"


class StillLink(Link):
    """A box that has told one thing, and stands still."""

    def __init__(self) -> None:
        super().__init__("http://box7:8421", "k", Trust("http://box7:8421"), now=lambda: 1000.0)
        self.live, self.rows, self.state = make_live(), make_rows(4), STATE
        self.received = 1000.0 - 0.1

    async def follow(self) -> None:
        """Nothing further comes."""

    async def ask(self, path: str) -> Answer:
        return Answer({})


def still_console(link: Link | None = None, **given: Any) -> Console:
    """A console whose clock stands, after a minute of numbers that went up and down."""
    link = link or StillLink()
    settings = Settings(**({"operator": "alice", "version": "0"} | given))
    console = Console(lambda _: link, link.url, every_screen(), settings, now=lambda: 1000.0)
    for second in range(60):
        swing = math.sin(second / 6)
        live = replace(
            make_live(),
            out_tok_s=200 + 40 * swing,
            ttft_p99_ms=800 - 300 * swing,
            itl_p99_ms=60 + 5 * swing,
            e2e_p99_ms=12_000 + 4000 * math.sin(second / 9),
        )
        console.desk.past.add(940.0 + second, live)
    return console


async def _picture() -> str:
    console = still_console()
    async with console.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        svg = console.export_screenshot(title="steelyard tui", simplify=True)
    # Fonts would be fetched from elsewhere: whoever looks has a monospaced one.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    TARGET.write_text(asyncio.run(_picture()), encoding="utf-8")
