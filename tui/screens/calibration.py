"""Screen 3: the forecaster, how well it does, its versions, and the job that makes new ones."""

from typing import Any, ClassVar

import msgspec

from appliance.frames import Live
from tui import figures
from tui.cells import pad
from tui.figures import number
from tui.grid import Grid
from tui.lines import Line, beside, fill, line, paint, wrap
from tui.screen import Effect, Go, Hint, Query, Screen, Show, Table
from tui.screens import calibration_job as job
from tui.screens import calibration_past as over_time
from tui.screens import calibration_rows as columns
from tui.screens.answers import UNREADABLE
from tui.screens.calibration_channels import Control, channels
from tui.screens.calibration_rows import Point, Version
from tui.screens.overview_numbers import order
from tui.view import View

VERSIONS = Query("/admin/forecasters", 5.0)
SCATTER = Query("/admin/forecasters/scatter", 10.0)
PAST = Query("/admin/forecasters/past", 10.0)
CONTROL = Query("/admin/control", 1.0)
_LABEL = 12
_GAP = 2
_AXIS = 5
_WIDE = 120
_PLOTTED = 36
"""Rows of a body with plots over time."""
_LOW_PLOT, _HIGH_PLOT = 4, 10
NO_FORECASTER = ("none", "off", "global")


