"""Screen 1: is the box well, and if not, who or what is it."""

from collections.abc import Mapping
from typing import Any

from appliance.frames import KeyRow, Live
from tui import figures
from tui.cells import cells
from tui.lines import Line, Span, beside, columns, fill, fit, line, paint, wrap
from tui.screen import Ask, Call, Effect, Go, Hint, Query, Screen, Tell
from tui.screens.overview_numbers import numbers
from tui.screens.overview_plots import plots
from tui.table import Table
from tui.throttle import LIMITS, limits_of, throttle
from tui.view import View

_WIDE = 120
"""Cells from which the keys stand beside the numbers."""
_LEFT = 82
_PLOTS_FROM = 8
"""Rows that must be left for plots."""
_ALIGNS = "<<>>>>>"
_KEY, _TENANT, _LONGEST = 11, 7, 24


class Overview(Screen):
    number = 1
    name = "overview"

    def __init__(self) -> None:
        self.table: Table[KeyRow] = Table(lambda row: row.key, _fields)
        self._limits: Mapping[str, Mapping[str, Any]] = {}

    def body(self, view: View) -> list[Line]:
        self.table.show(view.rows.keys if view.rows is not None else ())
        if view.live is None:
            lines = [line(row) for row in wrap(_nothing(view), view.width)]
        elif view.width >= _WIDE:
            lines = self._wide(view, view.live)
        else:
            lines = self._narrow(view, view.live)
        drawn = fill(lines, view.width, view.body_height)
        return [paint(row, "dim") for row in drawn] if view.stale else drawn

    def _narrow(self, view: View, live: Live) -> list[Line]:
        above: list[Line] = [] if view.height < 20 else [()]
        above += [*numbers(view, live, view.width), ()]
        return above + self._keys(view, view.width, max(0, view.body_height - len(above)))

    def _wide(self, view: View, live: Live) -> list[Line]:
        left = numbers(view, live, _LEFT - 2)
        right = self._keys(view, view.width - _LEFT, len(left))
        lines: list[Line] = [(), *beside(left, right, _LEFT - 2), ()]
        rest = view.body_height - len(lines)
        return lines + (plots(view, live, view.width, rest) if rest >= _PLOTS_FROM else [])

    def _keys(self, view: View, width: int, height: int) -> list[Line]:
        """The table of keys, `height` rows with its head."""
        words, rows = view.words, self.table.rows
        if view.rows is None or not rows:
            key = "overview.unknown" if view.rows is None else "overview.no_keys"
            return [line(row) for row in wrap(words(key), width)]
        widths = _widths(view, rows)
        names = ("tenant", "run", "wait", "rate", "limit", "share")
        titles = [words("overview.keys"), *(words(f"overview.{name}") for name in names)]
        head = columns(titles, (widths[0] + 1, *widths[1:]), _ALIGNS)
        shown = max(0, height - 1)
        table = self.table.draw(width, shown, lambda row: _row(view, row, widths))
        return [fit(paint(head, "bold"), width), *table]

    def hints(self, view: View) -> list[Hint]:
        words = view.words
        state = view.live.state if view.live is not None else ""
        return [
            ("T", words("key.throttle")),
            ("D", words("key.resume" if state == "DRAINING" else "key.drain")),
            ("H", words("key.release" if state == "HOLDING" else "key.hold")),
            ("0", words("key.alarms")),
        ]

    def press(self, key: str, view: View) -> Effect | None:
        if key == "T":
            return self._throttle(view)
        if key in ("D", "H") and view.live is not None:
            return drain(view, view.live) if key == "D" else hold(view, view.live)
        if key == "enter" and self.table.current is not None:
            return Go(4)
        self.table.press(key)
        return None

    def _throttle(self, view: View) -> Effect:
        row = self.table.current
        if row is None:
            return Tell(view.words("throttle.nobody"))
        return throttle(view, row.key, row.tok_min, self._limits)

    def wants(self, view: View) -> tuple[Query, ...]:
        return (LIMITS,)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        if query == LIMITS and error is None:
            self._limits = limits_of(data)


def drain(view: View, live: Live) -> Effect:
    """`D`: let nothing new in, or let it in again."""
    words, host = view.words, view.foreign(live.host)
    if live.state == "DRAINING":
        call = Call("POST", "/admin/resume", done=words("resume.done"))
        return Ask(words("resume.title", host), (words("resume.what"),), call)
    call = Call("POST", "/admin/drain", done=words("drain.done"))
    lines = (words("drain.what"), words("drain.whom", live.running, live.waiting))
    return Ask(words("drain.title", host), lines, call)


def hold(view: View, live: Live) -> Effect:
    """`H`: start nothing that waits, or start it again."""
    words, host = view.words, view.foreign(live.host)
    if live.state == "HOLDING":
        call = Call("POST", "/admin/release", done=words("release.done"))
        return Ask(words("release.title", host), (words("release.what", live.waiting),), call)
    call = Call("POST", "/admin/hold", done=words("hold.done"))
    lines = (words("hold.what"), words("hold.whom", live.running, live.waiting))
    return Ask(words("hold.title", host), lines, call)


def _nothing(view: View) -> str:
    return "\n" + view.words("overview.nothing", view.foreign(view.url) or "-")


def _fields(row: KeyRow) -> dict[str, str | float | None]:
    return {"key": row.key, "tenant": row.tenant, "run": row.run, "wait": row.wait}


def _widths(view: View, rows: tuple[KeyRow, ...]) -> tuple[int, ...]:
    """Long names get more room, all else stays where it is."""
    longest = max(cells(view.foreign(row.key)) for row in rows)
    return (max(_KEY, min(_LONGEST, longest)), _TENANT, 3, 4, 5, 5, 5)


def _row(view: View, row: KeyRow, widths: tuple[int, ...]) -> Line:
    limit = figures.NONE if row.limit_min is None else figures.count(row.limit_min, 5)
    over = row.limit_min is not None and row.tok_min > row.limit_min
    texts: list[str | Span] = [
        view.foreign(row.key),
        view.foreign(row.tenant),
        figures.count(row.run, 3),
        figures.count(row.wait, 4),
        Span(figures.count(row.tok_min, 5), "bold" if over else "plain"),
        limit,
        f"{row.share_pct:3.0f} %",
    ]
    return columns(texts, widths, _ALIGNS)
