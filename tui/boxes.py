"""The boxes that stand over a screen while they are open, and what their keys do. Pure.

A box that can act, or shows what is shown once, is `guarded`: keys typed before it was drawn are
not for it, and the desk drops them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from appliance.frames import Alarm
from tui import figures, moments
from tui.dialogs import Dialog, asked, choosing, help_of, prompt, room_in, shown
from tui.frame import alarm_text, shortened
from tui.screen import Ask, Choose, Effect, Hint, Screen, Show
from tui.view import View

PAGE = 10
LONGEST = 400
"""Signs one line of input may have."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a key came to: the box that stands from now on (None: it closes), an effect."""

    box: "Box | None"
    effect: Effect | None = None
    run: Callable[[], None] | None = None
    """Something of the console itself, once the box is closed."""


class Box:
    """What is over the screen."""

    guarded = False

    def draw(self, view: View, screen: Screen) -> Dialog:
        raise NotImplementedError

    def press(self, key: str) -> Outcome:
        raise NotImplementedError


def edited(text: str, key: str) -> str:
    """The line of input after a key."""
    if key == "backspace":
        return text[:-1]
    if key == "ctrl+u":
        return ""
    key = " " if key == "space" else key
    return (text + key)[:LONGEST] if len(key) == 1 and key.isprintable() else text


@dataclass(frozen=True)
class AskBox(Box):
    """Only `y` acts, or Enter once the right text is typed; every other key leaves it undone."""

    ask: Ask
    typed: str = ""
    guarded = True

    def draw(self, view: View, screen: Screen) -> Dialog:
        return asked(self.ask, view, self.typed)

    def press(self, key: str) -> Outcome:
        if self.ask.typed is None:
            return Outcome(None, self.ask.effect if key == "y" else None)
        if key == "enter" and self.typed == self.ask.typed:
            return Outcome(None, self.ask.effect)
        if key == "escape":
            return Outcome(None)
        return Outcome(replace(self, typed=edited(self.typed, key)))


@dataclass(frozen=True)
class ConfirmBox(Box):
    """A question of the console itself: only `y` says yes."""

    title: str
    lines: tuple[str, ...]
    run: Callable[[], None]
    keys: tuple[Hint, ...]
    guarded = True

    def draw(self, view: View, screen: Screen) -> Dialog:
        return Dialog(self.title, self.lines, self.keys)

    def press(self, key: str) -> Outcome:
        return Outcome(None, run=self.run if key == "y" else None)


@dataclass(frozen=True)
class ShowBox(Box):
    """Text until Enter or Esc."""

    show: Show
    top: int = 0
    guarded = True

    def draw(self, view: View, screen: Screen) -> Dialog:
        return shown(self.show, view, self.top)

    def press(self, key: str) -> Outcome:
        if key in ("enter", "escape", "q"):
            return Outcome(None)
        return Outcome(replace(self, top=_scrolled(self.top, key)))


@dataclass(frozen=True)
class HelpBox(Box):
    """The keys of the screen under it."""

    top: int = 0

    def draw(self, view: View, screen: Screen) -> Dialog:
        return help_of(view, screen, self.top)

    def press(self, key: str) -> Outcome:
        if key in ("escape", "enter", "q", "?", "f1", "backspace"):
            return Outcome(None)
        return Outcome(replace(self, top=_scrolled(self.top, key)))


@dataclass(frozen=True)
class ChooseBox(Box):
    """A list to pick from."""

    choose: Choose
    at: int

    def draw(self, view: View, screen: Screen) -> Dialog:
        return choosing(self.choose, view, self.at)

    def press(self, key: str) -> Outcome:
        options = self.choose.options
        if key in ("escape", "q") or not options:
            return Outcome(None)
        if key == "enter":
            return Outcome(None, self.choose.then(options[self.at][0]))
        return Outcome(replace(self, at=_moved(self.at, key, len(options))))