class Calibration(Screen):
    number: ClassVar[int] = 3
    name: ClassVar[str] = "calibration"

    def __init__(self) -> None:
        self.versions: Table[Version] = Table(lambda row: row.version, columns.fields)
        self.table: Table[Any] | None = self.versions
        self._points: tuple[Point, ...] = ()
        self._control = Control()
        self._past = over_time.Past()
        self._last = job.Last()
        self._errors: dict[str, str] = {}
        self._view = View()
        """The last one drawn: answers come without."""

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        self._view = view
        live = view.live
        if live is None:
            lines = [line(f" {view.words('frame.no_data', view.foreign(view.url))}")]
        else:
            lines = self._lines(view, live)
        lines = fill([(), *lines], view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _lines(self, view: View, live: Live) -> list[Line]:
        """The windows get what the other parts leave, the plots what the windows leave."""
        wide = view.width >= _WIDE
        plotted = wide and view.body_height >= _PLOTTED
        brief = [] if plotted else over_time.brief(self._past, view, _LABEL)
        head = [*_state(view, live), *brief, *self._queue(view, live), *_ticks(view, live)]
        below = [*self._panes(view), *job.job_lines(view, self._last)]
        room = view.body_height - 2 - len(head) - len(below)
        least = over_time.SHORT + over_time.AROUND if plotted else 0
        found = channels(view, self._control, room - least, wide=wide)
        left = room - len(found) - over_time.AROUND
        tall = over_time.TALL if left >= over_time.TALL else over_time.SHORT
        plots = over_time.plots(self._past, view, tall) if plotted else []
        return [*head, *([(), *found] if found else []), *plots, *below]

    def _queue(self, view: View, live: Live) -> list[Line]:
        """What the queue goes by; where that is said already, nothing."""
        told = order(view, live)
        if not told or live.forecast_state in NO_FORECASTER:
            return []
        if self._control.tau:
            told = view.words("calibration.tau", told, number(self._control.tau))
        return [_labelled(view, "queue", told)]

    def _panes(self, view: View) -> list[Line]:
        """The scatter, and the versions beside it; nothing while there is neither."""
        if not self.versions.total and not self._points:
            error = self._errors.get(VERSIONS.path)
            told = view.words("calibration.failed", error=view.foreign(error)) if error else ""
            return [line(f" {row}") for row in wrap(told, view.width - 2)] if told else []
        wide, high = view.width >= _WIDE, view.body_height >= 30
        width = columns.WIDE if wide else columns.NARROW
        height = _HIGH_PLOT if high else _LOW_PLOT
        left = columns.scatter(self._points, view, width, height)
        room = view.width - width - _AXIS - _GAP
        right = self._versions(view, room, len(left))
        return [(), *beside(left, right, width + _AXIS, _GAP)]

    def _versions(self, view: View, width: int, height: int) -> list[Line]:
        grid = Grid(columns.COLUMNS, width - 3)
        if not self.versions.rows:
            key = "calibration.nomatch" if self.versions.total else "calibration.no_versions"
            told = [line(f" {row}") for row in wrap(view.words(key), width - 2)]
            return fill([grid.head(view), *told], width, height)
        rows = self.versions.draw(width, height - 1, lambda row: grid.row(row, view))
        return [grid.head(view), *rows]

    def hints(self, view: View) -> list[Hint]:
        names = [("N", "calibrate")]
        if (now := job.running(view)) is not None:
            names = [("H", "resume" if now.held else "hold"), ("X", "stop")]
        if len(self.versions.rows) > 1:
            names.append(("B", "back"))
        names.append(("Enter", "detail" if self.versions.rows else "queue"))
        return [(key, view.words(f"calibration.hint_{name}")) for key, name in names]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        self._view = view
        match key:
            case "N":
                return job.start(view)
            case "H":
                return job.hold(view)
            case "X":
                return job.stop(view)
            case "B":
                return job.roll_back(view, self.versions.current, self._older())
            case "enter":
                return self._detail(view)
            case "escape" | "backspace":
                self.versions.find("")
            case _:
                self.versions.press(key)
        return None

    def _detail(self, view: View) -> Effect:
        row = self.versions.current
        if row is None:
            return Go(2)
        title, *lines = columns.told(row, view)
        return Show(title, tuple(lines))

    def _older(self) -> Version | None:
        """The version next after the one in use: they are told newest first."""
        rows = self.versions.rows
        at = next((at for at, row in enumerate(rows) if row.in_use), -1)
        return next((row for row in rows[at + 1 :] if not row.problem), None) if at >= 0 else None

    # -- REST --------------------------------------------------------------------------------------

    def wants(self, view: View) -> tuple[Query, ...]:
        return (VERSIONS, SCATTER, CONTROL, PAST, job.LAST)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        self._errors[query.path] = error or ""
        if error is not None:
            return
        try:
            if query == VERSIONS:
                self.versions.show(msgspec.convert(data["forecasters"], tuple[Version, ...]))
            elif query == SCATTER:
                self._points = msgspec.convert(data["points"], tuple[Point, ...])
            elif query == job.LAST:
                self._last = msgspec.convert(data, job.Last)
            elif query == PAST:
                self._past = msgspec.convert(data, over_time.Past)
            elif query == CONTROL:
                self._control = msgspec.convert(data, Control)
        except UNREADABLE:
            self._errors[query.path] = self._view.words("audit.unreadable")


def _state(view: View, live: Live) -> list[Line]:
    """The forecaster in use; without one, what orders the queue instead."""
    words = view.words
    if live.forecast_state in NO_FORECASTER:
        names = ("empty_off",) if live.forecast_state == "off" else ("empty", "fcfs", "leads")
        texts = (words(f"calibration.{name}") for name in names)
        told = [line(f" {row}") for text in texts for row in wrap(text, view.width - 2)]
        return told if live.coverage_pct is None else [*told, *_covers(view, live)]
    state = words.or_else(
        f"calibration.state_{live.forecast_state}", view.foreign(live.forecast_state)
    )
    name = view.foreign(live.forecaster) or figures.UNKNOWN
    found = [_labelled(view, "forecaster", f"{name}, {state}"), *_covers(view, live)]
    return found + _problem(view)


def _covers(view: View, live: Live) -> list[Line]:
    """The share of answers within their 90 % bound, and what else tells how good it is."""
    lo, hi = view.band("coverage")
    told = figures.with_unit(live.coverage_pct, "%") + _bounds(view, "coverage")
    drawn = figures.band(live.coverage_pct, lo, hi).rstrip()
    now = view.state.forecaster if view.state is not None else None
    scores = ""
    if now is not None:
        scores = view.words(
            "calibration.scores",
            skill=columns.hundredths(now.skill),
            pinball=figures.with_unit(now.pinball_tok, "tok"),
        )
    return [_labelled(view, "coverage", f"{told} {drawn}  {scores}".rstrip())]


def _problem(view: View) -> list[Line]:
    """Why the forecaster is not as it should be."""
    now = view.state.forecaster if view.state is not None else None
    told = view.foreign(now.problem) if now is not None else ""
    return [line(f" {row}") for row in wrap(told, view.width - 2)] if told else []


def _ticks(view: View, live: Live) -> list[Line]:
    """How punctual the corrections are; nothing while there are none."""
    late, over = live.tick_late_p99_ms, live.tick_overrun_pct
    if late is None and over is None:
        return []
    text = view.words(
        "calibration.tick",
        figures.with_unit(late, "ms") + _bounds(view, "tick_late_p99"),
        figures.percent(over) + _bounds(view, "tick_overrun"),
    )
    return [_labelled(view, "ticks", text)]


def _bounds(view: View, name: str) -> str:
    """` (<2)`; nothing where there are none."""
    told = figures.bounds(*view.band(name))
    return f" ({told})" if told != figures.NONE else ""


def _labelled(view: View, name: str, text: str) -> Line:
    return line(" ", pad(view.words(f"calibration.{name}"), _LABEL), text)
