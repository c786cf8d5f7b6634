"""A console with a screen of its own to look at."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.unit.console_shop import Shop, open_shop
from tui.broken import Broken
from tui.lines import Line, line
from tui.screen import Ask, Call, Effect, Query, Screen, Show, Table
from tui.view import View

CANCEL = Ask("Cancel 8f00", ("It ends at once.",), Call("DELETE", "/admin/requests/8f00"))


class Probe(Screen):
    """A screen that remembers its keys."""

    number = 1
    name = "overview"

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.effects: dict[str, Effect] = {"X": CANCEL}
        self.text: str | None = None
        self.pasted = ""
        self.received: list[tuple[Any, str | None]] = []
        self.failing = False

    @property
    def typing(self) -> bool:
        return self.text is not None

    def body(self, view: View) -> list[Line]:
        if self.failing:
            raise ZeroDivisionError("a bug")
        return [line(f"typed {self.text}")] if self.typing else []

    def press(self, key: str, view: View) -> Effect | None:
        self.keys.append(key)
        if self.text is not None:
            self.text += key
        return self.effects.get(key)

    def wants(self, view: View) -> tuple[Query, ...]:
        return (Query("/admin/keys"),)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        if data == "odd":
            raise TypeError("no such shape")
        self.received.append((data, error))

    def answered(self, call: Call, data: Any) -> Effect | None:
        return Show("Secret", (data["secret"],)) if call.path == "/admin/keys" else None

    def paste(self, text: str, view: View) -> None:
        self.pasted += text


class Listing(Screen):
    """A screen with a table."""

    number = 2
    name = "requests"

    def __init__(self) -> None:
        self.table = Table[str](lambda row: row)
        self.table.show(["crm-bot", "wiki"])

    def body(self, view: View) -> list[Line]:
        assert self.table is not None
        return [line(row) for row in self.table.rows]


class Counter(Shop):
    """With the screen that remembers."""

    @property
    def probe(self) -> Probe:
        found = self.desk.screens[0]
        found = found.screen if isinstance(found, Broken) else found
        assert isinstance(found, Probe)
        return found


@asynccontextmanager
async def shop(tmp_path: Path, **given: Any) -> AsyncIterator[Counter]:
    async with open_shop(tmp_path, [Probe(), Listing()], **given) as it:
        yield Counter(it.app, it.pilot, it.link)
