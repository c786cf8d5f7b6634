"""What a screen is, and what its keys may ask the console to do. Nothing here knows Textual."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tui.lines import Line
from tui.table import Table as Table
from tui.view import View

Hint = tuple[str, str]
"""A key as it is printed on the keyboard (`T`, `Enter`, `^P`), and a word for it."""


@dataclass(frozen=True, slots=True)
class Query:
    """REST data that a screen needs while it is shown: GET `path` each `every_s` (0: once)."""

    path: str
    every_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Go:
    """To another screen."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """One action by REST. The console adds operator and idempotency key, asks again after a lost
    link, shows `done`, and gives the answer to `Screen.answered`."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    done: str = ""
    """What to say when it is done."""
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """A dialog before an action: what, whom it hits. The console adds who asks. Only `y` acts."""

    title: str
    lines: tuple[str, ...]
    effect: "Effect"
    typed: str | None = None
    """What must be typed for it: for actions that cannot be taken back."""


@dataclass(frozen=True, slots=True)
class Choose:
    """A list of (value, label); Enter picks one."""

    title: str
    options: tuple[tuple[str, str], ...]
    then: "Callable[[str], Effect | None]"
    chosen: int = 0
    """Which one the list opens at."""


@dataclass(frozen=True, slots=True)
class Show:
    """Text that stands until Enter or Esc: a secret shown once, a whole error."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """A note in row 23 for some seconds."""

    text: str


@dataclass(frozen=True, slots=True)
class Save:
    """Write a file into the console's own folder; it says where."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Copy:
    """To the terminal's clipboard."""

    text: str


@dataclass(frozen=True, slots=True)
class Quit:
    pass


@dataclass(frozen=True, slots=True)
class Stream:
    """POST, and give each server-sent event's data to `Screen.streamed` as it comes."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the stream that runs."""


Effect = Go | Call | Ask | Choose | Show | Tell | Save | Copy | Quit | Stream | Stop


class Screen:
    """One screen: keeps its own cursor, filter and last REST answers; draws from a View.

    `body` gives exactly `view.body_height` lines of `view.width` cells. `press` gets Textual's key
    names ("enter", "tab", "up", "j", "X", "ctrl+p"), with capitals only while `view.acts`.
    """

    number: ClassVar[int]
    name: ClassVar[str]
    """Its words are `screen.<name>` and `short.<name>`."""
    table: Table[Any] | None = None
    """What `/` filters and the arrow keys walk, if there is one."""

    @property
    def typing(self) -> bool:
        """Whether a text field has the focus, so that single keys are text."""
        return False

    def body(self, view: View) -> list[Line]:
        raise NotImplementedError

    def hints(self, view: View) -> list[Hint]:
        """For row 24 and for help."""
        return []

    def press(self, key: str, view: View) -> Effect | None:
        """What a key that is not the console's own does here."""
        if self.table is not None:
            self.table.press(key)
        return None

    def wants(self, view: View) -> tuple[Query, ...]:
        return ()

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        """The answer to a query: parsed JSON, or why there is none."""

    def answered(self, call: Call, data: Any) -> Effect | None:
        """A call was done and this is its answer, e.g. a secret to show once."""
        return None

    def streamed(self, data: str | None, error: str | None) -> None:
        """One event of a stream; None and no error: it has ended."""

    def paste(self, text: str, view: View) -> None:
        """Text from the clipboard, while `typing`."""

    def find(self, text: str) -> None:
        """The filter, as it is typed after `/`."""
        if self.table is not None:
            self.table.find(text)

    @property
    def found(self) -> str:
        """The filter in force."""
        return "" if self.table is None else self.table.filter
