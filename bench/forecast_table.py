"""The tables that the forecast bench prints."""

from collections.abc import Iterator, Sequence

from appliance.forecast import scores
from appliance.forecast.baselines import GLOBAL, RIVALS
from appliance.forecast.evaluate import OURS, Comparison, Method
from appliance.forecast.refinescore import RefineReport
from bench.forecast_cost import Cost, Int8
from bench.forecast_drift import Stream
from bench.forecast_runs import Floor, Sharpened
from bench.forecast_unseen import Forecasted, Unseen

_COLUMNS = (
    "MAE", "MedAE", "bias", "MedRE", "log", "+-3", "+-10%", "+-25%", "+-50", "tau", "rank", "CRPS",
    "skill", "MAE less ours, 95 %",
)  # fmt: skip


def comparison(found: Comparison) -> Iterator[str]:
    """Every method, then how the forecaster's bounds hold, then parts and progress."""
    yield (
        f"{found.answers} test answers to {found.prompts} prompts of {found.families} families, "
        f"{found.cut:.0%} cut at {found.cap}; trained on {found.train_answers}"
    )
    head = " ".join(f"{name:>6}" for name in _COLUMNS[:-1])
    yield f"{'':26}{head}  {_COLUMNS[-1]}"
    for name, method in found.methods.items():
        yield f"{name:26}{_method(method)}"
    if found.floor is not None:
        yield f"{'noise floor':26}{found.floor:6.1f}"
    if found.skill_interval is not None:
        low, high = found.skill_interval
        yield f"skill {found.methods[OURS].skill:.3f} (95 % {low:.3f} to {high:.3f})"
    yield from _bounds(found)
    yield from _parts(found)
    yield from _progress(found)


def sharper(found: Sequence[Sharpened]) -> Iterator[str]:
    """The forecast of the request alone beside the one with the first logits, each split a row."""
    yield (
        f"{'':8}{'MAE':>16}{'CRPS':>16}{'tau':>16}{'90 %':>8}   before, once the prompt is read; "
        "a ridge on the first logits alone"
    )
    for number, each in enumerate(found):
        one = each.report
        ninety = next(level.corrected for level in one.levels if level.level == 0.9)
        pairs = (
            (one.before.mae, one.after.mae, 1),
            (one.before.crps, one.after.crps, 1),
            (one.before.kendall, one.after.kendall, 3),
        )
        cells = " ".join(f"{a:7.{places}f} {b:7.{places}f}" for a, b, places in pairs)
        alone = f"MAE {each.ridge_mae:.1f}, tau {each.ridge_kendall:.3f}"
        yield f"split {number} {cells} {ninety:7.3f}   ridge: {alone}"


def _method(one: Method) -> str:
    shares = (one.within_3, one.within_10_percent, one.within_25_percent, one.within_50)
    errors = (one.mae, one.medae, one.bias)
    cells = [
        *(f"{value:6.1f}" for value in errors),
        *(f"{value:6.2f}" for value in (one.medre, one.log_error)),
        *(f"{100 * value:5.1f}%" for value in shares),
        f"{one.kendall:6.3f}",
        f"{one.rank_accuracy:6.3f}",
        _maybe(one.crps, 1),
        _maybe(one.skill, 3),
        f" {one.behind[0]:+.1f} to {one.behind[1]:+.1f}",
    ]
    return " ".join(cells)


def _maybe(value: float | None, places: int) -> str:
    return f"{'-':>6}" if value is None else f"{value:6.{places}f}"


def _bounds(found: Comparison) -> Iterator[str]:
    yield ""
    yield "pinball " + " ".join(f"q{tau} {loss:.1f}" for tau, loss in found.pinball.items())
    for name, figures in (
        ("upper 90 %", found.upper_90),
        ("upper 95 %", found.upper_95),
        ("central 90 %", found.central_90),
    ):
        yield f"{name:14}" + ", ".join(f"{key} {value:.3g}" for key, value in figures.items())
    told = ", ".join(f"{level:g}: {share:.3f}" for level, share in found.reliability)
    yield f"at or below the quantile (uncorrected, no cap): {told}"


def _parts(found: Comparison) -> Iterator[str]:
    yield ""
    yield f"{'source':36}{'n':>5}{'MAE':>8}{'global':>8}{'bias':>8}{'90 %':>7}"
    for one in (*found.thirds, *found.sources):
        yield (
            f"{one.name:36}{one.answers:5}{one.mae:8.1f}{one.global_mae:8.1f}{one.bias:+8.1f}"
            f"{one.coverage:7.2f}"
        )


