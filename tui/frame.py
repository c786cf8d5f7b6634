"""The whole terminal: header, the screen's body, the worst alarm, the keys, and a dialog over it.

Row 1 says how old everything is before it says anything else. Rows 1, 23 and 24 stay when the
terminal is too small for a body.
"""

import re
from collections.abc import Sequence
from typing import Literal

from appliance.frames import Alarm
from tui import figures
from tui.cells import cells, clip
from tui.dialogs import Dialog, over
from tui.lines import Line, Role, Span, blank, fill, fit, line, safe, text_of, width_of, wrap
from tui.screen import Hint, Screen
from tui.view import View

_ENDS = (". ", "? ", ", ", "; ", " (", "。", "，", "；", "（")
"""Of what may be cut off whole."""
_ARGS = 5
"""What an alarm has of its own at most."""
_ALARM: dict[int, Role] = {1: "alarm1", 2: "alarm2", 3: "alarm3"}
_Name = Literal["here", "screen", "short", "bare"]
"""How much of a screen's name row 1 has."""
_NAMES_FROM = 110
"""Cells from which row 1 has the screens' whole names."""


def whole(
    view: View, screen: Screen, screens: Sequence[Screen], dialog: Dialog | None = None
) -> list[Line]:
    """Exactly `view.height` lines of `view.width` cells."""
    top, alarm, keys = header(view, screen, screens), alarm_row(view), key_row(view, screen, dialog)
    if view.height < 3:
        return [fit(safe(row), view.width) for row in (top, alarm)[: view.height]]
    body = [blank(view.width)] * view.body_height if view.tiny else _body(view, screen)
    if dialog is not None:
        body = over(body, dialog, view.width)
    return [fit(safe(row), view.width) for row in (top, *body, alarm, keys)]


def _body(view: View, screen: Screen) -> list[Line]:
    if view.live is None and view.problem:
        return fill((line(row) for row in wrap(f"\n{view.problem}", view.width)), *_size(view))
    return fill(screen.body(view), *_size(view))


def _size(view: View) -> tuple[int, int]:
    return view.width, view.body_height


def header(view: View, screen: Screen, screens: Sequence[Screen]) -> Line:
    """Row 1. What does not fit is left out: names, then the operator, then what other screens are
    called, then that there are any."""
    first = (*age(view), *_where(view), Span("  "))
    who = _who(view)
    here = line(_screen_name(view, screen, "here"))
    short, bare = (_screen_list(view, screen, screens, kind) for kind in ("short", "bare"))
    tries = [(short, who), (short, ""), (bare, who), (bare, ""), (here, who), (here, "")]
    if view.width >= _NAMES_FROM:
        tries.insert(0, (_screen_list(view, screen, screens, "screen"), who))
    for names, name in tries:
        row = (*first, *names)
        left = view.width - width_of(row) - (cells(name) + 2 if name else 0)
        if left >= 0:
            return (*row, Span(" " * (left + 2) + name)) if name else fit(row, view.width)
    return fit((*first, *here), view.width)


def age(view: View) -> Line:
    """How old what is shown is, or how long nothing came."""
    words = view.words
    if view.link == "connecting":
        return line(Span(words("frame.connecting"), "bold"))
    if view.link == "frozen":
        return line(Span(words("frame.frozen", figures.age(view.age_s)), "bold"))
    if view.link == "lost":
        text = words("frame.lost", figures.age(view.age_s if view.lost_s is None else view.lost_s))
        if view.retry_s is not None:
            text += ", " + words("frame.retry", f"{max(0.0, view.retry_s):.0f} s")
        return line(Span(text, "alarm2"))
    if view.link == "late":
        return line(Span(words("frame.late", figures.age(view.age_s)), "bold"))
    return line(words("frame.age", figures.age(view.age_s)))


def _where(view: View) -> Line:
    """Host and state, and the parts that are not ok."""
    if view.live is None:
        return line(f"  {clip(view.foreign(view.url), 40)}")
    live = view.live
    state = view.words.or_else(f"state.{live.state}", view.foreign(live.state))
    role: Role = "dim" if view.stale else "plain" if live.state == "SERVING" else "bold"
    parts = f" {degraded(view)}" if live.degraded else ""
    return line(f"  {clip(view.foreign(live.host), 24)} ", Span(f"{state}{parts}", role))


def degraded(view: View) -> str:
    """The parts that do not run as they should, in the console's language."""
    names = view.live.degraded.split(",") if view.live is not None else []
    return ",".join(
        view.words.or_else(f"part.{name.strip()}", view.foreign(name.strip())) for name in names
    )


def _who(view: View) -> str:
    name = clip(view.foreign(view.operator), 24)
    return f"{name} {view.words('frame.read_only')}".strip() if view.read_only else name


