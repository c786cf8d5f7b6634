"""Screen 7: the engine, the process around it, the settings in effect, and the log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlencode

from tui.field import Field
from tui.lines import Line, Span, beside, blank, columns, fill, line, paint
from tui.screen import Ask, Call, Effect, Hint, Query, Screen, Show, Table, Tell
from tui.screens.engine_facts import facts, stuck
from tui.screens.engine_log import LEVELS, LogLine, line_of, lines_in, whole
from tui.view import View

_WIDE = 120
"""Cells from which settings and log stand side by side."""
_SETTINGS = 54
"""Cells of the settings then."""
_FOLLOWED, _KEPT = 200, 1000
"""Lines of the log that are asked for: while it is followed, and once it is not."""
_REASON = 200
"""Signs that the box takes as a reason."""

Setting = tuple[str, str]


class Engine(Screen):
    number: ClassVar[int] = 7
    name: ClassVar[str] = "engine"
    table: Table[Any]

    def __init__(self) -> None:
        self.settings: Table[Setting] = Table(
            lambda row: row[0], lambda row: {"setting": row[0], "value": row[1]}
        )
        self.log: Table[LogLine] = Table(lambda row: str(row.seq))
        self.table = self.log
        self.following = True
        self.level = "info"
        self._filter = ""
        self._error = ""
        self._reason: Field | None = None
        """Why the engine is to be restarted, while it is typed."""

    @property
    def typing(self) -> bool:
        return self._reason is not None

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        if view.state is None:
            return fill([line(f" {_unknown(view)}")], view.width, view.body_height)
        self.settings.show(tuple(view.state.settings.items()))
        above = [*([()] if view.height >= 20 else []), *facts(view, view.width), ()]
        foot = self._asked(view)
        room = view.body_height - len(above) - len(foot)
        panes = self._wide(view, room) if view.width >= _WIDE else self._narrow(view, room)
        lines = fill([*above, *panes, *foot], view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _narrow(self, view: View, room: int) -> list[Line]:
        """The log takes what is left below a few settings."""
        upper = max(2, room // 3)
        if room < 7:
            pane = self._settings if self.table is self.settings else self._log
            return pane(view, max(0, room))
        return [*self._settings(view, upper), blank(view.width), *self._log(view, room - upper - 1)]

    def _wide(self, view: View, room: int) -> list[Line]:
        left = self._settings(replace(view, width=_SETTINGS), room)
        right = self._log(replace(view, width=view.width - _SETTINGS - 2), room)
        return beside(left, right, _SETTINGS)

    def _settings(self, view: View, room: int) -> list[Line]:
        """Head and rows in `room` lines."""
        name = max((len(row[0]) for row in self.settings.rows), default=8)
        widths = (min(name, view.width // 2), max(1, view.width - min(name, view.width // 2) - 3))
        titles = (view.words("engine.setting"), view.words("engine.now"))
        head = (Span(" "), *paint(columns(titles, widths, "<<"), "bold"))
        rows = self._rows(self.settings, view, room - 1, _setting(view, widths))
        return fill([head, *rows], view.width, room)

    def _log(self, view: View, room: int) -> list[Line]:
        words = view.words
        follows = words("engine.following" if self.following else "engine.standing")
        text = words("engine.log", self.level, view.foreign(self._filter) or "-", follows)
        head = line(" ", Span(text, "bold"))
        if not self.log.rows:
            why = view.foreign(self._error) or words("engine.no_lines")
            return fill([head, line(f" {why}")], view.width, room)
        if self.following:
            self.log.move(len(self.log.rows) - 1)
        rows = self._rows(self.log, view, room - 1, lambda row: line_of(row, view))
        return fill([head, *rows], view.width, room)

    def _rows(
        self, table: "Table[Any]", view: View, room: int, row: Callable[[Any], Line]
    ) -> list[Line]:
        return table.draw(view.width, max(0, room), row, focus=table is self.table)

    def _asked(self, view: View) -> list[Line]:
        """The reason for a restart, while it is asked for."""
        if self._reason is None:
            return []
        field = self._reason.draw(view.foreign, view.width - 1, 1)[0]
        return [
            blank(view.width),
            line(Span(view.words("engine.why"), "bold")),
            (Span(">"), *field),
        ]

    def hints(self, view: View) -> list[Hint]:
        words, state = view.words, view.live.state if view.live is not None else ""
        if self._reason is not None:
            return [("Enter", words("engine.hint_go_on")), ("Esc", words("engine.hint_leave"))]
        return [
            ("D", words("key.resume" if state == "DRAINING" else "key.drain")),
            ("H", words("key.release" if state == "HOLDING" else "key.hold")),
            ("R", words("engine.hint_restart")),
            ("f", words("key.follow")),
            ("l", words("engine.hint_level")),
            ("Tab", words("key.pane")),
        ]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        """`D` and `H` mean the same on all screens: the console has them."""
        if self._reason is not None:
            return self._type(self._reason, key, view)
        if key == "R":
            return self._restart(view)
        if key == "enter":
            return self._detail(view)
        if key == "tab":
            self.table = self.settings if self.table is self.log else self.log
        elif key == "f":
            self.following = not self.following
        elif key == "l":
            self.level = LEVELS[(LEVELS.index(self.level) + 1) % len(LEVELS)]
        elif self.table.press(key) and self.table is self.log:
            # Whoever goes up wants to read; whoever reaches the end, what comes.
            self.following = self.log.at == len(self.log.rows) - 1
        return None

    def paste(self, text: str, view: View) -> None:
        if self._reason is not None:
            self._reason.insert(text)

    def _type(self, field: Field, key: str, view: View) -> Effect | None:
        if key == "escape":
            self._reason = None
        elif key == "enter":
            self._reason = None
            return _ask(view, field.text.strip())
        else:
            field.press(key)
        return None

    def _restart(self, view: View) -> Effect | None:
        """An engine that is stuck is its own reason; for one that works it is asked for."""
        why = stuck(view)
        if why:
            return _ask(view, why)
        self._reason = Field(most=_REASON)
        return None

    def _detail(self, view: View) -> Effect | None:
        row: Any = self.table.current
        if row is None:
            return Tell(view.words("engine.no_lines"))
        if isinstance(row, LogLine):
            return Show(view.words("engine.line"), whole(row, view))
        value = f"{view.foreign(row[0])} = {view.foreign(row[1])}"
        return Show(view.words("engine.setting"), (value, "", view.words("engine.change")))

    # -- the log -----------------------------------------------------------------------------------

    def find(self, text: str) -> None:
        """`/` filters the pane that has the focus; the log is filtered by the box."""
        if self.table is self.settings:
            self.settings.find(text)
        else:
            self._filter = text

    @property
    def found(self) -> str:
        return self.settings.filter if self.table is self.settings else self._filter

    def wants(self, view: View) -> tuple[Query, ...]:
        return (self._query(),)

    def _query(self) -> Query:
        most = _FOLLOWED if self.following else _KEPT
        asked = urlencode({"level": self.level, "filter": self._filter, "limit": most})
        return Query(f"/admin/log?{asked}", 1.0 if self.following else 0.0)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        if query != self._query():
            return  # the answer to an earlier filter
        self._error = error or ""
        if error is None:
            self.log.show(lines_in(data))


def _ask(view: View, reason: str) -> Ask:
    """The dialog before a restart. The box keeps the reason in the ledger."""
    words, live = view.words, view.live
    running, waiting = (live.running, live.waiting) if live is not None else ("?", "?")
    told = words("engine.reason", view.foreign(reason)) if reason else words("engine.no_reason")
    body = {"reason": reason} if reason else None
    done = words("engine.restarted")
    call = Call("POST", "/admin/engine/restart", body, done=done, idempotent=False)
    whom = words("engine.restart_hits", running, waiting)
    return Ask(words("engine.restart"), (whom, told), call)


def _setting(view: View, widths: tuple[int, int]) -> Callable[[Setting], Line]:
    def row(setting: Setting) -> Line:
        return columns((view.foreign(setting[0]), view.foreign(setting[1])), widths, "<<")

    return row


def _unknown(view: View) -> str:
    return view.words("frame.no_data", view.foreign(view.url))