def _progress(found: Comparison) -> Iterator[str]:
    yield ""
    yield f"{'generated':12}{'n':>6}{'countdown':>11}{'residual':>10}{'global':>8}   MAE"
    for step in found.progress:
        yield (
            f"{step.place:12}{step.answers:6}{step.countdown:11.1f}{step.residual:10.1f}"
            f"{step.alone:8.1f}"
        )
    yield f"{'ends within':12}{'n':>6}{'Brier':>9}{'ECE':>8}{'AUROC':>8}{'  global: Brier':>17}"
    for end in found.ends:
        own, alone = end.residual, end.alone
        yield (
            f"{end.horizon:<12}{own['count']:6.0f}{own['brier']:9.4f}{own['ece']:8.4f}"
            f"{own['auroc']:8.3f}{alone['brier']:17.4f}"
        )


def unseen(found: Unseen) -> Iterator[str]:
    yield f"every source left out in turn: {found.sources} sources, {found.answers} answers"
    for name, mae in found.mae.items():
        behind = found.behind.get(name)
        tail = f"  {behind[0]:+.1f} to {behind[1]:+.1f} more than ours" if behind else ""
        yield f"  {name:26}{mae:7.1f}{tail}"
    yield f"  {_forecasted(found.first)}"
    if found.second is not None:
        yield f"  once the prompt is read: {_forecasted(found.second)}"
    worst = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.worst.items())
    yield f"  hardest, MAE over the global median's: {worst}"


def _forecasted(one: Forecasted) -> str:
    return (
        f"MAE {one.mae:.1f}, tau {one.kendall:.3f}, rank {one.rank_accuracy:.3f}, CRPS "
        f"{one.crps:.1f}, 90 % bound {one.coverage_90:.3f} ({one.coverage_90_below:.3f} below the "
        "cap)"
    )


def streams(found: tuple[Stream, ...]) -> Iterator[str]:
    yield (
        f"{'change':16}{'n':>6}{'before':>9}{'200 after':>11}{'later':>8}{'unmoved: 200':>14}"
        f"{'later':>8}{'bound':>8}"
    )
    for one in found:
        yield (
            f"{one.change:16}{one.answers:6}{one.before:9.3f}{one.first:11.3f}{one.later:8.3f}"
            f"{one.still_first:14.3f}{one.still_later:8.3f}{one.bound:8.0f}"
        )


def int8(found: Int8) -> str:
    low, high = found.crps_interval
    return (
        f"INT8 / FP32 on {found.provider}: CRPS {found.crps_ratio:.4f} ({low:+.2f} to {high:+.2f} "
        f"tokens), quality RMSE {found.quality_rmse:.4f}, rows per second "
        f"{found.throughput_ratio:.2f} one at a time, {found.batch_ratio:.2f} by 256"
    )


def cost(found: Cost) -> str:
    return (
        f"one forecast, ms p50 (p99): vector {found.embed[0]:.2f} ({found.embed[1]:.2f}), rest "
        f"{found.answer[0]:.2f} ({found.answer[1]:.2f})"
    )


def floor(found: Floor) -> str:
    return (
        f"noise floor {found.mae:.1f}, tau ceiling {found.tau:.3f}, from {found.prompts} prompts "
        f"with four answers; a perfect forecast would miss by about {found.perfect:.1f}"
    )


def others(found: list[Comparison], level: Floor) -> Iterator[str]:
    """Main figures of every split, in a line each. Strict skill counts from a perfect forecast."""
    for number, one in enumerate(found):
        ours = one.methods[OURS]
        strict = scores.skill(one.methods[GLOBAL].mae, ours.mae, level.perfect)
        best = min(one.methods[name].mae for name in RIVALS if name in one.methods)
        yield (
            f"split {number}: MAE {ours.mae:.1f}, best rival {best:.1f}, global "
            f"{one.methods[GLOBAL].mae:.1f}, skill {_maybe(ours.skill, 3).strip()}, strict "
            f"{strict:.3f}, tau {ours.kendall:.3f}, CRPS {_maybe(ours.crps, 1).strip()}"
        )


def in_flight(found: RefineReport) -> Iterator[str]:
    """What the model's signals add while an answer runs."""
    for error in (*found.at, *found.progress):
        figures = ", ".join(f"{name} {mae:.1f}" for name, mae in error.mae.items())
        yield f"in flight, {error.place}: MAE {figures} ({error.n} moments)"
    for end in found.ends:
        figures = "; ".join(
            f"{name} {one.brier:.4f} {one.ece:.4f} {one.auroc:.3f}"
            for name, one in end.scores.items()
        )
        yield f"in flight, ends within {end.horizon}: Brier, ECE, AUROC of {figures}"
