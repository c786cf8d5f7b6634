"""Screen 9: what makes a box fit for its work, step by step, and how to do what is left."""

from typing import ClassVar

from appliance.frames import Step
from tui import figures
from tui.cells import cells
from tui.lines import Line, columns, fill, line, paint, wrap
from tui.screen import Effect, Go, Hint, Screen, Show, Table, Tell
from tui.view import View

LEADS = {"engine": 7, "app_key": 4, "ledger": 5, "board": 6, "forecaster": 3}
"""Steps that a screen of the console is for."""
COMMANDS = {
    "model": ("[model] path = FILE.gguf", "steelyard selftest --model FILE.gguf"),
    "admin_key": ("steelyard keys create NAME --scope admin",),
    "network": ("[server] host = 0.0.0.0", "steelyard config check FILE"),
    "tls": ("steelyard tls show", "steelyard tls export-ca FILE", "steelyard tls renew"),
}
"""Steps that are done on the box, and with what."""
_STATE, _STEP = 5, 13
_BELOW = 4
"""Rows below the list."""


class Setup(Screen):
    number: ClassVar[int] = 9
    name: ClassVar[str] = "setup"

    def __init__(self) -> None:
        self.steps: Table[Step] = Table(
            lambda step: step.step,
            lambda step: {"step": step.step, "state": step.state, "detail": step.detail},
        )
        self.table = self.steps
        self._placed = False

    @staticmethod
    def opens(view: View) -> bool:
        """Whether there is something left to do, so that a console opens here."""
        return view.state is not None and any(step.state == "todo" for step in view.state.setup)

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        if view.state is None:
            empty = view.words("frame.no_data", view.foreign(view.url))
            return fill([line(f" {empty}")], view.width, view.body_height)
        self._show(view)
        room = view.body_height - 3 - _BELOW
        rows = max(1, min(len(self.steps.rows), room))
        lines = [line(_summary(view)), (), *self._list(view, rows), (), *self._below(view)]
        lines = fill(lines, view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _show(self, view: View) -> None:
        self.steps.show(view.state.setup if view.state is not None else ())
        if not self._placed:
            # Once, on what is to be done first; from then on it stays on its step.
            left = (step.step for step in self.steps.rows if step.state == "todo")
            self._placed = self.steps.select(next(left, ""))

    def _list(self, view: View, rows: int) -> list[Line]:
        if not self.steps.rows:
            return [line(f" {view.words('setup.none')}")]
        places = {step.step: at for at, step in enumerate(self.steps.rows, start=1)}
        return self.steps.draw(view.width, rows, lambda step: _row(step, places[step.step], view))

    def _below(self, view: View) -> list[Line]:
        """What the step under the cursor is for, or the whole of what the box says where its row
        has no room for that; and what Enter does."""
        step = self.steps.current
        if step is None:
            return []
        words = view.words
        why = detail = view.foreign(step.detail)
        if cells(detail) <= _room(view):
            why = words.or_else(f"setup.{step.step}_why", detail)
        does = _does(step, view)
        return [line(row) for text in (why, does) for row in wrap(text, view.width - 1)][:_BELOW]

    def hints(self, view: View) -> list[Hint]:
        return [("Enter", view.words("setup.hint_do")), ("v", view.words("setup.hint_check"))]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        self._show(view)
        if key == "enter":
            return self._do(view)
        if key == "v":
            return Tell(_checked(view))
        self.steps.press(key)
        return None

    def _do(self, view: View) -> Effect:
        """To the screen that does the step, or the commands that do it."""
        step, words = self.steps.current, view.words
        if step is None:
            return Tell(words("setup.none"))
        if step.step in LEADS:
            return Go(LEADS[step.step])
        detail = words("setup.says", view.foreign(step.detail))
        commands = COMMANDS.get(step.step)
        if commands is None:
            return Show(view.foreign(step.step), (detail,))
        how = words(f"setup.{step.step}_how")
        return Show(_name(step, view), (detail, "", how, "", *(f"  {one}" for one in commands)))


def _row(step: Step, place: int, view: View) -> Line:
    """Its place, state, name, and what the box says of it."""
    state = view.words.or_else(f"setup.state_{step.state}", view.foreign(step.state))
    detail = view.foreign(step.detail)
    widths = (2, _STATE, _STEP, _room(view))
    row = columns((str(place), state, _name(step, view), detail), widths, "><<<")
    return paint(row, "bold") if step.state == "todo" else row


def _room(view: View) -> int:
    """Cells for what the box says."""
    return max(1, view.width - _STATE - _STEP - 7)


def _name(step: Step, view: View) -> str:
    return view.words.or_else(f"setup.{step.step}", view.foreign(step.step))


def _summary(view: View) -> str:
    steps = view.state.setup if view.state is not None else ()
    done = sum(step.state == "ok" for step in steps)
    left = sum(step.state == "todo" for step in steps)
    return view.words("setup.summary", done, len(steps), left)


def _does(step: Step, view: View) -> str:
    words = view.words
    if step.step in LEADS:
        number = LEADS[step.step]
        screen = words(f"screen.{_SCREENS[number]}")
        return words("setup.leads", number, screen)
    return words("setup.shows" if step.step in COMMANDS else "setup.tells")


def _checked(view: View) -> str:
    """The box checks all steps each second: how old that is, and what came of it."""
    if view.state is None or view.age_s is None:
        return view.words("setup.not_checked")
    return view.words("setup.checked", figures.age(view.age_s), _summary(view))


_SCREENS = {3: "calibration", 4: "accounts", 5: "audit", 6: "board", 7: "engine"}
