"""The terminal: paints the desk's lines and hands it keys. All thinking is in tui/desk.py.

One event loop does everything, so nobody locks; nothing on it waits for the box.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui import commands, crash, pointer
from tui.desk import Desk
from tui.lines import Line
from tui.link import Link
from tui.pace import TICK_S, Pace
from tui.screen import Screen
from tui.settings import Settings
from tui.theme import THEMES

UNANSWERED_S = 0.4
"""A terminal that has never said where its cursor is: so long after a dialog was written to it,
keys count as typed in sight of it."""
GIVE_UP_S = 10.0
"""The same for one that has answered before."""
WHERE = "\x1b[1;1H\x1b[6n"
"""Asks the terminal where its cursor is. The answer comes behind all that was typed before."""
LONGEST_COPY = 100_000


class Paper(Widget, can_focus=True):
    """Lines of cells on the terminal. Only those that changed are written again."""

    def __init__(
        self,
        key: Callable[[str], None],
        paste: Callable[[str], None],
        click: Callable[[Sequence[Line], int, int], None],
        wheel: Callable[[int], None],
    ) -> None:
        super().__init__()
        self._lines: list[Line] = []
        self._theme = "terminal"
        self._key, self._paste, self._click, self._wheel = key, paste, click, wheel

    def put(self, lines: list[Line], theme: str) -> bool:
        """Show these; whether anything changed."""
        old, self._lines = self._lines, lines
        if theme != self._theme or len(old) != len(lines):
            self._theme = theme
            self.refresh()
            return True
        width = self.size.width
        changed = [
            Region(0, y, width, 1)
            for y, (before, after) in enumerate(zip(old, lines, strict=True))
            if before != after
        ]
        if changed:
            self.refresh(*changed)
        return bool(changed)

    def render_line(self, y: int) -> Strip:
        styles = THEMES[self._theme]
        if y >= len(self._lines):
            return Strip.blank(self.size.width, styles["plain"])
        return Strip([Segment(span.text, styles[span.role]) for span in self._lines[y]])

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        printable = event.is_printable and event.character is not None
        character = event.character if printable else None
        self._key("space" if character == " " else character or event.key)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._paste(event.text)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if event.button == 1:
            self._click(self._lines, event.x, event.y)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._wheel(-1)


class Console(App[None], inherit_bindings=False):
    """The console on a terminal."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = []
    CSS = "Screen { background: ansi_default; } Paper { width: 1fr; height: 1fr; }"

    def __init__(
        self,
        connect: Callable[[str], Link],
        url: str,
        screens: Sequence[Screen],
        settings: Settings,
        *,
        slow: bool = False,
        unanswered_s: float = UNANSWERED_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(ansi_color=True)
        if self.no_color:
            settings.theme = "mono"
        self._connect = connect
        self._pace = Pace(slow=slow)
        self._unanswered_s = unanswered_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._offered = ""
        self._answers = False
        self._probes: list[bool] = []
        self._painted = 0.0
        self._soon = False
        self._following: asyncio.Task[None] | None = None
        self.report = ""
        """The crash report's name, if this console broke."""
        link = connect(url)
        link.operator = settings.operator
        self.desk = Desk(link, screens, self, settings, now=now)
        self.paper = Paper(self._press, self._paste, self._click, self._wheel)

    def compose(self) -> ComposeResult:
        yield self.paper

    def on_mount(self) -> None:
        self.paper.focus()
        self._following = self.start(self.desk.link.follow())
        self.set_interval(TICK_S, self._tick)
        self._pace.asked(time.monotonic())
        self._probe(arms=False)

    async def on_unmount(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.desk.link.close()

    # -- painting ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        desk = self.desk
        link = desk.link
        if link.shown is not None and link.shown.pem != self._offered and desk.box is None:
            self._offered = link.shown.pem
            commands.trust(desk, link)
        now = time.monotonic()
        if self._answers and not self._probes and self._pace.due(now):
            self._pace.asked(now)
            self._probe(arms=False)
        # The timer's own jitter must not halve the rate.
        if now - self._painted >= self._pace.tick_s - TICK_S / 2:
            self._paint()

    def _paint(self) -> None:
        self._painted = time.monotonic()
        desk = self.desk
        desk.size = (self.size.width, self.size.height)
        self.paper.put(desk.lines(), desk.settings.theme)
        if not desk.armed and True not in self._probes:
            self._probes.append(True)
            self.call_after_refresh(self._probe_now)

    def _paint_soon(self) -> None:
        """Keys show at once, yet no more often than the tick."""
        left = self._painted + self._pace.tick_s - time.monotonic()
        if left <= 0:
            self._paint()
        elif not self._soon:
            self._soon = True
            self.set_timer(left, self._paint_now)

    def _paint_now(self) -> None:
        self._soon = False
        self._paint()

    def on_resize(self) -> None:
        self._paint_soon()

    # -- which keys were typed in sight of a dialog ------------------------------------------------

    def _probe(self, *, arms: bool) -> None:
        self._probes.append(arms)
        self._probe_now()

    def _probe_now(self) -> None:
        """The dialog is on its way to the terminal: ask something that is answered behind it."""
        if self._driver is not None:
            self._driver.write(WHERE)
            self._driver.flush()
        if self._probes and self._probes[-1]:
            box, wait = self.desk.box, GIVE_UP_S if self._answers else self._unanswered_s
            self.set_timer(wait, lambda: self._seen(box))

    def on_cursor_position(self, event: events.CursorPosition) -> None:
        self._answers = True
        if self._probes and self._probes.pop(0):
            self.desk.armed = True
        elif self._pace.answered(time.monotonic()) and self._pace.slow:
            self.desk.say(self.desk.words("desk.slow_line"))

    def _seen(self, box: object) -> None:
        """No answer came in time."""
        if self.desk.box is box and not self.desk.armed:
            self._probes.clear()
            self.desk.armed = True

    # -- what the desk asks for --------------------------------------------------------------------

    def _press(self, key: str) -> None:
        self.desk.typed(key)
        self._paint_soon()

    def _click(self, lines: Sequence[Line], x: int, y: int) -> None:
        pointer.click(self.desk, lines, x, y)
        self._paint_soon()

    def _wheel(self, step: int) -> None:
        pointer.wheel(self.desk, step)
        self._paint_soon()

    def _paste(self, text: str) -> None:
        self.desk.paste(text)
        self._paint_soon()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run beside everything else; what breaks in it is reported, and the console goes on."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.desk.broke(error)

    def copy(self, text: str) -> None:
        self.copy_to_clipboard(text[:LONGEST_COPY])

    def leave(self) -> None:
        self.exit()

    def connect(self, url: str) -> None:
        """To another box: what the old one said goes."""
        if self._following is not None:
            self._following.cancel()
        self.start(self.desk.link.close())
        link = self._connect(url)
        link.operator = self.desk.settings.operator
        self.desk.link, self._offered = link, ""
        self._following = self.start(link.follow())

    def _handle_exception(self, error: Exception) -> None:
        """A bug of the console: its trace goes to a file, the screen gets the file's name."""
        self._return_code = 1
        if not self.report:
            self.report = crash.write(error, self.desk.settings.version)
        self.panic(Text(f"The console has ended after an error of its own. Report: {self.report}"))
