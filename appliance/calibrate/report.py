"""A calibration's report: one HTML page that needs nothing else, and the same figures as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

import msgspec

from appliance.calibrate import plots
from appliance.calibrate.extras import Bound
from appliance.calibrate.findings import Findings
from appliance.forecast.conformal import ONLINE
from appliance.forecast.evaluate import Method, Source
from appliance.forecast.qualityfit import Told

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --page: #fff; --line: #d5d9de; --soft: #6a7079;
  --good: #2a9d6f; --bad: #d9822b }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --page: #15181b; --line: #363c43;
  --soft: #99a1ab } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 66rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin-top: 2rem }
.soft { color: var(--soft) } .verdict { border-left: 4px solid var(--good); padding: .5rem 1rem }
.verdict.no { border-color: var(--bad) }
table { border-collapse: collapse; width: 100% } td, th { padding: .25rem .5rem; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums }
td:first-child, th:first-child { text-align: left } tr.ours { font-weight: 600 }
.scroll { overflow-x: auto } .plots { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)) }
figure { margin: 0 } figcaption { font-size: .85rem; color: var(--soft) }
svg { width: 100%; height: auto }
"""
_OURS = "forecaster"
_encode = msgspec.json.Encoder(enc_hook=float).encode
"""NumPy's numbers become plain ones."""


def page(found: Findings) -> tuple[bytes, bytes]:
    """report.html and report.json."""
    parts = [*_head(found), *_figures(found), *_tables(found), "</body></html>"]
    return "\n".join(parts).encode(), msgspec.json.format(_encode(found))


def _head(found: Findings) -> Iterator[str]:
    name = escape(found.model)
    yield "<!doctype html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>Forecaster for {name}</title>'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<style>{_STYLE}</style></head><body>"
    yield f"<h1>Forecaster for {name}</h1>"
    yield f'<p class="soft">made {escape(found.created)}, model SHA-256 {found.model_sha256}</p>'
    verdict = "It wins" if found.wins else "It does not win"
    yield f'<p class="verdict{"" if found.wins else " no"}">{verdict}: {escape(found.why)}.</p>'
    yield from (f"<p>{line}</p>" for line in _facts(found))


def _facts(found: Findings) -> Iterator[str]:
    told = found.comparison
    yield (
        f"{sum(found.answers.values())} answers to {sum(found.prompts.values())} prompts, parted "
        f"by families: {_counts(found.prompts)}. {found.cut:.0%} of the answers were cut off, and "
        "counted as longer than they are."
    )
    yield (
        f"All figures below are of min(L, {told.cap}) on {told.answers} answers to {told.prompts} "
        f"prompts of {told.families} families that nothing was learned from. Tokens, unless it "
        "says otherwise."
    )
    yield (
        f"The network has {found.parameters} weights and reads {found.features} features "
        f"(encoder {escape(found.embedder)}); {found.precision} runs. {_int8(found)}"
    )


def _int8(found: Findings) -> str:
    if found.int8 is None:
        return escape(found.int8_problem)
    return f"INT8 changes CRPS by {100 * found.int8.loss:+.2f} % on {found.int8.provider}."


def _counts(parts: dict[str, int]) -> str:
    return ", ".join(f"{escape(part)} {count}" for part, count in parts.items())


# -- plots ---------------------------------------------------------------------------------------


