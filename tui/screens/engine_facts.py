"""What there is to know of the engine in a few lines. Pure."""

from appliance.frames import Alarm, Forecaster, Live, Model, Process, State
from tui import figures
from tui.cells import pad
from tui.lines import Line, Role, Span, line, wrap
from tui.view import View

_LABEL = 9
_ROWS = 3
_STUCK_MS = 10_000
"""Without a step for so long, a restart needs no further reason."""
_GONE = ("backoff", "failed")
"""States in which there is no process."""
_RESTARTING = ("engine_stuck", "engine_down")
"""Alarms that are a reason by themselves."""


def facts(view: View, width: int) -> list[Line]:
    """Model, context, build, engine, layers, process; causes below what they explain."""
    state, live = view.state, view.live
    if state is None:
        return []
    rows = [
        *_labelled(view, "model", _model(view, state.model), width),
        *_labelled(view, "context", _context(view, state.model), width),
        *_labelled(view, "build", view.foreign(state.model.build), width),
    ]
    if live is not None:
        rows.append(_engine(view, live))
    rows += _layers(view, state, width)
    rows += _onnx(view, state.forecaster, width)
    rows += _labelled(view, "process", _process(view, live, state.process), width)
    if failure := view.foreign(state.process.last_failure):
        rows += _labelled(view, "failure", failure, width)
    if live is not None and live.state == "DRAINING":
        rows += _labelled(view, "draining", _draining(view, live), width, "bold")
    return rows


def _labelled(view: View, name: str, text: str, width: int, role: Role = "plain") -> list[Line]:
    """A label and its text, in up to three rows."""
    label = view.words(f"engine.{name}")
    parts = wrap(text, width - _LABEL - 1)[:_ROWS]
    return [
        line(pad("" if at else label, _LABEL), Span(part, role)) for at, part in enumerate(parts)
    ]


def _model(view: View, model: Model) -> str:
    name = view.foreign(model.name) or figures.UNKNOWN
    template = view.words("engine.template", short(model.template))
    return f"{name}, {short(model.sha256)}, {template}"


def short(digest: str) -> str:
    """The ends of a hash, which people compare; `?` where there is none."""
    if not (digest.isascii() and digest.isalnum()):
        return figures.UNKNOWN
    return digest if len(digest) <= 8 else f"{digest[:4]}..{digest[-2:]}"


def _context(view: View, model: Model) -> str:
    kv = view.foreign(model.kv)
    return view.words("engine.context_of", model.ctx_tok, kv, model.seqs)


def _engine(view: View, live: Live) -> Line:
    """Its state, and how long a step takes against its band."""
    words, (lo, hi) = view.words, view.band("step")
    state = words.or_else(f"engine.state_{live.engine_state}", view.foreign(live.engine_state))
    bounds = figures.bounds(lo, hi)
    told = words("engine.step", figures.duration(live.step_ms))
    told += f" ({bounds})" if bounds != figures.NONE else ""
    drawn = figures.band(live.step_ms, lo, hi) if bounds != figures.NONE else ""
    role: Role = "plain" if live.engine_state == "ready" else "bold"
    label = pad(words("engine.engine"), _LABEL)
    return line(label, Span(state, role), f", {told} {drawn}")


def _layers(view: View, state: State, width: int) -> list[Line]:
    """Asked for and got; the reason where they differ."""
    words, model = view.words, state.model
    told = words("engine.layers_of", model.layers_asked, model.layers_got)
    if model.layers_got >= model.layers_asked:
        return _labelled(view, "layers", told, width)
    why = _why_fewer(view, state)
    return [
        *_labelled(view, "layers", f"{told}  {words('engine.fewer')}", width, "bold"),
        *(line(" " * _LABEL, part) for part in wrap(why, width - _LABEL - 1)[:2] if why),
    ]


def _why_fewer(view: View, state: State) -> str:
    """As the box says it in the alarm about the GPU."""
    found = next((alarm for alarm in state.alarms if alarm.code == "gpu_lost"), None)
    if found is None:
        return view.words("engine.fewer_unknown")
    return view.foreign(found.args[1] if len(found.args) > 1 else found.text)


def _onnx(view: View, now: Forecaster | None, width: int) -> list[Line]:
    """What computes the forecasts, and in what precision; nothing where no network runs."""
    if now is None or not now.provider:
        return []
    provider = view.foreign(now.provider.removesuffix("ExecutionProvider"))
    told = view.words(
        "engine.onnx_of",
        provider=f"{provider} {view.foreign(now.precision.upper())}".rstrip(),
        encoder=view.foreign(now.encoder) or figures.NONE,
    )
    return _labelled(view, "onnx", told, width)


def _process(view: View, live: Live | None, process: Process) -> str:
    words = view.words
    if live is not None and live.engine_state in _GONE:
        return f"{words('engine.gone')}, {words('engine.restarts', process.restarts)}"
    age = live.step_age_ms if live is not None else None
    parts = [
        words("engine.up", figures.duration(process.up_s * 1e3)),
        f"{figures.number(process.rss_mb)} MB",
        words("engine.progress", figures.duration(age)),
        words("engine.restarts", process.restarts),
    ]
    return ", ".join(parts)


def _draining(view: View, live: Live) -> str:
    left = figures.duration(live.last_eta_ms)
    return view.words("engine.still", live.running, live.waiting, left)


def stuck(view: View) -> str:
    """Why the engine needs a restart, in English for the ledger; empty when it seems to work."""
    alarms = view.state.alarms if view.state is not None else ()
    alarm: Alarm | None = next((one for one in alarms if one.code in _RESTARTING), None)
    live = view.live
    if live is None:
        return ""
    if live.engine_state != "ready":
        return f"the engine is {live.engine_state}"[:200]
    if alarm is not None or (live.step_age_ms or 0.0) >= _STUCK_MS:
        return f"no step for {(live.step_age_ms or 0.0) / 1e3:.0f} s"
    return ""
