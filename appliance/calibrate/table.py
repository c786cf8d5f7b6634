"""A calibration's figures as text, for a terminal of 80 columns."""

import textwrap
from collections.abc import Iterator

from appliance.calibrate.findings import Findings
from appliance.forecast.evaluate import Method

WIDTH = 79
_HEAD = f"{'':26}{'MAE':>7}{'CRPS':>7}{'skill':>7}{'tau':>6}{'+-25 %':>8}{'+-50 tok':>10}"
_RULE = "-" * len(_HEAD)


def text(found: Findings) -> str:
    """The table that `steelyard calibrate` prints."""
    lines = [*_about(found), "", *_methods(found), "", *_bounds(found), *_rest(found)]
    return "\n".join(row for line in lines for row in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ") if len(line) > WIDTH else [line]


def _about(found: Findings) -> Iterator[str]:
    parts = ", ".join(f"{part} {count}" for part, count in found.prompts.items())
    cap = found.comparison.cap
    yield f"{found.model}: {sum(found.answers.values())} answers, prompts {parts}"
    yield (
        f"{found.cut:.0%} of the answers were cut off; compared as min(L, {cap}) on "
        f"{found.comparison.answers} test answers of {found.comparison.families} families"
    )
    yield (
        f"{found.parameters} weights, {found.features} features ({found.embedder}), trained in "
        f"{found.train_seconds:.0f} s"
    )


def _methods(found: Findings) -> Iterator[str]:
    """Every method, best first."""
    yield _HEAD
    yield _RULE
    for name, method in sorted(found.comparison.methods.items(), key=lambda one: one[1].mae):
        yield f"{name[:25]:26}{_row(method)}"
    if found.without:
        yield f"left out for want of scikit-learn: {', '.join(found.without)}"
    floor = found.comparison.floor
    if floor is not None:
        yield f"{'noise floor':26}{floor:7.1f}{'':7}{1.0:7.2f}"


def _row(method: Method) -> str:
    return (
        f"{method.mae:7.1f}{_or_dash(method.crps, 1):>7}{_or_dash(method.skill, 2):>7}"
        f"{method.kendall:6.2f}{100 * method.within_25_percent:7.0f}%"
        f"{100 * method.within_50:9.0f}%"
    )


def _or_dash(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _bounds(found: Findings) -> Iterator[str]:
    alone = " ".join(f"{100 * one.alone:6.1f}" for one in found.levels)
    right = " ".join(f"{100 * one.corrected:6.1f}" for one in found.levels)
    levels = " ".join(f"{100 * one.level:6.0f}" for one in found.levels)
    below = " ".join(f"{_percent(one.corrected_below):>6}" for one in found.levels)
    yield f"{'bound told, %':26}{levels}"
    yield f"{'answers within it':26}{alone}"
    yield f"{'  after correction':26}{right}"
    yield f"{'  of bounds below the cap':26}{below}"


def _quality(found: Findings) -> str:
    if found.quality_before is None:
        return found.quality_problem
    told = found.quality_after or found.quality_before
    auroc = told.ways["head"].score.auroc
    shown = "-" if auroc is None else f"{auroc:.2f}"
    return f"told as {told.claim} (AUROC {shown}){'' if not told.reasons else ': '}" + "; ".join(
        told.reasons[:1]
    )


def _sharper(found: Findings) -> str:
    told = found.sharper
    if told is None:
        return f"no second forecast: {found.sharper_problem}"
    figures = (
        f"MAE {told.after.mae:.1f} for {told.before.mae:.1f}, CRPS {told.after.crps:.1f} for "
        f"{told.before.crps:.1f}, tau {told.after.kendall:.2f} for {told.before.kendall:.2f}"
    )
    return f"{figures}; {'it is told' if told.wins else 'not told: ' + found.sharper_problem}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _rest(found: Findings) -> Iterator[str]:
    if found.int8 is not None:
        yield (
            f"INT8: CRPS {found.int8.crps:.2f} against {found.int8.fp32_crps:.2f} of FP32 "
            f"({100 * found.int8.loss:+.2f} %) on {found.int8.provider}; "
            f"{found.precision} is to run"
        )
    elif found.int8_problem:
        yield f"INT8: {found.int8_problem}; fp32 is to run"
    yield f"once the prompt is read: {_sharper(found)}"
    if found.refinement_problem:
        yield f"in flight: {found.refinement_problem}"
    yield f"quality: {_quality(found)}"
    yield f"{'wins' if found.wins else 'does not win'}: {found.why}"