def _figures(found: Findings) -> Iterator[str]:
    yield '<h2>Plots</h2><div class="plots">'
    levels = found.levels
    yield _figure(
        plots.reliability(
            [one.level for one in levels],
            [one.alone for one in levels],
            [one.corrected for one in levels],
        ),
        "Reliability: on the dotted line, bounds hold as often as they say.",
    )
    yield _figure(
        plots.widths([one.p10 for one in found.test], [one.p90 for one in found.test]),
        "Width of the central 80 %: narrow where the prompt tells much.",
    )
    yield _figure(_progress(found), "Error by progress: answers that still run at so many tokens.")
    yield _figure(plots.learning(found.curve), "Learning curve.")
    yield _figure(
        plots.actual(
            [one.p50 for one in found.test],
            [float(one.actual) for one in found.test],
            [one.cut for one in found.test],
        ),
        "Forecast against actual; on the dotted line they are equal.",
    )
    yield "</div>"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _progress(found: Findings) -> str:
    """With the refinement where there is one, on its own answers; else the prior alone."""
    if found.refinement is not None:
        at = [one for one in found.refinement.at if one.n]
        places = [int(one.place.split()[0]) for one in at]
        static = [one.mae["static"] for one in at]
        return plots.progress(places, static, [one.mae["refined"] for one in at])
    fixed = [one for one in found.comparison.progress if one.place.endswith("tokens")]
    places = [int(one.place.split()[0]) for one in fixed]
    residual: list[float | None] = [one.residual for one in fixed]
    return plots.progress(places, [one.countdown for one in fixed], residual)


# -- tables --------------------------------------------------------------------------------------


def _tables(found: Findings) -> Iterator[str]:
    told = found.comparison
    yield "<h2>Every baseline</h2>"
    yield from _table(_METHOD, _methods(found), ours=_OURS)
    if found.without:
        missing = escape(", ".join(found.without))
        yield f'<p class="soft">Left out for want of scikit-learn: {missing}.</p>'
    if told.floor is not None:
        yield (
            f'<p class="soft">Noise floor {told.floor:.1f}: the mean error of telling an answer by '
            "the other answers to the same prompt. Skill is the share of the gap between the "
            f"global median and that floor that is closed{_interval(found)}. Behind: the 95 % "
            "interval of a method's MAE less ours; above 0, ours is better.</p>"
        )
    if (fought := found.duel) is not None:
        seen = " It had learned from some of them." if fought.seen else ""
        yield (
            f"<p>Against {escape(fought.version)}, which was in use, on {fought.prompts} prompts: "
            f"CRPS {fought.new_crps:.1f} for {fought.crps:.1f}, MAE {fought.new_mae:.1f} for "
            f"{fought.mae:.1f}.{seen}</p>"
        )
    yield "<h2>Bounds</h2>"
    yield from _table(_BOUND, _bounds(found))
    if found.guarantee:
        yield (
            f'<p class="soft">As calibrated: {escape(found.guarantee)}. While it serves: '
            f"{ONLINE}.</p>"
        )
    yield "<h2>By source</h2>"
    yield from _table(_SOURCE, map(_source, told.sources))
    yield "<h2>By length</h2>"
    yield from _table(_SOURCE, map(_source, told.thirds))
    yield "<h2>Once the prompt is read</h2>"
    yield from _sharper(found)
    yield "<h2>While it runs</h2>"
    yield from _in_flight(found)
    yield "<h2>Quality</h2>"
    yield from _quality(found)


_METHOD = (
    "", "MAE", "CRPS", "skill", "behind", "median error", "bias", "Kendall tau", "within 3",
    "within 10 %", "within 25 %", "within 50",
)  # fmt: skip
_BOUND = ("bound", "network alone", "corrected", "corrected, below the cap", "of answers")
_SHARPER = ("", "MAE", "CRPS", "Kendall tau")
_RUNNING = (
    "running at", "answers", "first forecast", "given that it runs", "global", "refined",
)  # fmt: skip
_WAY = ("", "AUROC", "of like length", "of one source", "Brier", "ECE", "AURC")
_SOURCE = ("", "answers", "MAE", "bias", "global MAE", "90 % bound covers")


def _interval(found: Findings) -> str:
    if found.comparison.skill_interval is None:
        return ""
    low, high = found.comparison.skill_interval
    return f" (ours: {low:.2f} to {high:.2f} at 95 %)"


def _methods(found: Findings) -> list[Sequence[str]]:
    ordered = sorted(found.comparison.methods.items(), key=lambda one: one[1].mae)
    return [_method(name, method) for name, method in ordered]


