"""The jobs on screen 3, and what may be done to a calibration."""

import msgspec

from appliance.frames import Job
from tui import figures, moments
from tui.cells import cells
from tui.lines import Line, Span, line, wrap
from tui.screen import Ask, Call, Effect, Query, Tell
from tui.screens.calibration_rows import Version
from tui.view import View

KIND = "calibrate"
PHASES = ("prepare", "generate", "train", "compare", "install")
ELSEWHERE = ("verify",)
"""Jobs that another screen shows."""
PATH = "/admin/calibration"
LAST = Query(PATH, 5.0)
ENDED = ("done", "stopped", "failed")
_MOST = 3
"""Rows of what the last one came to."""
_BAR = 16


class Result(msgspec.Struct, frozen=True):
    """What a calibration came to."""

    done: str = ""
    why: str = ""


class Last(msgspec.Struct, frozen=True):
    """What screen 3 reads of GET /admin/calibration."""

    state: str = "none"
    ended_ms: int = 0
    problem: str = ""
    result: Result | None = None


def job_lines(view: View, last: Last) -> list[Line]:
    """All jobs of this screen; without one, what the last calibration came to."""
    jobs = [job for job in (view.state.jobs if view.state else ()) if job.kind not in ELSEWHERE]
    lines = [row for job in jobs for row in _job(view, job)] or _ended(view, last)
    return [(), *lines] if lines else []


def _ended(view: View, last: Last) -> list[Line]:
    """Nothing where none has ended yet."""
    if last.state not in ENDED:
        return []
    words, result = view.words, last.result or Result()
    said = (
        last.problem
        if last.state == "failed"
        else "; ".join(filter(None, (result.done, result.why)))
    )
    told = words(f"calibration.last.{last.state}", moments.shown(last.ended_ms, moments.MINUTE))
    told = f"{told}: {view.foreign(said)}" if said else told
    head = Span(f"{words('calibration.jobs')}  ", "bold")
    room = view.width - cells(head.text)
    first, *rest = wrap(told, room)[:_MOST]
    return [line(head, first), *(line(" " * cells(head.text), row) for row in rest)]


def running(view: View) -> Job | None:
    """The calibration that runs."""
    jobs = view.state.jobs if view.state else ()
    return next((job for job in jobs if job.kind == KIND), None)


def _job(view: View, job: Job) -> list[Line]:
    """The phases with the present one in capitals, then how far it is."""
    words = view.words
    share = job.done / job.total if job.total else None
    parts = [
        figures.bar(share, _BAR),
        figures.percent(None if share is None else 100 * share),
        f"{job.done}/{figures.UNKNOWN if job.total is None else job.total}",
        words("calibration.eta", figures.duration(job.eta_ms)),
        words("calibration.held") if job.held else words("calibration.idle_only"),
    ]
    return [_phases(view, job), line("  ".join(parts))]


def _phases(view: View, job: Job) -> Line:
    words = view.words
    head = Span(f"{words('calibration.jobs')}  ", "bold")
    if job.kind != KIND or job.phase not in PHASES:
        return line(head, f"{view.foreign(job.kind)} > {view.foreign(job.phase)}")
    parts: list[Span] = []
    for phase in PHASES:
        name = words(f"calibration.phase.{phase}")
        now = Span(words("calibration.phase.now", name.upper()), "bold")
        parts += [Span(" > "), now if phase == job.phase else Span(name)]
    return line(head, *parts[1:])


# -- acts ----------------------------------------------------------------------------------------


def start(view: View) -> Effect:
    """`N`."""
    if running(view) is not None:
        return Tell(view.words("calibration.runs"))
    return _ask(view, "start", ("calibration.start.what", "calibration.start.idle"))


def hold(view: View) -> Effect:
    """`H`: hold the job, or let it go on."""
    job = running(view)
    if job is None:
        return Tell(view.words("calibration.none"))
    action = "resume" if job.held else "hold"
    return _ask(view, action, (f"calibration.{action}.what",))


def stop(view: View) -> Effect:
    """`X`."""
    if running(view) is None:
        return Tell(view.words("calibration.none"))
    return _ask(view, "stop", ("calibration.stop.what",))


def _ask(view: View, action: str, lines: tuple[str, ...]) -> Ask:
    words = view.words
    call = Call(
        "POST", PATH, {"action": action}, done=words(f"calibration.{action}.done"), idempotent=False
    )
    return Ask(words(f"calibration.{action}.title"), tuple(map(words, lines)), call)


def roll_back(view: View, row: Version | None, older: Version | None) -> Effect:
    """`B`: to the version under the cursor; where that is in use, to the next older one."""
    words = view.words
    target = older if row is None or row.in_use else row
    if target is None:
        return Tell(words("calibration.use.none"))
    if target.problem:
        return Tell(view.foreign(target.problem))
    name = view.foreign(target.version)
    call = Call(
        "POST",
        f"/admin/forecasters/{target.version}/use",
        done=words("calibration.use.done", version=name),
    )
    lines = (words("calibration.use.what"), words("calibration.use.kept"))
    return Ask(words("calibration.use.title", version=name), lines, call)
