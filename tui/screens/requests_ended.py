"""One ended request told whole: its stages, tokens, digest and place in the chain. Pure."""

from collections.abc import Sequence

from tui import moments
from tui.figures import NONE, UNKNOWN, duration, number
from tui.heat import Token, heat
from tui.lines import Line, Span, line
from tui.screens.requests_detail import joined, or_none, passed, stage, wrapped
from tui.screens.requests_rows import Ended, abridged, cost, forecast_of, outcome_of, short
from tui.view import View

MOST_TOKENS = 4000
"""Of one answer on the screen; the file that `w` writes has all."""


def stages(row: Ended, view: View) -> Line:
    """The stages that it has been through."""
    times = (
        ("prepare", row.prepare_ms),
        ("queue", row.wait_ms),
        ("prefill", row.prefill_ms),
        ("decode", row.decode_ms),
    )
    parts = [
        stage(view.words(f"requests.stage.{name}"), passed(ms, False), False) for name, ms in times
    ]
    end = Span(f"{view.words('requests.stage.end')} {duration(row.total_ms)}")
    return line(" ", *joined([*parts, end]))


def brief(row: Ended, view: View) -> list[Line]:
    """The three lines below the table."""
    words = view.words
    first = words(
        "requests.one",
        id=short(view.foreign(row.id)),
        tenant=view.foreign(row.tenant),
        scenario=view.foreign(row.scenario) or NONE,
    )
    return [
        line(Span(f"{first}  {_ending(row, view)}", "bold")),
        stages(row, view),
        line(f" {_place(row, view, brief=True)}"),
    ]


def _ending(row: Ended, view: View) -> str:
    return view.words(
        "requests.detail.end",
        outcome=outcome_of(row, view),
        status=row.status or NONE,
        code=f" {view.foreign(row.code)}" if row.code else "",
        when=moments.shown(row.wall_ns / 1e6),
    )


def _place(row: Ended, view: View, *, brief: bool = False) -> str:
    hash = view.foreign(row.hash)
    if brief:
        return view.words("requests.detail.row", seq=row.seq, hash=abridged(hash))
    return view.words("requests.detail.hash", seq=row.seq, hash=hash)


def whole(row: Ended, answers: Sequence[Sequence[Token]] | None, view: View) -> list[Line]:
    """All that is known of a request that has ended. `answers`: tokens by choice."""
    facts = [view.words("requests.detail.id", id=view.foreign(row.id)), _ending(row, view)]
    facts += _how(row, view)
    lines = wrapped(facts, view.width)
    lines += [stages(row, view)]
    lines += wrapped([*_work(row, view), *_proof(row, view)], view.width)
    return [*lines, *_answers(answers, view)]


def _how(row: Ended, view: View) -> list[str]:
    words, foreign = view.words, view.foreign
    flags = ("stream",) * row.stream + ("exclusive",) * row.exclusive
    return [
        words(
            "requests.detail.who",
            whose=foreign(row.key_name) or NONE,
            tenant=foreign(row.tenant),
            scenario=foreign(row.scenario) or NONE,
            route=foreign(row.route),
        ),
        words(
            "requests.detail.how",
            model=foreign(row.model),
            limit=row.max_tokens,
            tier=foreign(row.tier),
            flags="".join(f" {flag}" for flag in flags),
        ),
    ]


def _work(row: Ended, view: View) -> list[str]:
    words = view.words
    told = [
        words(
            "requests.detail.tokens",
            prompt=row.prompt_tokens,
            cached=row.cached_tokens,
            computed=row.prefill_tokens,
            gen=row.completion_tokens,
            hidden=row.hidden_tokens,
        ),
        _forecast(row, view),
        *_refined(row, view),
        *_quality(row, view),
        words("requests.detail.engine", parallel=row.parallel, preemptions=row.preemptions),
    ]
    if row.drafted_tokens:
        told.append(
            words(
                "requests.detail.drafts", drafted=row.drafted_tokens, accepted=row.accepted_tokens
            )
        )
    told.append(_costs(row, view))
    if row.energy_uj is not None:
        told.append(
            words(
                "requests.detail.energy",
                joules=number(row.energy_uj / 1e6),
                source=view.foreign(row.energy_source),
            )
        )
    return told