def _method(name: str, one: Method) -> Sequence[str]:
    shares = (one.within_3, one.within_10_percent, one.within_25_percent, one.within_50)
    return (
        name,
        f"{one.mae:.1f}",
        "-" if one.crps is None else f"{one.crps:.1f}",
        "-" if one.skill is None else f"{one.skill:.2f}",
        "" if name == _OURS else f"{one.behind[0]:+.1f} to {one.behind[1]:+.1f}",
        f"{one.medae:.1f}",
        f"{one.bias:+.1f}",
        f"{one.kendall:.2f}",
        *(f"{share:.0%}" for share in shares),
    )


def _bounds(found: Findings) -> list[Sequence[str]]:
    return [_bound(one) for one in found.levels]


def _bound(one: Bound) -> Sequence[str]:
    below = "-" if one.corrected_below is None else f"{one.corrected_below:.1%}"
    return (
        f"{one.level:.0%}", f"{one.alone:.1%}", f"{one.corrected:.1%}", below, str(one.below),
    )  # fmt: skip


def _source(one: Source) -> Sequence[str]:
    return (
        one.name, str(one.answers), f"{one.mae:.1f}", f"{one.bias:+.1f}", f"{one.global_mae:.1f}",
        f"{one.coverage:.1%}",
    )  # fmt: skip


def _sharper(found: Findings) -> Iterator[str]:
    if found.sharper_problem:
        yield f'<p class="soft">{escape(found.sharper_problem)}</p>'
    told = found.sharper
    if told is None:
        return
    pairs = (("of the request alone", told.before), ("with the first logits", told.after))
    rows = [
        (name, f"{one.mae:.1f}", f"{one.crps:.1f}", f"{one.kendall:.2f}") for name, one in pairs
    ]
    yield from _table(_SHARPER, rows)
    ninety = next(one for one in told.levels if one.level == 0.9)
    yield (
        f"<p>On {told.answers} answers; {told.parameters} more weights; its 90 % bound covers "
        f"{ninety.corrected:.1%}.</p>"
    )


def _in_flight(found: Findings) -> Iterator[str]:
    if found.refinement is None:
        yield f'<p class="soft">{escape(found.refinement_problem)}</p>'
        yield from _table(_RUNNING[:-1], _prior_alone(found))
        return
    ways = ("static", "residual", "global", "refined")
    rows = [
        (one.place, str(one.n), *_numbers(*(one.mae[way] for way in ways)))
        for one in (*found.refinement.at, *found.refinement.progress)
        if one.n
    ]
    yield from _table(_RUNNING, rows)


def _prior_alone(found: Findings) -> list[Sequence[str]]:
    return [
        (one.place, str(one.answers), *_numbers(one.countdown, one.residual, one.alone))
        for one in found.comparison.progress
    ]


def _quality(found: Findings) -> Iterator[str]:
    if found.quality_problem:
        yield f'<p class="soft">{escape(found.quality_problem)}</p>'
    for told, when in ((found.quality_before, "Before"), (found.quality_after, "After")):
        if told is None:
            continue
        why = f": {escape('; '.join(told.reasons))}" if told.reasons else ""
        yield f"<p>{when} the answer it is told as <b>{told.claim}</b>{why}.</p>"
        yield from _table(_WAY, [_way(name, one) for name, one in told.ways.items()], ours="head")


def _way(name: str, one: Told) -> Sequence[str]:
    within = (one.score.auroc, one.within_lengths, one.within_sources)
    shown = ("-" if value is None else f"{value:.2f}" for value in within)
    return (name, *shown, f"{one.score.brier:.3f}", f"{one.score.ece:.3f}", f"{one.aurc:.3f}")


def _numbers(*values: float) -> Iterator[str]:
    return (f"{value:.1f}" for value in values)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], ours: str = "") -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(cell)}</th>" for cell in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        mark = ' class="ours"' if ours and row[0] == ours else ""
        yield f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"
