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

_KEY = {
    "id": "k_7Q2M", "name": "crm-bot", "tenant": "sales", "scopes": ["infer"], "state": "valid",
    "created": "2025-11-01T10:00:00Z", "created_by": "alice", "created_from": "10.0.4.12",
    "expires": None, "rotated": None, "grace_until": None, "revoked": None,
    "limits": {"requests_per_min": 60}, "used": {"requests_per_min": 44, "cost_per_month": "12.40"},
}  # fmt: skip
_COST = {"prefill": 0, "decode": 190_000_000, "cached": 0, "idle": 0, "total": 190_000_000}
ANSWERS: dict[str, Any] = {
    "/admin/keys": {"keys": [_KEY]},
    "/admin/tenants": {"tenants": [{"name": "sales", "limits": {}, "used": {}}]},
    "/admin/cost?by=key": {
        "currency": "USD",
        "rows": [{"group": {"key": "k_7Q2M"}, "standard": _COST}],
        "total": {"group": {}, "standard": _COST},
    },
    "/admin/forecasters": {"in_use": "v0007", "forecasters": [{"version": "v0007"}]},
    "/admin/forecasters/scatter": {"points": [[60, 70, 0], [300, 280, 0], [9, 400, 1]]},
    "/admin/control": {"tau": 0.62, "channels": []},
    "/admin/audit/ledger/verify": {"state": "none"},
    "/admin/audit/conflicts": {"conflicts": [], "before": None},
    "/admin/actions?limit=200": {"actions": [], "next": None},
    "/admin/log?level=info&filter=&limit=200": {"lines": []},
}
"""What the box answers, by path."""
TARGET = Path(__file__).resolve().parents[2] / "docs/console.svg"


class StillLink(Link):
    """A box that has told one thing, and stands still."""

    def __init__(self) -> None:
        super().__init__("http://box7:8421", "k", Trust("http://box7:8421"), now=lambda: 1000.0)
        self.live, self.rows, self.state = make_live(), make_rows(4), STATE
        self.received = 1000.0 - 0.1
        self.answered: set[str] = set()

    async def follow(self) -> None:
        """Nothing further comes."""

    async def ask(self, path: str) -> Answer:
        self.answered.add(path)
        return Answer(ANSWERS.get(path, {}))

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
