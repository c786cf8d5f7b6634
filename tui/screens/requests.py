"""Screen 2: requests that run or wait, those that ended, and one of them in full."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from appliance.frames import RequestRow
from tui.figures import bounds, number, outside
from tui.grid import Grid
from tui.lines import Line, beside, blank, fill, line, paint, wrap
from tui.screen import Call, Copy, Effect, Hint, Query, Screen, Table, Tell
from tui.screens import requests_acts as acts
from tui.screens import requests_detail as detail
from tui.screens import requests_ended as ended
from tui.screens import requests_rows as columns
from tui.screens.answers import UNREADABLE
from tui.screens.audit_replay import replay_told
from tui.screens.requests_one import One
from tui.screens.requests_past import Past
from tui.screens.requests_rows import Ended, short
from tui.throttle import LIMITS, limits_of
from tui.view import View

WIDE = 120
"""From here on the detail stands beside the table."""
BESIDE = 80
"""Cells of the table then, and more where there are more than 140."""
BRIEF = 3


class Requests(Screen):
    number: ClassVar[int] = 2
    name: ClassVar[str] = "requests"

    def __init__(self) -> None:
        self.live: Table[RequestRow] = Table(
            lambda row: row.id, columns.live_fields, columns.LIVE_ORDERS
        )
        self.ended: Table[Ended] = Table(
            lambda row: str(row.seq), columns.past_fields, columns.PAST_ORDERS
        )
        self.past = Past()
        self.open: One | None = None
        """The request whose detail is open."""
        self.table = self.live
        self._limits: Mapping[str, Mapping[str, Any]] = {}
        self._shown: tuple[object, object] = (None, None)
        self._view = View()
        """The last one drawn: answers come without."""

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        self._take(view)
        if view.width >= WIDE:
            lines = self._wide(view)
        elif self.open is not None:
            lines = self.open.lines(view, view.body_height)
        else:
            lines = self._narrow(view)
        lines = fill(lines, view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _take(self, view: View) -> None:
        """Gives the tables what is new; sorting waits for news, not for frames drawn."""
        self._view = view
        rows = () if view.rows is None else view.rows.requests
        if self._shown[0] is not rows:
            self.live.show(rows)
        if self._shown[1] is not self.past.rows:
            self.ended.show(self.past.rows)
        self._shown = (rows, self.past.rows)
        if self.open is not None:
            self.open.follow(rows)

    def _narrow(self, view: View) -> list[Line]:
        head = [line(self._summary(view)), blank(view.width)]
        room = view.body_height - len(head) - BRIEF - 1
        return [*head, *self._list(view, room), blank(view.width), *self._brief(view)]

    def _wide(self, view: View) -> list[Line]:
        head = [line(self._summary(view)), blank(view.width)]
        room = view.body_height - len(head)
        left = max(BESIDE, view.width * 4 // 7)
        side = replace(view, width=view.width - left - 2)
        right = self.open.lines(side, room) if self.open is not None else self._beside(side)
        return head + beside(self._list(replace(view, width=left), room), right, left)

    def _summary(self, view: View) -> str:
        words, table = view.words, self._table
        order = words(f"requests.sort.{table.order}")
        shown = words("requests.view", order=order, filter=view.foreign(table.filter) or "-")
        if table is self.ended:
            key = "requests.past.more" if self.past.next is not None else "requests.past"
            return f"{words(key, count=len(self.past.rows))}   {shown}"
        live = view.live
        if live is None:
            return words("requests.unknown")
        low, high = view.band("waiting")
        band = f" ({bounds(low, high)})" if (low, high) != (None, None) else ""
        mark = "!" if outside(live.waiting, low, high) else ""
        refused = number(live.refused_min)
        told = words(
            "requests.summary",
            run=live.running,
            wait=live.waiting,
            band=band + mark,
            refused=refused,
        )
        return f"{told}   {shown}"

    @property
    def _table(self) -> "Table[Any]":
        return self.ended if self.table is self.ended else self.live

    def _list(self, view: View, room: int) -> list[Line]:
        """Head and rows in `room` lines."""
        set_of = columns.PAST if self._table is self.ended else columns.LIVE
        grid: Grid[Any] = Grid(set_of, view.width - 3)
        if not self._table.rows:
            texts = wrap(self._why_empty(view), view.width - 1)
            return fill([grid.head(view), *(line(f" {row}") for row in texts)], view.width, room)
        more = self._more(view)
        rows = self._table.draw(
            view.width,
            max(0, room - 1 - len(more)),
            lambda row: grid.row(row, view),
            focus=not self.open,
        )
        return [grid.head(view), *rows, *more]

    def _more(self, view: View) -> list[Line]:
        """How many there are beyond the table."""
        if self._table is self.ended or view.rows is None:
            return []
        shown, total = len(view.rows.requests), view.rows.total
        if total <= shown:
            return []
        key = "requests.beyond"
        return [line(f" {view.words(key, count=total - shown, total=total, shown=shown)}")]

    def _why_empty(self, view: View) -> str:
        words, past = view.words, self._table is self.ended
        if past and self.past.error:
            return words("requests.failed", error=view.foreign(self.past.error))
        if past and (self.past.asked is not None or not self.past.read):
            return view.reading("requests.reading")
        if not past and view.rows is None:
            return words("requests.unknown")
        key = "requests.nomatch" if self._table.filter else "requests.empty"
        return words(f"{key}.past" if past else key)

    def _brief(self, view: View) -> list[Line]:
        row = self._table.current
        if row is None:
            return []
        return ended.brief(row, view) if isinstance(row, Ended) else detail.brief(row, view)

    def _beside(self, view: View) -> list[Line]:
        row = self._table.current
        if row is None:
            return []
        return (
            ended.whole(row, None, view)[:-2] if isinstance(row, Ended) else detail.live(row, view)
        )

    def hints(self, view: View) -> list[Hint]:
        words = view.words
        hint = {name: words(f"requests.hint.{name}") for name in _HINTS}
        if self.open is not None:
            live = [("X", hint["cancel"]), ("P", hint["priority"])]
            acts = [("N", hint["replay"])] if self.open.ended else live
            return [*acts, ("Esc", hint["back"]), ("c", hint["copy"]), ("w", hint["write"])]
        rest = [("s", hint["sort"]), ("Enter", hint["detail"])]
        if self._table is self.ended:
            return [("N", hint["replay"]), *rest, ("Tab", hint["live"]), ("w", hint["write"])]
        acts = [("T", words("key.throttle")), ("X", hint["cancel"]), ("P", hint["priority"])]
        return [*acts, *rest, ("Tab", hint["ended"]), ("w", hint["write"])]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        self._take(view)
        if len(key) == 1 and key in "XNPTcw":
            return self._act(key, view)
        self._walk(key)
        return None

    def _walk(self, key: str) -> None:
        if self.open is not None and (key in ("escape", "backspace") or self.open.press(key)):
            self.open = None if key in ("escape", "backspace") else self.open
        elif key in ("escape", "backspace"):
            self._back()
        elif key == "enter":
            self._enter()
        elif key == "tab":
            self._switch(self.live if self._table is self.ended else self.ended)
        elif key == "s":
            self._table.next_order()
        elif self._table.press(key) and self._table is self.ended:
            if self.ended.at == len(self.ended.rows) - 1:
                self.past.ask_older()
        elif key in ("end", "G") and self._table is self.ended:
            self.past.ask_older()

    def _switch(self, table: "Table[Any]") -> None:
        """The filter goes along."""
        text = self._table.filter
        self.table, self.open = table, None
        table.find(text)

    def _back(self) -> None:
        if self._table.filter:
            self._table.find("")
        elif self._table is self.ended:
            self._switch(self.live)

    def _enter(self) -> None:
        """The detail; where nothing live matches, the ledger is asked."""
        row = self._table.current
        if row is not None:
            self.open = One(row)
            return
        name = self._table.filter.strip()
        if name:
            self._switch(self.ended)
            self.past.ask_named(name)

    def _row(self) -> RequestRow | Ended | None:
        found: RequestRow | Ended | None = self._table.current
        return found if self.open is None else self.open.row

    def _act(self, key: str, view: View) -> Effect | None:
        """A key for the row under the cursor, or the open request."""
        row = self._row()
        if key == "w":
            return self._write()
        if row is None:
            return Tell(view.words("requests.none"))
        match key:
            case "X":
                over = self.open is not None and self.open.gone
                return acts.cancel(view, row, over=over)
            case "P":
                over = self.open is not None and self.open.gone
                return acts.prioritise(view, row, over=over)
            case "N":
                return acts.replay(view, row)
            case "T":
                return acts.throttle_key(view, row, self._limits)
        return Copy(row.id)

    def _write(self) -> Effect:
        """The open request with its tokens, else the list as it is filtered and sorted."""
        if self.open is not None:
            return acts.written(f"request-{short(self.open.row.id)}", self.open.exported())
        kind = "ended" if self._table is self.ended else "live"
        return acts.written(f"requests-{kind}", {"requests": self._table.rows})

    # -- REST --------------------------------------------------------------------------------------

    def wants(self, view: View) -> tuple[Query, ...]:
        found = self.past.queries if self._table is self.ended else ()
        opened = () if self.open is None else self.open.queries()
        return (LIMITS, *found, *opened)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        try:
            self._receive(query, data, error)
        except UNREADABLE:
            self._receive(query, None, self._view.words("audit.unreadable"))

    def _receive(self, query: Query, data: Any, error: str | None) -> None:
        if query == LIMITS:
            self._limits = limits_of(data) if error is None else self._limits
        elif self.open is not None and self.open.receive(query, data, error):
            return
        elif self.past.takes(query):
            self.past.receive(query, data, error)

    def answered(self, call: Call, data: Any) -> Effect | None:
        if self.open is not None:
            self.open.replayed(data)
        return replay_told(data, self._view)


_HINTS = (
    "cancel",
    "priority",
    "sort",
    "detail",
    "ended",
    "live",
    "back",
    "copy",
    "write",
    "replay",
)
