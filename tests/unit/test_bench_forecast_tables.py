"""The forecast bench's streams and tables, on answers that are made up."""

import math
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from appliance.calibrate.sharper import Score, SharperReport
from appliance.forecast import conformal
from bench import forecast_drift as drift
from bench import forecast_table as table
from bench.forecast_runs import Sharpened
from bench.forecast_unseen import Forecasted, Unseen
from tests.unit.bundle_parts import lognormal

LIMIT = 300
CALM = conformal.Table().offsets("")


def answers(count: int, factor: float = 1.0) -> list[drift._Answer]:
    """As long as foreseen, times a factor, and cut at a limit."""
    rng, found = np.random.default_rng(5), []
    for number in range(count):
        median = (40.0, 90.0, 160.0)[number % 3]
        length = max(1, round(factor * median * math.exp(0.6 * rng.normal())))
        raw = lognormal(median, 0.6)
        found.append(drift._Answer(raw, min(length, LIMIT), length > LIMIT))
    return found


@pytest.fixture
def one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "DRAWS", 1)


@pytest.mark.usefixtures("one_stream")
def test_bounds_hold_again_after_lengths_have_doubled() -> None:
    found = drift._run("twice as long", answers(400), answers(400, 2.0), CALM, 1)
    assert found.before == pytest.approx(0.9, abs=0.03)
    assert found.first >= 0.85
    assert found.later == pytest.approx(0.9, abs=0.03)
    assert found.still_later < 0.8, "bounds that nobody moves do not hold"
    assert found == drift._run("twice as long", answers(400), answers(400, 2.0), CALM, 1)


@pytest.mark.usefixtures("one_stream")
def test_a_stream_is_as_long_however_few_answers_there_are() -> None:
    found = drift._run("none", answers(12), answers(12), CALM, 1)
    assert found.answers == 12
    figures = [v for v in msgspec.structs.astuple(found) if isinstance(v, float)]
    assert len(figures) == 6
    assert all(math.isfinite(value) for value in figures)


def test_every_figure_of_a_drift_has_a_column() -> None:
    one = drift.Stream(
        change="half as long", answers=7, before=0.91, first=0.86, later=0.9, still_first=0.97,
        still_later=0.98, bound=321.0,
    )  # fmt: skip
    head, line = table.streams((one,))
    assert "200 after" in head
    assert line.split() == [
        "half", "as", "long", "7", "0.910", "0.860", "0.900", "0.970", "0.980", "321",
    ]  # fmt: skip


def forecasted(kendall: float) -> Forecasted:
    return Forecasted(
        mae=130.5, crps=90.1, kendall=kendall, rank_accuracy=0.81, coverage_90=0.97,
        coverage_90_below=math.nan,
    )  # fmt: skip


@pytest.mark.parametrize("read", [True, False])
def test_unseen_sources_are_told_of_both_forecasts(read: bool) -> None:
    found = Unseen(
        sources=2, answers=90, mae={"forecaster": 130.5, "global median": 188.2},
        behind={"global median": (40.0, 70.0)}, first=forecasted(0.377),
        second=forecasted(0.43) if read else None, worst={"star": 0.91},
    )  # fmt: skip
    told = "\n".join(table.unseen(found))
    assert "tau 0.377, rank 0.810" in told
    assert ("once the prompt is read: MAE 130.5, tau 0.430" in told) == read
    assert "+40.0 to +70.0 more than ours" in told


def test_the_second_forecast_stands_beside_a_ridge_on_what_it_reads() -> None:
    level = _Level(0.9, 0.908)
    report = SharperReport(
        answers=440, parameters=9753, before=Score(mae=120.7, crps=80.7, kendall=0.417),
        after=Score(mae=110.6, crps=74.7, kendall=0.47), levels=(level,),  # type: ignore[arg-type]
    )  # fmt: skip
    _, line = table.sharper([Sharpened(report=report, ridge_mae=129.5, ridge_kendall=0.5)])
    assert line.startswith("split 0   120.7   110.6")
    assert line.endswith("0.908   ridge: MAE 129.5, tau 0.500")


@dataclass
class _Level:
    level: float
    corrected: float
