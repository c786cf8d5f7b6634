"""Screen 3: the forecaster, how well it does, and the jobs that improve it; till there is one, what
orders the queue instead."""

from typing import ClassVar

from appliance.frames import Job, Live
from tui import figures
from tui.cells import pad
from tui.lines import Line, Span, fill, line, paint, wrap
from tui.screen import Effect, Go, Hint, Screen
from tui.view import View

_LABEL = 12
_BAR = 16
ELSEWHERE = ("verify",)
"""Jobs that another screen shows."""


class Calibration(Screen):
    number: ClassVar[int] = 3
    name: ClassVar[str] = "calibration"

    def body(self, view: View) -> list[Line]:
        live = view.live
        if live is None:
            lines = [line(f" {view.words('frame.no_data', view.foreign(view.url))}")]
        elif live.forecast_state == "none":
            lines = [*_empty(view), *_ticks(view, live), *_jobs(view)]
        else:
            lines = [*_forecaster(view, live), *_ticks(view, live), *_jobs(view)]
        lines = fill([(), *lines], view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def hints(self, view: View) -> list[Hint]:
        return [("Enter", view.words("calibration.hint_queue"))]

    def press(self, key: str, view: View) -> Effect | None:
        return Go(2) if key == "enter" else None


def _empty(view: View) -> list[Line]:
    """That there is none, what that means, and where to look."""
    texts = (view.words(f"calibration.{name}") for name in ("empty", "fcfs", "leads"))
    return [line(f" {row}") for text in texts for row in wrap(text, view.width - 2)]


def _forecaster(view: View, live: Live) -> list[Line]:
    words, (lo, hi) = view.words, view.band("coverage")
    state = words.or_else(
        f"calibration.state_{live.forecast_state}", view.foreign(live.forecast_state)
    )
    name = view.foreign(live.forecaster) or figures.UNKNOWN
    bounds = figures.bounds(lo, hi)
    told = figures.with_unit(live.coverage_pct, "%") + (
        f" ({bounds})" if bounds != figures.NONE else ""
    )
    drawn = figures.band(live.coverage_pct, lo, hi).rstrip()
    return [
        _labelled(view, "forecaster", f"{name}, {state}"),
        _labelled(view, "coverage", f"{told} {drawn}"),
    ]


def _ticks(view: View, live: Live) -> list[Line]:
    """How punctual the corrections are; nothing while there are none."""
    late, over = live.tick_late_p99_ms, live.tick_overrun_pct
    if late is None and over is None:
        return []
    text = view.words("calibration.tick", figures.with_unit(late, "ms"), figures.percent(over))
    return [_labelled(view, "ticks", text)]


def _jobs(view: View) -> list[Line]:
    jobs = [job for job in (view.state.jobs if view.state else ()) if job.kind not in ELSEWHERE]
    if not jobs:
        return []
    head = line(Span(view.words("calibration.jobs"), "bold"))
    return [(), head, *(_job(view, job) for job in jobs)]


def _job(view: View, job: Job) -> Line:
    """Kind, phase, how far, until when."""
    words = view.words
    share = job.done / job.total if job.total else None
    parts = [
        f"{view.foreign(job.kind)} > {view.foreign(job.phase)}",
        figures.bar(share, _BAR),
        figures.percent(None if share is None else 100 * share),
        f"{job.done}/{figures.UNKNOWN if job.total is None else job.total}",
        words("calibration.eta", figures.duration(job.eta_ms)),
    ]
    return line(f" {'  '.join(parts)}{words('calibration.held') if job.held else ''}")


def _labelled(view: View, name: str, text: str) -> Line:
    return line(" ", pad(view.words(f"calibration.{name}"), _LABEL), text)
