"""What each page of the full-screen face looks like: the steps at the left, the page beside them,
two rows for notes and keys below."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui.assistant.checks import Wrong
from tui.assistant.missing import Row, checklist, todo
from tui.assistant.plan import Told
from tui.assistant.steps import STEPS, Field, foreseen
from tui.cells import cells, foreign, pad
from tui.lines import Line, Span, fill, fit, line, paint, safe, text_of, wrap
from tui.words import Words

if TYPE_CHECKING:
    from tui.assistant.walk import Walk

SMALLEST = (80, 24)
_LIST = 22
_LABEL = 13
_HEAD, _FOOT = 2, 3
"""Rows above and below the page."""


def draw(walk: "Walk") -> list[Line]:
    """Exactly as many lines, and as wide, as the terminal."""
    width, height = walk.size
    room = max(1, height - _HEAD - _FOOT)
    beside = 1 if walk.page == "secrets" else _LIST  # a key must stay in one row
    left = fill(_steps(walk), _LIST, room) if beside == _LIST else [line(" ")] * room
    right = fill(_page(walk, width - beside, room), width - beside, room)
    body = [(*one, *two) for one, two in zip(left, right, strict=True)]
    rows = [_header(walk, width), (), *body, *_foot(walk)]
    return [fit(safe(row), width) for row in fill(rows, width, height)]


def scrolls(walk: "Walk", by: int) -> bool:
    """Whether there is more of the page in that direction."""
    width, height = walk.size
    rows, _ = _content(walk, width - _LIST)
    room = height - _HEAD - _FOOT - 2
    return 0 <= walk.top + by <= len(rows) - room


def _header(walk: "Walk", width: int) -> Line:
    words = walk.words
    title = Span(f" {words('assist.title', clean(walk.facts.host, words))}", "bold")
    place = words("assist.place", walk.at + 1, len(STEPS)) if walk.page == "steps" else ""
    gap = width - cells(title.text) - cells(place) - 1
    return line(title, " " * max(1, gap), place)


def _steps(walk: "Walk") -> list[Line]:
    """Each step, with a mark where one has been."""
    rows = []
    for at, step in enumerate(STEPS):
        here = walk.page == "steps" and at == walk.at
        mark = ">" if here else "+" if at in walk.visited else " "
        text = pad(f" {mark}{at + 1} {walk.words(f'assist.step.{step.name}')}", _LIST - 2)
        rows.append(line(Span(text, "bold" if here else "plain"), "| "))
    height = max(0, walk.size[1] - _HEAD - _FOOT - len(rows))
    return rows + [line(" " * (_LIST - 2), "| ")] * height


# -- the page --------------------------------------------------------------------------------------


def _page(walk: "Walk", width: int, room: int) -> list[Line]:
    """What does not fit is scrolled so that the cursor is seen; the buttons are always at the
    bottom."""
    rows, focus = _content(walk, width)
    buttons = _buttons(walk)
    seen = room - 2 if buttons else room
    top = walk.top if focus < 0 else max(0, focus - seen + 1)
    top = max(0, min(top, len(rows) - seen))
    shown = fill(rows[top : top + seen], width, seen)
    more = Span(walk.words("assist.more") if top + seen < len(rows) else "", "dim")
    return [*shown, line(more), buttons] if buttons else shown


def _content(walk: "Walk", width: int) -> tuple[list[Line], int]:
    """The rows, and which one the cursor is on (-1: none of them)."""
    match walk.page:
        case "quit":
            return _leaving(walk, width), -1
        case "busy":
            return _busy(walk, width), -1
        case "secrets":
            return _secrets(walk, width), -1
        case "done":
            return _done(walk, width), -1
    if walk.step.name == "summary":
        return _summary(walk, width), -1
    return _questions(walk, width)


def _titled(title: str, why: str, width: int) -> list[Line]:
    return [line(Span(title, "bold")), (), *(line(row) for row in wrap(why, width - 1)), ()]


def _questions(walk: "Walk", width: int) -> tuple[list[Line], int]:
    words, name = walk.words, walk.step.name
    fields = walk.fields()
    why = f"assist.why.{name}" if fields else f"assist.why.no_{name}"
    rows = _titled(words(f"assist.step.{name}"), words(why), width)
    if name == "language" and not walk.facts.chinese:
        rows += [*(line(row) for row in wrap(words("assist.no_chinese"), width - 1)), ()]
    focus, place = -1, walk.place
    for field in fields:
        label = pad(words(f"assist.field.{field.name}"), _LABEL)
        if not field.options:
            here = place.field == field
            focus = len(rows) if here else focus
            rows.append((Span(f"{label} "), *_typed(walk, field, width - _LABEL - 2, here=here)))
            continue
        for at, option in enumerate(field.options):
            here = place.field == field and place.value == option.value
            focus = len(rows) if here else focus
            told = (clean(one, words) for one in option.told)
            mark = "(*)" if walk.answers[field.name] == option.value else "( )"
            for row, text in enumerate(wrap(words(option.word, *told), width - _LABEL - 6)):
                head = Span(f"{label if at == row == 0 else ' ' * _LABEL} ")
                shown = f"{mark if row == 0 else '   '} {text}"
                rows.append((head, Span(shown, "select" if here else "plain")))
        rows.append(())
    return rows, focus


def _typed(walk: "Walk", field: Field, width: int, *, here: bool) -> Line:
    """What is typed, on a line of its own; secrets as stars."""
    clear: Callable[[str], str] = _star if field.secret else lambda text: clean(text, walk.words)
    drawn = walk.typed(field).draw(clear, width, 1, focus=here)[0]
    used = len(text_of(drawn).rstrip())
    if here or used >= width - 1:
        return drawn
    return line(text_of(drawn)[:used], Span("." * (min(width, 24) - used), "dim"))


def _star(text: str) -> str:
    return "*" * len(text)


def _summary(walk: "Walk", width: int) -> list[Line]:
    """What Apply does, and what a box still lacks after it."""
    words = walk.words
    changes = [_told(told, words) for told in walk.plan.changes]
    rows = [line(Span(words("assist.step.summary"), "bold")), ()]
    rows.append(line(words("assist.changes" if changes else "assist.no_change")))
    rows += [line(f"  {row}") for text in changes for row in wrap(text, width - 3)]
    after = checklist(foreseen(walk.answers, walk.facts))
    lacks = [row for row in after if row.state == "todo"]
    rows += [(), line(words("assist.missing" if lacks else "assist.complete"))]
    return rows + [drawn for row in lacks for drawn in listed(row, words, width)]


def _done(walk: "Walk", width: int) -> list[Line]:
    """What failed comes first, then how the box stands now, then what was done."""
    words, outcome = walk.words, walk.outcome
    rows: list[Line] = []
    if outcome.failed is not None:
        why = words("assist.stopped", wrong_text(outcome.failed, words))
        rows += [*(line(Span(row, "alarm2")) for row in wrap(why, width - 1)), ()]
    now = checklist(walk.facts)
    rows.append(line(Span(words("assist.list", todo(now)), "bold")))
    rows += [drawn for row in now for drawn in listed(row, words, width)]
    rows += [(), line(Span(words("assist.done"), "bold"))]
    texts = (_told(told, words) for told in outcome.done)
    return rows + [line(f"  {row}") for text in texts for row in wrap(text, width - 3)]


def listed(row: Row, words: Words, width: int) -> list[Line]:
    """One line of the check-list, and below it how to do what is left."""
    state = pad(words(f"setup.state_{row.state}"), 5)
    name = pad(words(f"assist.step.{row.step}"), 15)
    head = f"{state} {name} {_told(row.detail, words)}"
    first = line(Span(head, "bold" if row.state == "todo" else "plain"))
    if row.how is None or (row.state == "ok" and row.step != "tls" and width < 100):
        return [fit(first, width)]
    how = wrap(_told(row.how, words), width - 9)
    marks = ("> ", *["  "] * len(how))
    below = (line(f"      {mark}{one}") for mark, one in zip(marks, how, strict=False))
    return [fit(first, width), *below]


def _secrets(walk: "Walk", width: int) -> list[Line]:
    words = walk.words
    rows = [line(Span(row, "bold")) for row in wrap(words("assist.secrets"), width - 1)]
    for name, scope, secret in walk.outcome.secrets:
        rows += [(), line(words("assist.secret", clean(name, words), scope)), ()]
        rows += [line(f"  {row}") for row in wrap(clean(secret, words), width - 3)]
    return rows


def _busy(walk: "Walk", width: int) -> list[Line]:
    words = walk.words
    rows = [line(Span(words("assist.applying"), "bold")), ()]
    for at, told in enumerate(walk.doing):
        mark = ">" if at == len(walk.doing) - 1 else "+"
        rows += [line(f" {mark} {row}") for row in wrap(_told(told, words), width - 4)]
    return rows


def _leaving(walk: "Walk", width: int) -> list[Line]:
    words = walk.words
    rows = _titled(words("assist.quit.title"), words("assist.quit.text"), width)
    if not walk.facts.password:
        rows += [line(Span(row, "alarm2")) for row in wrap(words("assist.locked"), width - 1)]
    return rows


# -- below it --------------------------------------------------------------------------------------


def _buttons(walk: "Walk") -> Line:
    spans: list[Span] = []
    for name in walk.buttons():
        here = walk.place.button == name
        spans += [Span(f"[ {walk.words(f'assist.button.{name}')} ]", "select" if here else "plain")]
        spans.append(Span("  "))
    return tuple(spans)


def _foot(walk: "Walk") -> Sequence[Line]:
    """A note on the field, what is wrong, and the keys."""
    words, place = walk.words, walk.place
    note = ""
    if place.types and place.field is not None:
        note = words.or_else(f"assist.takes.{place.field.name}", "")
    locked = not walk.facts.password and "finish" in walk.buttons() and walk.page != "quit"
    why = wrong_text(walk.wrong, words) if walk.wrong else words("assist.locked") if locked else ""
    below = [line(Span(f" {row}", "alarm2")) for row in wrap(why, walk.size[0] - 2)[:2]]
    below = below if why else [paint(line(f" {note}"), "dim")]
    return (*[()] * (2 - len(below)), *below, _keys(walk))


def _keys(walk: "Walk") -> Line:
    if walk.page == "busy":
        return ()
    hints = [("y", "noted")] if walk.page == "secrets" else [("Tab", "move"), ("Enter", "go")]
    if walk.page != "secrets" and any(field.options for field in walk.fields()):
        hints.insert(1, ("Space", "choose"))
    if walk.page in ("done", "steps") and not walk.fields():
        hints.append(("Up Down", "scroll"))
    if walk.page == "steps":
        hints.append(("PgUp PgDn", "steps"))
    if walk.page not in ("secrets", "quit"):
        hints.append(("^Q", "quit"))
    spans = [Span(" ")]
    for key, word in hints:
        spans += [Span(key, "bold"), Span(f" {walk.words(f'assist.key.{word}')}  ")]
    return tuple(spans)


# -- words -----------------------------------------------------------------------------------------


def clean(text: str, words: Words) -> str:
    """Text of others as text (tui/cells.py)."""
    return foreign(text, letters=words.lang == "en")


def _told(told: Told, words: Words) -> str:
    return words(told[0], *(clean(one, words) for one in told[1]))


def wrong_text(wrong: Wrong, words: Words) -> str:
    """In a sentence."""
    return _told((wrong.key, wrong.told), words)
