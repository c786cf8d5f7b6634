"""The forecaster's second forecast of a request, made of the first logits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.bundle_parts import first_logits, make_bundle, make_forecaster, question
from tests.unit.test_forecast_forecaster import told


def test_first_logits_make_a_second_forecast_of_the_same_request(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    assert forecaster.snapshot.sharpens
    first = forecaster.answer(question(max_tokens=4096))
    second = forecaster.sharpen(first, first_logits())
    assert (first.stage, second.stage) == (0, 1)
    assert second.at_first is first
    assert told(second) != told(first)
    p10, p50, p90, p99, mean = told(second)
    assert 1 <= p10 <= p50 <= p90 <= p99 <= 4096
    assert 1 <= mean <= 4096
    assert (second.version, second.state, second.route) == ("test-1", "ok", "chat")
    assert forecaster.sharpen(second, first_logits()) is second, "it is made once"


def test_other_logits_make_another_forecast(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    first = forecaster.answer(question(max_tokens=4096))
    found = {told(forecaster.sharpen(first, first_logits(seed))) for seed in range(4)}
    assert len(found) > 1


@pytest.mark.parametrize(
    "values", [b"", b"short", bytes(513), np.full(128, np.nan, "<f4").tobytes()]
)
def test_what_are_no_logits_leave_the_forecast_and_are_counted(
    tmp_path: Path, values: bytes
) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    first = forecaster.answer(question())
    assert forecaster.sharpen(first, values) is first
    forecaster.observe(first, 10, False)
    assert forecaster.snapshot.failed == 1


def test_where_there_is_no_second_network_the_first_forecast_stays(tmp_path: Path) -> None:
    plain = make_forecaster(tmp_path, replace(make_bundle(), first=None))
    assert not plain.snapshot.sharpens
    forecast = plain.answer(question())
    assert plain.sharpen(forecast, first_logits()) is forecast
    (tmp_path / "none").mkdir()
    without = make_forecaster(tmp_path / "none")
    forecast = without.answer(question())
    assert without.sharpen(forecast, first_logits()) is forecast
    assert without.snapshot.failed == 0


def test_both_forecasts_of_a_request_are_learned_from_and_told_apart(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    neighbours = forecaster.snapshot.neighbours
    for index in range(120):
        first = forecaster.answer(question(f"thing {index}", max_tokens=1 << 20))
        second = forecaster.sharpen(first, first_logits(index))
        forecaster.pending([(second, 5)])
        forecaster.observe(second, second.p90 + 1, False)
    snapshot = forecaster.snapshot
    stages = {one.stage: one for one in snapshot.routes}
    assert stages[0].observed == stages[1].observed == snapshot.observed == 120
    assert stages[1].coverage == pytest.approx(0.0, abs=0.02)
    assert stages[0].coverage != stages[1].coverage
    assert snapshot.coverage == stages[0].coverage, "it is that of what was told before"
    assert snapshot.sharp_coverage == stages[1].coverage
    assert snapshot.sharp_pinball is not None
    assert snapshot.sharp_pinball != snapshot.pinball
    assert snapshot.neighbours == neighbours + 120
    assert forecaster.sharpen(forecaster.answer(question()), first_logits()).state == "uncalibrated"
