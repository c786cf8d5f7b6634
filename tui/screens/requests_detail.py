"""One live request told: its stages, forecast and cost so far. Pure."""

from collections.abc import Sequence

from appliance.frames import RequestRow
from tui.figures import NONE, duration, money
from tui.lines import Line, Span, line, wrap
from tui.screens.requests_rows import (
    short,
    state_of,
)
from tui.view import View


def brief(row: RequestRow, view: View) -> list[Line]:
    """The three lines below the table."""
    words = view.words
    first = "  ".join(
        (
            words(
                "requests.one",
                id=short(view.foreign(row.id)),
                tenant=view.foreign(row.tenant),
                scenario=view.foreign(row.scenario) or NONE,
            ),
            words(
                "requests.one.flags",
                flags=_flags(row, view),
                limit=row.limit_tok,
                tier=view.foreign(row.tier),
            ),
        )
    )
    return [line(Span(first, "bold")), live_stages(row, view), line(f" {_forecast(row, view)}")]


def _flags(row: RequestRow, view: View) -> str:
    """In front of what follows; nothing where there are none."""
    return "".join(f"{view.foreign(flag)} " for flag in row.flags) + " " * bool(row.flags)


def live(row: RequestRow, view: View) -> list[Line]:
    """All that is known of a request that has not ended."""
    words, foreign = view.words, view.foreign
    texts = [
        words("requests.detail.id", id=foreign(row.id)),
        words(
            "requests.detail.who",
            whose=foreign(row.key),
            tenant=foreign(row.tenant),
            scenario=foreign(row.scenario) or NONE,
            route="",
        ),
        words(
            "requests.one.flags",
            flags=_flags(row, view),
            limit=row.limit_tok,
            tier=foreign(row.tier),
        ),
        state_of(row, view),
        _forecast(row, view),
        words("requests.detail.row.none"),
        words("requests.detail.answer.live"),
    ]
    lines = wrapped(texts[:4], view.width)
    return [*lines, live_stages(row, view), *wrapped(texts[4:], view.width)]


def live_stages(row: RequestRow, view: View) -> Line:
    """` queue 0.20 s > prefill 0.09 s > DECODE 3.40 s > end`: capitals are where it is."""
    prefill = row.run_ms if row.state == "prefill" else row.prefill_ms
    times = (
        ("waiting", "queue", duration(row.wait_ms)),
        ("prefill", "prefill", passed(prefill, row.state == "decode")),
        ("decode", "decode", _decode(row)),
    )
    parts = [
        stage(view.words(f"requests.stage.{name}"), time, row.state == state)
        for state, name, time in times
    ]
    return line(" ", *joined([*parts, Span(view.words("requests.stage.end"))]))


def passed(ms: float | None, known_to_be: bool) -> str:
    """A stage that was passed took time, even where nobody measured it."""
    return duration(ms) if ms is not None or known_to_be else NONE


def _decode(row: RequestRow) -> str:
    """Only streams tell when the first token came; of others the time since the start is known."""
    if row.state != "decode" or row.run_ms is None:
        return NONE
    if row.prefill_ms is None:
        return f"<{duration(row.run_ms)}"
    return duration(max(0, row.run_ms - row.prefill_ms))


def stage(name: str, time: str, here: bool) -> Span:
    """Where a script has no capitals, dots say the same."""
    if not here:
        return Span(f"{name} {time}")
    loud = name.upper()
    return Span(f"{loud} {time}{' ...' if loud == name else ''}", "bold")


def joined(parts: Sequence[Span]) -> list[Span]:
    spans: list[Span] = []
    for part in parts:
        spans += [Span(" > "), part] if spans else [part]
    return spans


def _forecast(row: RequestRow, view: View) -> str:
    currency = f" {view.foreign(view.live.currency)}" if view.live and view.live.currency else ""
    price = "" if row.cost is None else f"  ~{money(row.cost)}{currency}"
    if row.p50_tok is None:
        return view.words("requests.forecast.none", gen=row.gen_tok, cost=price)
    known = {"p10": or_none(row.p10_tok), "p50": row.p50_tok, "p90": or_none(row.p90_tok)}
    if row.first_p50_tok is None:
        return view.words("requests.forecast", gen=row.gen_tok, cost=price, **known)
    first = row.first_p50_tok
    return view.words("requests.forecast.first", first=first, gen=row.gen_tok, cost=price, **known)


def or_none(value: int | None) -> str:
    return NONE if value is None else str(value)


def wrapped(texts: Sequence[str], width: int) -> list[Line]:
    return [line(row) for text in texts for row in wrap(text, width)]
