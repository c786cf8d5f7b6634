"""The full-screen face on a terminal: keys to the walk, its lines to the screen. What it does on
the machine runs beside the screen, one act at a time."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType

from tui.app import Paper
from tui.assistant import plan
from tui.assistant.checks import Wrong
from tui.assistant.machine import Facts, Machine
from tui.assistant.walk import Effect, Walk
from tui.lines import Line
from tui.words import Lang

FINISHED, LEFT, BROKEN = 0, 1, 3
"""Exit statuses; BROKEN: an error of the face's own, and the lines may still work."""


class Assistant(App[int], inherit_bindings=False):
    """Ends with an exit status."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = []
    CSS = "Screen { background: ansi_default; } Paper { width: 1fr; height: 1fr; }"

    def __init__(self, machine: Machine, facts: Facts, lang: Lang, theme: str = "terminal") -> None:
        super().__init__(ansi_color=True)
        self.machine = machine
        self.walk = Walk(facts, lang)
        self.theme_name = "mono" if self.no_color else theme
        self.broken: Exception | None = None
        self.paper = Paper(self._press, self._paste, self._click, self._wheel)
        self._work: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        yield self.paper

    def on_mount(self) -> None:
        self.paper.focus()
        self._paint()

    def on_resize(self) -> None:
        self._paint()

    def _paint(self) -> None:
        self.walk.size = (self.size.width, self.size.height)
        self.paper.put(self.walk.lines(), self.theme_name)

    # -- keys --------------------------------------------------------------------------------------

    def _press(self, key: str) -> None:
        if key == "ctrl+l":  # the kernel may have written over the console
            self.refresh(repaint=True)
            self.paper.refresh()
        self._do(self.walk.press(key))
        self._paint()

    def _paste(self, text: str) -> None:
        self.walk.paste(text)
        self._paint()

    def _click(self, lines: Sequence[Line], x: int, y: int) -> None:
        """No mouse: whoever marks a key on the screen uses the terminal's own."""

    def _wheel(self, step: int) -> None:
        pass

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, effect: Effect | None) -> None:
        if effect == "apply":
            self._work = asyncio.create_task(self._applied())
        elif effect == "leave":
            self.exit(FINISHED if self.walk.facts.finished else LEFT)
        elif effect == "finish":
            self._finish()

    def _finish(self) -> None:
        try:
            plan.finish(self.machine.root)
        except Wrong as wrong:
            self.walk.failed(wrong)
        else:
            self.exit(FINISHED)

    async def _applied(self) -> None:
        try:
            await self._apply()
        except Exception as error:
            self._handle_exception(error)

    async def _apply(self) -> None:
        loop = asyncio.get_running_loop()

        def tell(told: plan.Told) -> None:
            loop.call_soon_threadsafe(self._began, told)

        chinese = self.walk.facts.chinese
        outcome = await asyncio.to_thread(plan.apply, self.walk.plan, self.machine, tell)
        facts = await asyncio.to_thread(self.machine.look, chinese=chinese)
        self.walk.ended(outcome, facts)
        self._paint()

    def _began(self, told: plan.Told) -> None:
        self.walk.began(told)
        self._paint()

    def _handle_exception(self, error: Exception) -> None:
        """A bug of ours: the screen is given back, and whoever started us goes on without it."""
        self.broken = error
        self.exit(BROKEN)


def run(machine: Machine, facts: Facts, lang: Lang) -> int:
    """Until it was finished or left. Raises what broke."""
    if not os.isatty(2):  # Textual draws on standard error, which a unit gives to the journal
        sys.stderr.flush()
        os.dup2(1, 2)
    app = Assistant(machine, facts, lang)
    status = app.run(mouse=False)
    if app.broken is not None:
        for name, scope, secret in app.walk.outcome.secrets:  # nothing else can show them again
            print(f"{name} ({scope}): {secret}")
        raise app.broken
    return LEFT if status is None else status