@dataclass(frozen=True)
class PromptBox(Box):
    """One line of input; `then` gets it."""

    title: str
    then: Callable[[str], Effect | None]
    keys: tuple[Hint, ...]
    text: str = ""

    def draw(self, view: View, screen: Screen) -> Dialog:
        return prompt(self.title, self.text, view, self.keys)

    def press(self, key: str) -> Outcome:
        if key == "escape":
            return Outcome(None)
        if key == "enter":
            return Outcome(None, self.then(self.text.strip()))
        return Outcome(replace(self, text=edited(self.text, key)))


@dataclass(frozen=True, slots=True)
class Command:
    """A line of the palette."""

    label: str
    run: Callable[[], None]


@dataclass(frozen=True)
class PaletteBox(Box):
    """All commands; typing narrows them down."""

    title: str
    commands: Sequence[Command]
    keys: tuple[Hint, ...]
    text: str = ""
    at: int = 0

    def draw(self, view: View, screen: Screen) -> Dialog:
        labels = tuple(command.label for command in self._found) or ("-",)
        title = f"{self.title}: {view.foreign(self.text)}_"
        return Dialog(title, labels, self.keys, selected=self.at)

    @property
    def _found(self) -> list[Command]:
        words = self.text.lower().split()
        return [one for one in self.commands if all(word in one.label.lower() for word in words)]

    def press(self, key: str) -> Outcome:
        found = self._found
        if key in ("escape", "ctrl+p"):
            return Outcome(None)
        if key == "enter":
            return Outcome(None, run=found[self.at].run if found else None)
        if key in ("up", "down", "pageup", "pagedown", "home", "end"):
            return Outcome(replace(self, at=_moved(self.at, key, len(found))))
        return Outcome(replace(self, text=edited(self.text, key), at=0))


@dataclass(frozen=True)
class AlarmsBox(Box):
    """The alarms, worst first: Enter goes to its screen, `m` marks it seen, `z` snoozes it."""

    title: str
    alarms: Sequence[Alarm]
    keys: tuple[Hint, ...]
    none: str
    go: Callable[[Alarm], None]
    seen: Callable[[Alarm], None]
    snooze: Callable[[Alarm], None]
    at: int = 0

    def draw(self, view: View, screen: Screen) -> Dialog:
        lost = (view.problem,) if view.problem and view.stale else ()
        if not self.alarms:
            return Dialog(self.title, (self.none,), self.keys[-1:], below=lost)
        room = room_in(view)
        lines = tuple(
            shortened(f"[!{one.prio}] {'(m) ' if one.seen else ''}{alarm_text(view, one)}", room)
            for one in self.alarms
        )
        below = (_whole(self.alarms[self.at], view), *lost)
        return Dialog(self.title, lines, self.keys, selected=self.at, below=below)

    def press(self, key: str) -> Outcome:
        if key in ("escape", "q", "0") or not self.alarms:
            return Outcome(None)
        alarm = self.alarms[self.at]
        match key:
            case "enter":
                return Outcome(None, run=lambda: self.go(alarm))
            case "m":
                marked = [
                    msgspec.structs.replace(one, seen=True) if one is alarm else one
                    for one in self.alarms
                ]
                return Outcome(replace(self, alarms=marked), run=lambda: self.seen(alarm))
            case "z":
                return Outcome(None, run=lambda: self.snooze(alarm))
        return Outcome(replace(self, at=_moved(self.at, key, len(self.alarms))))


def _whole(alarm: Alarm, view: View) -> str:
    """The whole text, which says at its end what to do; then since when."""
    words = view.words
    now = view.live.at_ms if view.live is not None else alarm.since_ms
    age = figures.duration(max(0, now - alarm.since_ms))
    told = words("desk.since", moments.brief(alarm.since_ms, now), age)
    if alarm.snooze_ms:
        told += words("desk.snoozed_till", moments.brief(alarm.snooze_ms, now))
    return f"{alarm_text(view, alarm)}\n{told}"


def _moved(at: int, key: str, length: int) -> int:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -PAGE, "pagedown": PAGE}
    edges = {"home": -at, "g": -at, "end": length, "G": length}
    return max(0, min(length - 1, at + steps.get(key, edges.get(key, 0))))


def _scrolled(top: int, key: str) -> int:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -PAGE, "pagedown": PAGE, "space": PAGE}
    return 0 if key in ("home", "g") else max(0, top + steps.get(key, 0))