def _screen_list(view: View, here: Screen, screens: Sequence[Screen], kind: _Name) -> Line:
    spans: list[Span] = []
    for screen in screens:
        current = screen.number == here.number
        spans += [_screen_name(view, screen, "here" if current else kind), Span(" ")]
    return tuple(spans[:-1])


def _screen_name(view: View, screen: Screen, kind: _Name) -> Span:
    number, words = screen.number, view.words
    match kind:
        case "here":
            return Span(f"{number}>{words(f'screen.{screen.name}')}", "bold")
        case "screen":
            return Span(f"{number} {words(f'screen.{screen.name}')}")
        case "short":
            return Span(f"{number}{words(f'short.{screen.name}')}")
    return Span(str(number))


def alarm_row(view: View) -> Line:
    """Row 23: what an action came to, why the link is down, or the worst unseen alarm."""
    if view.note:
        return fit(line(Span(shortened(view.note, view.width), "bold")), view.width)
    if view.problem and view.link in ("lost", "connecting"):
        return fit(line(Span(shortened(view.problem, view.width), "alarm2")), view.width)
    worst = view.live.worst if view.live is not None else None
    return blank(view.width) if worst is None or worst.seen else _alarm(view, worst)


def _alarm(view: View, worst: Alarm) -> Line:
    live = view.live
    others = live.alarms_1 + live.alarms_2 + live.alarms_3 - 1 if live is not None else 0
    more = "  " + view.words("frame.more", others) if others > 0 else ""
    text = f"[!{worst.prio}] {alarm_text(view, worst)}"
    text = shortened(text, view.width - cells(more))
    row = line(Span(text, _ALARM.get(worst.prio, "bold")), more)
    return fit(row, view.width)


def shortened(text: str, width: int) -> str:
    """In `width` cells: what it says first, and its last sentence, which tells the key or the
    remedy; what was left out between them shows as two dots."""
    if cells(text) <= width:
        return text
    remedy = _last_sentence(text)
    room = width - cells(remedy) - 3
    if remedy and room >= width // 3:
        return f"{_parts(text, room)}.. {remedy}"
    return f"{_parts(text, width - 2)}.."


def _last_sentence(text: str) -> str:
    """Empty where there is only one."""
    ends = [found.end() for found in re.finditer(r"[.?] |[。？](?!$)", text)]
    return text[ends[-1] :] if ends else ""


def _parts(text: str, width: int) -> str:
    """Whole parts of it where that is most of what fits; else whole words, if that is."""
    kept = clip(text, width)
    parts = (max(kept.rfind(sign) for sign in _ENDS), kept.rfind(" "))
    part = next((at for at in parts if at > len(kept) // 2), len(kept))
    return kept[:part].rstrip(" ,:;，：；")


def alarm_text(view: View, alarm: Alarm) -> str:
    """In English as the box said it; in other languages by its code and arguments."""
    words, args = view.words, [view.foreign(part) for part in alarm.args]
    if words.lang == "en" or not words.has(f"alarm.{alarm.code}"):
        return view.foreign(alarm.text)
    if alarm.id.endswith(":many") and args:
        return words("alarm.many", args[0], _by_code(view, alarm, args[1:]))
    return _by_code(view, alarm, args)


def _by_code(view: View, alarm: Alarm, args: Sequence[str]) -> str:
    """Names of parts are translated too."""
    words, key = view.words, f"alarm.{alarm.code}"
    told = [words.or_else(f"part.{arg}", arg) for arg in args]
    told += [figures.UNKNOWN] * _ARGS  # an older box tells less
    bare = not all(args) and words.has(f"{key}.bare")
    return words(f"{key}.bare" if bare else key, *told, screen=alarm.screen)


def key_row(view: View, screen: Screen, dialog: Dialog | None = None) -> Line:
    """Row 24. Capitals are left out while they may not act."""
    if view.tiny and dialog is None:
        note = view.words("frame.too_small", view.width, view.height)
        return fit(line(note), view.width)
    if dialog is not None:
        hints, last = list(dialog.keys), []
    else:
        own = [(view.keymap.shown(key), word) for key, word in _allowed(view, screen.hints(view))]
        # Where text is typed, `?` is a sign of it.
        key = "F1" if screen.typing else "?"
        hints, last = own, [(view.keymap.shown(key), view.words("key.help"))]
    while hints and _key_cells([*hints, *last]) > view.width:
        hints.pop()
    return fit(_key_line([*hints, *last]), view.width)


def _allowed(view: View, hints: Sequence[Hint]) -> list[Hint]:
    return [hint for hint in hints if view.acts or not (len(hint[0]) == 1 and hint[0].isupper())]


def _key_line(hints: Sequence[Hint]) -> Line:
    spans: list[Span] = []
    for key, word in hints:
        spans += [Span(key, "bold"), Span(f" {word}  ")]
    return tuple(spans)


def _key_cells(hints: Sequence[Hint]) -> int:
    return cells(text_of(_key_line(hints)).rstrip())
