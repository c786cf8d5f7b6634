"""Labelled lines to type in. Enter hands all of them over, Tab goes on, Esc is the screen's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tui.cells import pad
from tui.field import Field
from tui.lines import Line, Span, line
from tui.screen import Effect
from tui.view import View

LABEL = 12
FIELD = 34
NOTE = 30
"""Cells kept for what a field takes, where they are scarce."""


class Invalid(Exception):
    """A field holds what cannot be taken: its name, and the key of the word that says why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why


@dataclass(frozen=True, slots=True)
class Blank:
    """One line of a form: keys of its words, and what stands in it at first."""

    name: str
    label: str
    takes: str
    text: str = ""
    most: int = 64


class Form:
    """`then` gets the texts by name and gives what comes of them, or raises Invalid."""

    def __init__(
        self,
        title: str,
        blanks: Sequence[Blank],
        then: Callable[[Mapping[str, str], View], Effect],
    ) -> None:
        self.title = title
        self.at = 0
        self._blanks = tuple(blanks)
        self._fields = [Field(blank.text, most=blank.most) for blank in blanks]
        self._then = then
        self._wrong = ("", "")

    @property
    def texts(self) -> dict[str, str]:
        pairs = zip(self._blanks, self._fields, strict=True)
        return {blank.name: field.text.strip() for blank, field in pairs}

    def press(self, key: str, view: View) -> Effect | None:
        if key == "enter":
            return self._enter(view)
        if key in ("tab", "down", "shift+tab", "up"):
            step = 1 if key in ("tab", "down") else -1
            self.at = (self.at + step) % len(self._fields)
        else:
            self._fields[self.at].press(key)
        return None

    def paste(self, text: str) -> None:
        self._fields[self.at].insert(text.strip())

    def _enter(self, view: View) -> Effect | None:
        """The first field that is wrong gets the cursor."""
        try:
            effect = self._then(self.texts, view)
        except Invalid as wrong:
            names = [blank.name for blank in self._blanks]
            self.at, self._wrong = names.index(wrong.name), (wrong.name, wrong.why)
            return None
        self._wrong = ("", "")
        return effect

    def draw(self, view: View) -> list[Line]:
        """Title, one line for each field, what is wrong, and the keys."""
        lines = [line(Span(self.title, "bold")), line()]
        lines += [self._line(at, blank, view) for at, blank in enumerate(self._blanks)]
        wrong = view.words(self._wrong[1]) if self._wrong[1] else ""
        keys = line(Span(view.words("accounts.form.keys"), "dim"))
        return [*lines, line(), line(Span(f" {wrong}", "bold")), line(), keys]

    def _line(self, at: int, blank: Blank, view: View) -> Line:
        on = at == self.at
        label = pad(view.words(blank.label), LABEL)
        room = max(12, min(FIELD, view.width - LABEL - NOTE))
        text = self._fields[at].draw(view.foreign, room, 1, focus=on)[0]
        note = Span(view.words(blank.takes), "dim")
        return (Span(f"{'>' if on else ' '}{label} "), *text, Span(" "), note)
