"""Screen 5: whether the ledger can be believed, who disagreed with it, and who did what."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from tui.grid import Grid
from tui.lines import Line, Span, beside, blank, fill, line, paint, wrap
from tui.screen import Call, Copy, Effect, Hint, Query, Screen, Show, Table, Tell
from tui.screens import audit_detail as detail
from tui.screens import audit_rows as columns
from tui.screens.answers import UNREADABLE
from tui.screens.audit_replay import replay_ask, replay_told
from tui.screens.audit_rows import Action, Conflict, Fault, Replay, Verification
from tui.screens.audit_status import percent_of, status
from tui.view import View

CONFLICTS = Query("/admin/audit/conflicts", 5.0)
ACTIONS = Query("/admin/actions?limit=200", 5.0)
KEYS = Query("/admin/keys", 10.0)
VERIFY = "/admin/audit/ledger/verify"
WIDE = 120
LEFT = 80
_FEW = 5
"""Rows of the upper list, with its head, while the lower one has the focus."""
_LOOKED_UP = 10
"""Conflicts whose replays are asked for."""


class Audit(Screen):
    number: ClassVar[int] = 5
    name: ClassVar[str] = "audit"

    def __init__(self) -> None:
        self.conflicts: Table[Conflict] = Table(
            lambda row: str(row.seq), columns.conflict_fields, {"newest": None}
        )
        self.actions: Table[Action] = Table(
            lambda row: str(row.seq), columns.action_fields, columns.ACTION_ORDERS
        )
        self.faults: Table[Fault] = Table(
            lambda row: f"{row.what} {row.seq} {row.segment} {row.detail}", columns.fault_fields
        )
        self.table: Table[Any] | None = self.conflicts
        self.verification: Verification | None = None
        self._errors: dict[str, str] = {}
        self._names: Mapping[str, str] = {}
        self._replays: dict[tuple[str, int], Replay] = {}
        self._looked: set[str] = set()
        self._view = View()
        """The last one drawn: answers come without."""

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        self._view = view
        wide = view.width >= WIDE
        pane = replace(view, width=LEFT) if wide else view
        above = status(view, self.verification, self._errors.get(VERIFY, ""))
        head = above if view.height < 20 else [blank(view.width), *above]
        room = view.body_height - len(head) - 1
        lists = self._lists(pane, room)
        lines = beside(lists, self._beside(view), LEFT) if wide else lists
        drawn = fill([*head, blank(view.width), *lines], view.width, view.body_height)
        return [paint(row, "dim") for row in drawn] if view.stale else drawn

    def _lists(self, view: View, room: int) -> list[Line]:
        """Two lists; the one with the focus gets what it needs first."""
        above = self.faults if self._shows_faults else self.conflicts
        want = max(2, len(above.rows) + 1)
        height = min(want, _FEW if self.table is self.actions else max(2, room - 6))
        upper = self._list(above, view, height)
        return [*upper, blank(view.width), *self._list(self.actions, view, room - height - 1)]

    @property
    def _shows_faults(self) -> bool:
        return self.table is self.faults or (
            bool(self.faults.total) and self.table is not self.conflicts
        )

    def _list(self, table: "Table[Any]", view: View, room: int) -> list[Line]:
        grid = self._grid(table, view.width - 3)
        if not table.rows:
            texts = wrap(self._why_empty(table, view), view.width - 1)
            return fill([grid.head(view), *(line(f" {text}") for text in texts)], view.width, room)
        focus = table is self.table
        rows = table.draw(
            view.width, max(1, room - 1), lambda row: grid.row(row, view), focus=focus
        )
        return [grid.head(view), *(rows if focus else map(_unmarked, rows))]

    def _grid(self, table: "Table[Any]", width: int) -> "Grid[Any]":
        if table is self.actions:
            return Grid(columns.action_columns(self._names), width)
        if table is self.faults:
            return Grid(columns.FAULTS, width)
        return Grid(columns.conflict_columns(self._names, self._result), width)

    def _result(self, row: Conflict, view: View) -> str:
        return detail.result_of(row, self._replays.get((row.id, row.choice)), view)

    def _why_empty(self, table: "Table[Any]", view: View) -> str:
        words = view.words
        if table.total:
            return words("audit.nomatch")
        query = ACTIONS if table is self.actions else CONFLICTS
        error = self._errors.get(query.path)
        if error:
            return words("audit.failed", error=view.foreign(error))
        if error is None:
            return view.reading("audit.reading")
        return words(f"audit.none.{'actions' if table is self.actions else 'conflicts'}")

    def _beside(self, view: View) -> list[Line]:
        width = view.width - LEFT - 2
        return [line(row) for text in self._told(view) for row in wrap(text, width)]

    def _told(self, view: View) -> list[str]:
        """All of the row under the cursor."""
        row = self.table.current if self.table is not None else None
        if isinstance(row, Conflict):
            return detail.of_conflict(row, self._names, self._replay_of(row), view)
        if isinstance(row, Action):
            return detail.of_action(row, self._names, view)
        return detail.of_fault(row, view) if isinstance(row, Fault) else []

    def _replay_of(self, row: Conflict) -> Replay | None:
        return self._replays.get((row.id, row.choice))

    def hints(self, view: View) -> list[Hint]:
        panes = {"faults": self.faults, "conflicts": self.conflicts, "actions": self.actions}
        then = next(name for name, table in panes.items() if table is self._next())
        hints = (("v", "verify"), ("N", "replay"), ("w", "bundle"), ("Enter", "detail"))
        return [(key, view.words(f"audit.hint.{name}")) for key, name in (*hints, ("Tab", then))]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        self._view = view
        match key:
            case "v":
                return self._verify(view)
            case "N":
                return self._replay(view)
            case "w":
                return Tell(view.words("audit.bundle"))
            case "enter":
                return self._show(view)
            case "c":
                return self._copy()
        self._walk(key)
        return None

    def _walk(self, key: str) -> None:
        assert self.table is not None
        if key == "tab":
            self.table = self._next()
        elif key == "s":
            self.table.next_order()
        elif key in ("escape", "backspace"):
            self.table.find("")
        else:
            self.table.press(key)

    def _next(self) -> "Table[Any]":
        """Faults first, where there are any."""
        panes: list[Table[Any]] = [self.conflicts, self.actions]
        if self.faults.total:
            panes.insert(0, self.faults)
        at = next((at for at, pane in enumerate(panes) if pane is self.table), -1)
        return panes[(at + 1) % len(panes)]

    def _verify(self, view: View) -> Effect:
        """It only reads, so nobody is asked."""
        found = self.verification
        if found is not None and found.state == "running":
            return Tell(view.words("audit.verify.runs", percent=percent_of(found)))
        return Call("POST", VERIFY, done=view.words("audit.verify.started"))

    def _replay(self, view: View) -> Effect:
        row = self.conflicts.current
        if self.table is not self.conflicts or row is None:
            return Tell(view.words("audit.replay.none"))
        return replay_ask(row.id, row.choice, view)

    def _show(self, view: View) -> Effect | None:
        told = self._told(view)
        return Show(told[0], tuple(told[1:])) if told else None

    def _copy(self) -> Effect | None:
        """What names the row elsewhere: a request's id, an entry's hash."""
        row = self.table.current if self.table is not None else None
        if isinstance(row, Conflict):
            return Copy(row.id)
        return Copy(row.hash) if isinstance(row, Action) else None

    # -- REST --------------------------------------------------------------------------------------

    def wants(self, view: View) -> tuple[Query, ...]:
        running = self.verification is not None and self.verification.state == "running"
        verify = Query(VERIFY, 1.0 if running else 5.0)
        return (verify, CONFLICTS, ACTIONS, KEYS, *self._lookups())

    def _lookups(self) -> tuple[Query, ...]:
        """Replays of the newest conflicts once, and of the one under the cursor again and again."""
        names = dict.fromkeys(row.id for row in self.conflicts.rows[:_LOOKED_UP])
        once = [Query(_audit(name), 0) for name in names if name not in self._looked]
        row = self.conflicts.current
        return (*once, Query(_audit(row.id), 5.0)) if row is not None else tuple(once)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        try:
            self._receive(query, data, error)
        except UNREADABLE:
            self._errors[query.path] = self._view.words("audit.unreadable")

    def _receive(self, query: Query, data: Any, error: str | None) -> None:
        path = query.path
        if path.startswith("/v1/audit/"):
            self._looked.update(row.id for row in self.conflicts.rows if _audit(row.id) == path)
            self._replays |= columns.replays_of(data) if error is None else {}
            return
        self._errors[path] = error or ""
        if error is not None:
            return
        if path == VERIFY:
            self._take(msgspec.convert(data, Verification))
        elif query == CONFLICTS:
            self.conflicts.show(msgspec.convert(data["conflicts"], tuple[Conflict, ...]))
        elif query == ACTIONS:
            self.actions.show(msgspec.convert(data["actions"], tuple[Action, ...]))
        elif query == KEYS:
            self._names = {str(key["id"]): str(key["name"]) for key in data["keys"]}

    def _take(self, found: Verification) -> None:
        """Faults that a verification has just found get the focus."""
        was, self.verification = self.verification, found
        self.faults.show(found.faults)
        if found.faults and was is not None and was.state == "running":
            self.table = self.faults
        if not found.faults and self.table is self.faults:
            self.table = self.conflicts

    def answered(self, call: Call, data: Any) -> Effect | None:
        if call.path == VERIFY:
            self.receive(Query(VERIFY), data, None)
            return None
        return replay_told(data, self._view)


def _audit(id: str) -> str:
    return f"/v1/audit/{quote(id, safe='', errors='replace')}"


def _unmarked(row: Line) -> Line:
    """Only the list with the focus shows its cursor."""
    first = row[0]
    return (Span(f" {first.text[1:]}", first.role), *row[1:])
