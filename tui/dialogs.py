"""Boxes over the body: what they say. Which keys act is the console's business (tui/app.py)."""

from dataclasses import dataclass

from tui.cells import cells
from tui.lines import Line, Span, fit, line, overlay, paint, text_of, wrap
from tui.screen import Ask, Choose, Hint, Screen, Show
from tui.view import View

_NARROWEST, _WIDEST = 40, 76
_AROUND = 4
"""Cells of the border and the blank inside it, at both sides."""
_LEAST = 3
"""Rows that text under a list leaves it."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """A box: text that is wrapped, or a list with one row selected."""

    title: str
    lines: tuple[str | Line, ...]
    keys: tuple[Hint, ...]
    selected: int | None = None
    """Which of `lines` the cursor is on, in a list."""
    top: int = 0
    """How many rows of long text are scrolled away."""
    below: tuple[str, ...] = ()
    """Text under a list, about the row that the cursor is on."""


def asked(ask: Ask, view: View, typed: str = "") -> Dialog:
    """What will be done, whom it hits, who asks. With `ask.typed`, the field to type it in."""
    words = view.words
    who = view.foreign(view.operator) or words("ask.nobody")
    host = view.foreign(view.live.host) if view.live is not None else view.foreign(view.url)
    lines: list[str | Line] = [*ask.lines, "", words("ask.who", who, host)]
    if ask.typed is not None:
        lines += ["", words("ask.type", ask.typed), line(Span(f"> {view.foreign(typed)}_", "bold"))]
    ready = ask.typed is None or typed == ask.typed
    yes: tuple[Hint, ...] = (("y" if ask.typed is None else "Enter", words("ask.yes")),)
    return Dialog(ask.title, tuple(lines), (*(yes if ready else ()), ("Esc", words("ask.no"))))


def choosing(choose: Choose, view: View, at: int) -> Dialog:
    """A list to pick from."""
    keys = (("Enter", view.words("choose.pick")), ("Esc", view.words("ask.no")))
    return Dialog(choose.title, tuple(label for _, label in choose.options), keys, selected=at)


def shown(show: Show, view: View, top: int = 0) -> Dialog:
    """Text that stands until it is closed."""
    return Dialog(show.title, show.lines, (("Enter", view.words("show.close")),), top=top)


def prompt(title: str, text: str, view: View, keys: tuple[Hint, ...]) -> Dialog:
    """One line to type in."""
    return Dialog(title, (line(Span(f"> {view.foreign(text)}_", "bold")),), keys)


def help_of(view: View, screen: Screen, top: int = 0) -> Dialog:
    """The keys of the screen, then those of the whole console."""
    words = view.words
    here = screen.hints(view) or [("-", words("help.none"))]
    lines: list[str | Line] = [line(Span(words("help.here"), "bold"))]
    lines += _keys([(view.keymap.shown(key), word) for key, word in here])
    lines += ["", line(Span(words("help.everywhere"), "bold"))]
    lines += _pairs([(view.keymap.shown(key), words(word)) for key, word in GLOBAL])
    lines += ["", words("help.signs")]
    title = words("help.title", words(f"screen.{screen.name}"))
    return Dialog(title, tuple(lines), (("Esc", words("show.close")),), top=top)


GLOBAL: tuple[Hint, ...] = (
    ("1-9", "key.screens"),
    ("0", "key.alarms"),
    ("Tab", "key.pane"),
    ("Enter", "key.enter"),
    ("Esc", "key.back"),
    ("/", "key.filter"),
    ("s", "key.sort"),
    ("c", "key.copy"),
    ("p", "key.freeze"),
    ("w", "key.write"),
    ("m", "key.seen"),
    ("z", "key.snooze"),
    ("^P", "key.palette"),
    ("?", "key.help"),
    ("q", "key.quit"),
)
"""Keys that mean the same on every screen, with the keys of their words."""


def _keys(hints: list[Hint]) -> list[Line]:
    return [line(Span(f"{key:<6}", "bold"), word) for key, word in hints]


def _pairs(hints: list[Hint]) -> list[Line]:
    """Two columns."""
    rows = _keys(hints)
    half = (len(rows) + 1) // 2
    right = [*rows[half:], ()][:half]
    return [(*fit(one, 34), *two) for one, two in zip(rows[:half], right, strict=True)]


def over(lines: list[Line], dialog: Dialog, width: int) -> list[Line]:
    """The box in the middle of the lines under it, which keep their size."""
    if width < 8 or len(lines) < 3:
        return lines
    size = min(_wanted(dialog), width - 2)
    box = _box(dialog, size, len(lines))
    top, left = (len(lines) - len(box)) // 2, (width - size) // 2
    drawn = list(lines)
    for at, row in enumerate(box):
        drawn[top + at] = overlay(lines[top + at], row, left)
    return drawn


def _wanted(dialog: Dialog) -> int:
    """As wide as its longest row, within bounds."""
    texts = (*dialog.lines, *dialog.below)
    parts = (line(part) if isinstance(part, str) else part for part in texts)
    rows = [cells(row) for part in parts for row in text_of(part).split("\n")]
    longest = max(*rows, cells(dialog.title) + 4, cells(_keys_text(dialog)), 0)
    return max(_NARROWEST, min(_WIDEST, longest + 5))


def _keys_text(dialog: Dialog) -> str:
    return "  ".join(f"{key} {word}" for key, word in dialog.keys)


def _box(dialog: Dialog, width: int, height: int) -> list[Line]:
    """The border is ASCII; text is wrapped and, where it is longer than the box, scrolled."""
    inner = width - _AROUND
    rows = _rows(dialog, inner)
    below = [line(row) for text in dialog.below for row in wrap(f"\n{text}", inner)]
    below = below[: max(0, height - 3 - _LEAST)]
    room = max(1, height - 3 - len(below))
    if len(rows) > room and dialog.selected is None:
        rows = [row for row in rows if text_of(row).strip()]
    if len(rows) > room:
        rows = _seen(rows, dialog, room)
    return [
        _border(dialog.title, width),
        *(_framed(row, inner) for row in (*rows, *below)),
        _framed(line(Span(_keys_text(dialog), "bold")), inner),
        _border("", width),
    ]


def room_in(view: View) -> int:
    """Cells that a row of a list has at most."""
    return min(_WIDEST, view.width - 2) - _AROUND - 1


def _rows(dialog: Dialog, inner: int) -> list[Line]:
    if dialog.selected is not None:
        return [_choice(at == dialog.selected, part, inner) for at, part in enumerate(dialog.lines)]
    rows: list[Line] = []
    for part in dialog.lines:
        rows += [line(row) for row in wrap(part, inner)] if isinstance(part, str) else [part]
    return rows


def _choice(on: bool, part: str | Line, inner: int) -> Line:
    label = line(part) if isinstance(part, str) else part
    row = fit((Span(">" if on else " "), *label), inner)
    return paint(row, "select") if on else row


def _seen(rows: list[Line], dialog: Dialog, room: int) -> list[Line]:
    """The part that fits: around the selected row, or from `top` on."""
    top = dialog.top if dialog.selected is None else dialog.selected - room // 2
    top = max(0, min(top, len(rows) - room))
    seen = rows[top : top + room]
    if top + room < len(rows) and dialog.selected is None:
        seen[-1] = line(Span("...", "dim"))
    return seen


def _framed(row: Line, inner: int) -> Line:
    return (Span("| "), *fit(row, inner), Span(" |"))


def _border(title: str, width: int) -> Line:
    if not title:
        return line("+" + "-" * (width - 2) + "+")
    name = Span(title, "bold")
    body = overlay(line("-" * (width - 2)), fit(line(" ", name, " "), _title_cells(name, width)), 1)
    return (Span("+"), *body, Span("+"))


def _title_cells(name: Span, width: int) -> int:
    return min(cells(name.text) + 2, width - 4)