def _forecast(row: Ended, view: View) -> str:
    p10, p50, p90 = forecast_of(row)
    gen = row.completion_tokens
    if p50 is None:
        return view.words("requests.forecast.none", gen=gen, cost="")
    known = {"p10": or_none(p10), "p50": p50, "p90": or_none(p90)}
    return view.words("requests.forecast", gen=gen, cost="", **known)


def _refined(row: Ended, view: View) -> list[str]:
    """The median as it was foreseen while the answer grew; nothing where nobody looked."""
    found = (row.forecast or {}).get("at_end")
    pairs = [one for one in found if _are_counts(one)] if isinstance(found, list) else []
    told = [view.words("requests.detail.refined.at", at=at, p50=p50) for at, p50 in pairs]
    return [view.words("requests.detail.refined", told=", ".join(told))] if told else []


def _are_counts(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(one, int) and abs(one) < 10**9 for one in pair)
    )


def _quality(row: Ended, view: View) -> list[str]:
    """How good the answer may be: as told once it had ended, and before it began. Nothing where
    that cannot be told."""
    told = row.forecast or {}
    found = told.get("confidence_after")
    after = [_share(value) for value in found] if isinstance(found, list) else []
    if not any(value != UNKNOWN for value in after):
        return []
    claim = "quality" if told.get("claim_after") == "quality" else "confidence"
    before = _share(told.get("confidence"))
    return [view.words(f"requests.detail.{claim}", after=", ".join(after), before=before)]


def _share(value: object) -> str:
    """A number from 0 to 1; whatever else the ledger holds is unknown."""
    known = isinstance(value, int | float) and 0 <= value <= 1
    return f"{value:.2f}" if known else UNKNOWN


def _costs(row: Ended, view: View) -> str:
    costs = row.costs
    if costs is None:
        return view.words("requests.detail.cost.none")
    stages = {name: getattr(costs, name) for name in ("prefill", "decode", "cached", "idle")}
    total = f"{cost(costs.total)} {view.foreign(costs.currency)}"
    told = {name: cost(nano) for name, nano in stages.items()}
    return view.words("requests.detail.cost", total=total, **told)


def _proof(row: Ended, view: View) -> list[str]:
    """Digests, and the place in the chain."""
    words, many = view.words, len(row.choices) > 1
    told = []
    for at, choice in enumerate(row.choices):
        key = "requests.detail.digest.of" if many else "requests.detail.digest"
        told.append(words(key, choice=at, digest=view.foreign(choice.digest) or NONE))
    told.append(_place(row, view))
    if row.recovered:
        told.append(words("requests.detail.recovered"))
    if not row.exact:
        told.append(words("requests.detail.inexact"))
    return told


def _answers(answers: Sequence[Sequence[Token]] | None, view: View) -> list[Line]:
    if not answers:
        if answers is None:
            return [line(), line(view.reading("requests.reading"))]
        return [line(), line(view.words("requests.detail.notokens"))]
    lines: list[Line] = []
    for at, tokens in enumerate(answers):
        lines += [line(), *_head(at, tokens, len(answers), view)]
        lines += heat(tokens[:MOST_TOKENS], max(2, view.width), view.foreign)
    return lines


def _head(at: int, tokens: Sequence[Token], choices: int, view: View) -> list[Line]:
    known = any(token.logprob is not None for token in tokens)
    key = "requests.detail.answer" if known else "requests.detail.answer.plain"
    texts = [view.words(key, count=len(tokens))]
    if choices > 1:
        texts.insert(0, view.words("requests.detail.answer.choice", choice=at, count=len(tokens)))
    return wrapped(texts, view.width)
