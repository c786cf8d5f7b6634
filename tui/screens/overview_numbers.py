"""The numbers of screen 1: each with its unit, its band, and where in the band it is."""

from appliance.frames import Live
from tui import figures
from tui.cells import cells, pad
from tui.lines import Line, Span, fit
from tui.screens.overview_row import LABEL, P50, VALUE, Number, draw, head, whole_parts
from tui.view import View

_STEP_OLD_MS = 5000.0


def numbers(view: View, live: Live, width: int) -> list[Line]:
    """Their head, then twelve rows of `width` cells."""
    parts = (_forecast(view, live), _engine(view, live), _board(view, live))
    rows = (*_speeds(view, live), *_memory(view, live), *parts)
    drawn = (*(draw(view, row, width) for row in rows), _today(view, live, width))
    return [fit(row, width) for row in (head(view), *drawn)]


def _speeds(view: View, live: Live) -> list[Number]:
    words = view.words
    idle = live.out_tok_s == 0
    times = (
        ("ttft", live.ttft_p50_ms, live.ttft_p99_ms),
        ("itl", live.itl_p50_ms, live.itl_p99_ms),
        ("e2e", live.e2e_p50_ms, live.e2e_p99_ms),
    )
    return [
        Number(
            label=words("overview.output"),
            value=live.out_tok_s,
            unit="t/s",
            band="out",
            past="out_tok_s",
            judged=live.running + live.waiting > 0,
        ),
        *(
            Number(
                label=words(f"overview.{name}"),
                value=p99,
                unit="ms",
                band=f"{name}_p99",
                p50=p50,
                has_p50=True,
                past=f"{name}_p99_ms",
                none=idle,
            )
            for name, p50, p99 in times
        ),
    ]


def _memory(view: View, live: Live) -> list[Number]:
    words, a, b = view.words, live.pool_a, live.pool_b
    split = bool(b.cap_tok or b.used_tok) or live.kv_b_pct is not None
    return [
        Number(
            label=words("overview.waiting"),
            value=live.waiting,
            unit="",
            band="waiting",
            tail=_queue(view, live),
        ),
        Number(
            label=words("overview.pool_a"),
            value=live.kv_a_pct,
            unit="%",
            band="kv_a",
            tail=words(
                "overview.pool_a.tail",
                *(figures.count(tok) for tok in (a.used_tok, a.cap_tok, a.reserved_tok)),
            ),
        ),
        Number(
            label=words("overview.pool_b"),
            value=live.kv_b_pct,
            unit="%",
            band="kv_b" if split else "",
            tail=words(
                "overview.pool_b.tail",
                *(figures.count(tok) for tok in (b.used_tok, b.cap_tok, b.borrowed_tok)),
            )
            if split
            else words("overview.one_pool"),
            none=not split,
        ),
        Number(
            label=words("overview.hits"),
            value=live.prefix_hit_pct,
            unit="%",
            band="prefix_hit",
            tail=words("overview.evictions", live.evictions),
            none=live.out_tok_s == 0,
        ),
    ]


def _forecast(view: View, live: Live) -> Number:
    """How often its 90 % bounds hold, and what the queue goes by."""
    words, state = view.words, live.forecast_state
    known = words.or_else(f"overview.forecast.{state}", view.foreign(state))
    return Number(
        label=_label(view, "overview.forecast", known),
        value=live.coverage_pct,
        unit="%",
        band="coverage",
        tail=words("order.by", order(view, live)) if live.queue_order else "",
        none=state in ("none", "off", "global") or live.out_tok_s == 0,
    )


def order(view: View, live: Live) -> str:
    """What the queue goes by, and why not by cost."""
    words = view.words
    if not live.queue_order:
        return ""
    name = words.or_else(f"order.{live.queue_order}", view.foreign(live.queue_order))
    if not live.queue_fallback:
        return name
    why = words.or_else(f"order.why.{live.queue_fallback}", view.foreign(live.queue_fallback))
    return words("order.because", name, why)


def _queue(view: View, live: Live) -> str:
    if not live.waiting:
        return view.words("overview.no_queue", live.running)
    oldest, last = figures.duration(live.oldest_wait_ms), figures.duration(live.last_eta_ms)
    return view.words("overview.queue", live.running, oldest, last).replace("~?", "?")


def _engine(view: View, live: Live) -> Number:
    words = view.words
    state = words.or_else(f"engine.{live.engine_state}", view.foreign(live.engine_state))
    age = live.step_age_ms
    stuck = words("overview.no_step", figures.duration(age)) if (age or 0) > _STEP_OLD_MS else ""
    return Number(
        label=_label(view, "overview.engine", state),
        value=live.step_ms,
        unit="ms",
        band="step",
        tail=stuck + words("overview.restarts", live.restarts_5min),
        none=live.engine_state == "ready" and live.out_tok_s == 0,
    )


def _board(view: View, live: Live) -> Number:
    words = view.words
    none = live.board_state == "none"
    state = words.or_else(f"board.{live.board_state}", view.foreign(live.board_state))
    return Number(
        label=_label(view, "overview.board", state),
        value=live.dog_left_ms,
        unit="ms",
        band="" if none else "dog_left",
        tail=(words("overview.no_board") if none else "") + _heat(view, live),
        none=none,
    )


def _heat(view: View, live: Live) -> str:
    temp, power = figures.with_unit(live.temp_c, "C"), figures.with_unit(live.power_w, "W")
    hot, most = view.band("temp")[1], view.band("power")[1]
    temp, power = temp.replace("?", "? C"), power.replace("?", "? W")
    if hot is None or most is None:
        return view.words("overview.heat.free", temp, power)
    return view.words("overview.heat", temp, figures.number(hot), power, figures.number(most))


def _label(view: View, key: str, state: str) -> str:
    """The state, and what the number is where there is room for it."""
    text = view.words(key, state)
    return text if cells(text) <= LABEL + 1 + P50 else view.words(f"{key}.short", state)


def _today(view: View, live: Live, width: int) -> Line:
    value, letter = _big(live.tok_today)
    joule = figures.with_unit(live.j_per_tok, "J/tok").replace("?", "? J/tok")
    tail = view.words(
        "overview.today.tail",
        f"{figures.money(live.cost_today)} {view.foreign(live.currency)}".strip(),
        joule,
        figures.count(live.failed_min, 4),
        figures.count(live.refused_min, 4),
    )
    label = pad(view.words("overview.today"), LABEL + 1 + P50)
    unit = "tok" if value == figures.UNKNOWN else f"{letter}tok"
    left = f"{label} {pad(value, VALUE, right=True)} {pad(unit, 11)}"
    return (Span(left + whole_parts(tail, width - cells(left))),)


def _big(value: float | None) -> tuple[str, str]:
    """Digits and the letter of their power: `1.84`, `M`."""
    if value is None:
        return figures.UNKNOWN, ""
    for power, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= power * 0.9995:
            return figures.number(value / (1e3 if letter == "k" else power)), letter
    return f"{value:.0f}", ""
