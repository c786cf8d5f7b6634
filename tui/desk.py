"""The console without a terminal: which screen, which box, what keys do, what there is to draw.

Owned by the console's one event loop; nothing in here waits. The clock is an argument.
"""

import time
from collections.abc import Callable, Sequence

from tui import commands, crash, frame
from tui.boxes import AskBox, Box, ChooseBox, HelpBox, Outcome, PromptBox, ShowBox, edited
from tui.broken import Broken
from tui.errands import Errands
from tui.files import save
from tui.hold import Hold
from tui.lines import Line
from tui.link import Link
from tui.past import Past
from tui.screen import (
    Ask,
    Call,
    Choose,
    Copy,
    Effect,
    Go,
    Quit,
    Save,
    Screen,
    Show,
    Stop,
    Stream,
    Tell,
)
from tui.settings import Host, Settings
from tui.view import Link as LinkState
from tui.view import View, link_of
from tui.words import Words

NOTE_S = 6.0
SET_UP = 9
EVERYWHERE = ("ctrl+p", "f1", "ctrl+c")
"""Keys that no text field takes."""
HISTORY_FROM = 120
"""Cells from which screens plot fifteen minutes."""


class Desk:
    """State of one console."""

    def __init__(
        self,
        link: Link,
        screens: Sequence[Screen],
        host: Host,
        settings: Settings,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = link
        self.screens: Sequence[Screen] = list(screens)
        self.host = host
        self.settings = settings
        self.number = screens[0].number
        self.size = (80, 24)
        self.box: Box | None = None
        self.armed = True
        """False: a guarded box was opened and is not yet known to be on the screen."""
        self.past = Past()
        self.errands = Errands(self)
        self.now = now
        self.filtering = False
        self._later: list[Box] = []
        self._hold = Hold(self.past)
        self._begun = False
        self._note, self._note_until = "", 0.0

    # -- what is drawn -----------------------------------------------------------------------------

    @property
    def screen(self) -> Screen:
        return next(one for one in self.screens if one.number == self.number)

    @property
    def words(self) -> Words:
        return Words(self.settings.lang)

    def say(self, text: str, seconds: float = NOTE_S) -> None:
        """A note in row 23 for some seconds."""
        self._note, self._note_until = text, self.now() + seconds

    def view(self) -> View:
        """What screens draw from, now."""
        now, link, settings = self.now(), self.link, self.settings
        frozen = self._hold.shown(now)
        age, state = self._heard(now)
        return View(
            width=self.size[0],
            height=self.size[1],
            live=frozen.live if frozen else link.live,
            rows=frozen.rows if frozen else link.rows,
            state=frozen.state if frozen else link.state,
            age_s=frozen.age_s if frozen else age,
            link="frozen" if frozen else state,
            lost_s=age if state == "lost" else None,
            retry_s=None if link.retry_at is None else max(0.0, link.retry_at - now),
            problem=self._problem(),
            note=self._line(now),
            words=self.words,
            ascii=settings.ascii,
            operator=settings.operator,
            read_only=settings.read_only,
            past=self.past.shown,
            history=self.past.history if self.size[0] >= HISTORY_FROM else {},
            url=link.url,
            keymap=settings.keymap,
        )

    def _heard(self, now: float) -> tuple[float | None, LinkState]:
        """How long ago the box was heard, and what that makes of the link."""
        received, broken = self.link.received, self.link.problem is not None
        age = None if received is None else max(0.0, now - received)
        return age, link_of(age, broken=broken)

    def _problem(self) -> str:
        problem = self.link.problem
        return "" if problem is None else self.errands.told(problem)

    def _line(self, now: float) -> str:
        if self.filtering:
            return self.words("desk.filter", self.screen.found)
        return self._note if now < self._note_until else ""

    def lines(self) -> list[Line]:
        """The whole terminal; also asks for what the screen lacks. A screen that fails is
        replaced by one that says so."""
        view = self.view()
        self._remember(view)
        try:
            self.errands.poll(view)
            return self._drawn(view)
        except Exception as error:
            self._replace(Broken(self.screen, self.report(error)))
        try:
            return self._drawn(view)
        except Exception:  # so it was the box
            self.box = None
            return self._drawn(view)

    def _remember(self, view: View) -> None:
        """What plots are drawn from goes on while the screen is held."""
        now = self.now()
        if self._heard(now)[1] in ("ok", "late"):
            self.past.add(now, self.link.live)
            self._begin(view)

    def _begin(self, view: View) -> None:
        """The first time the box tells its state: an unfinished set-up opens by itself."""
        if view.state is not None and not self._begun:
            self._begun = True
            if self.number == self.screens[0].number and self.box is None:
                todo = any(step.state == "todo" for step in view.state.setup)
                self.go(SET_UP if todo else self.number)

    def _drawn(self, view: View) -> list[Line]:
        dialog = None if self.box is None else self.box.draw(view, self.screen)
        return frame.whole(view, self.screen, self.screens, dialog)

    def report(self, error: BaseException) -> str:
        """Write a crash report; returns its name."""
        return crash.write(error, self.settings.version)

    def broke(self, error: BaseException) -> None:
        """Something other than a screen failed: say where the report is, and go on."""
        text = self.words("desk.reported", self.report(error))
        self.open(ShowBox(Show(self.words("desk.error"), (text,))))

    def _replace(self, screen: Screen) -> None:
        self.screens = [screen if one.number == screen.number else one for one in self.screens]

    # -- keys --------------------------------------------------------------------------------------

    def typed(self, key: str) -> None:
        """A key of the keyboard: a printable one as its character, else Textual's name. The
        operator's keymap holds where neither a dialog nor a text field has it."""
        if self.box is None and not self.filtering:
            meant = self.settings.keymap.meaning(key)
            key = meant if not self.screen.typing or meant in EVERYWHERE else key
        if key:
            self.press(key)

    def press(self, key: str) -> None:
        """Take one of the console's own keys."""
        try:
            self._press(key)
        except Exception as error:
            self.broke(error)

    def _press(self, key: str) -> None:
        if self.box is not None:
            if self.armed or not self.box.guarded:
                self._boxed(self.box, key)
        elif self.filtering:
            self._filter(key)
        elif key in EVERYWHERE or not self.screen.typing:
            self._own(key)
        else:
            self.perform(self.screen.press(" " if key == "space" else key, self.view()))

    def _boxed(self, box: Box, key: str) -> None:
        if key == "ctrl+c":
            self.close()
            return
        outcome: Outcome = box.press(key)
        if self.box is box and outcome.box is None:
            self.close()
        elif self.box is box:
            self.box = outcome.box
        if outcome.run is not None:
            outcome.run()
        self.perform(outcome.effect)

    def _filter(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.filtering = False
        self.screen.find("" if key == "escape" else edited(self.screen.found, key))

    def _own(self, key: str) -> None:
        if len(key) == 1 and key.isascii() and key.isupper():
            self._capital(key)
        elif len(key) == 1 and key in "123456789":
            self.go(int(key))
        elif (command := commands.KEYS.get(key)) is not None:
            command(self)
        elif isinstance(self.screen, Broken) and key == "enter":
            self._replace(self.screen.screen)
        else:
            self.perform(self.screen.press(key, self.view()))

    def _capital(self, key: str) -> None:
        """Capitals act, so they need a living link; who acts is asked once."""
        view = self.view()
        if not view.acts and not _moves(self.screen, key):
            self.say(self.words(commands.refusal(view)))
            return
        effect = self.screen.press(key, view)
        self.perform(effect if effect is not None else commands.capital(self, key))

    def paste(self, text: str) -> None:
        """Pasted text: whole to a screen that types, by signs to a box or the filter."""
        if self.box is None and not self.filtering:
            if self.screen.typing:
                self.screen.paste(text, self.view())
            return
        if self.armed:
            for sign in text.replace("\n", " "):
                if sign.isprintable() and not isinstance(self.box, AskBox | ShowBox | ChooseBox):
                    self.press(sign)

    # -- effects -----------------------------------------------------------------------------------

    def perform(self, effect: Effect | None) -> None:
        """Carry out what a screen or a box asked for."""
        match effect:
            case Go():
                self.go(effect.number)
            case Ask():
                self._ask(effect)
            case Call():
                self.errands.call(effect)
            case Choose():
                at = max(0, min(effect.chosen, len(effect.options) - 1))
                self.open(ChooseBox(effect, at))
            case Show():
                self.open(ShowBox(effect))
            case Tell():
                self.say(effect.text)
            case Save():
                self._save(effect)
            case Copy():
                self.host.copy(effect.text)
                self.say(self.words("desk.copied"))
            case Quit():
                self.host.leave()
            case Stream():
                self.errands.stream(effect)
            case Stop():
                self.errands.stop()

    def open(self, box: Box) -> None:
        """Put a box over the screen. Guarded ones take no key until they were drawn."""
        if isinstance(self.box, ShowBox):
            self._later.append(box)  # what stands may be a secret that is shown once
        else:
            self.box, self.armed = box, not box.guarded

    def close(self) -> None:
        """Take the box away; one that waited for that comes."""
        self.box = None
        if self._later:
            self.open(self._later.pop(0))

    def help(self) -> None:
        self.open(HelpBox())

    def go(self, number: int) -> None:
        """To a screen, if there is one of that number."""
        if any(one.number == number for one in self.screens):
            self.number, self.filtering = number, False

    def prompt(self, title: str, then: Callable[[str], Effect | None], text: str = "") -> None:
        """Ask for one line."""
        words = self.words
        keys = (("Enter", words("desk.take")), ("Esc", words("ask.no")))
        self.open(PromptBox(title, then, keys, text))

    def _ask(self, ask: Ask) -> None:
        if self.settings.operator:
            self.open(AskBox(ask))
            return

        def named(name: str) -> Effect | None:
            self.name(name)
            return ask if name else None

        self.prompt(self.words("desk.who"), named)

    def name(self, operator: str) -> None:
        """From now on actions carry that name."""
        self.settings.operator = self.link.operator = operator

    def _save(self, wanted: Save) -> None:
        try:
            self.say(self.words("desk.saved", save(self.settings.folder, wanted.name, wanted.text)))
        except OSError as error:
            self.say(self.words("desk.not_saved", wanted.name, error.strerror))

    # -- time --------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """`p`: hold what is shown; again: go on."""
        if self._hold.toggle(self.view(), self.now()):
            self.say(self.words("desk.frozen"))

    def walk(self, seconds: int) -> None:
        """`[` and `]`: further back in what is remembered, or nearer."""
        if not self._hold.holds:
            self.freeze()
        if not self._hold.walk(seconds):
            self.say(self.words("desk.end_of_past"))


def _moves(screen: Screen, key: str) -> bool:
    """`G` only moves the cursor of a table."""
    return key == "G" and screen.table is not None
