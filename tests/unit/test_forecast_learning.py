"""The forecaster while it serves: what it learns from, when it does not hold, and reloads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.forecast.conformal import TAUS
from appliance.forecast.learning import MOST_ROUTES, Learning
from appliance.forecast.spelling import Spelling
from appliance.forecast.versions import Versions
from appliance.gguf.vocabulary import Vocabulary
from tests.unit.bundle_parts import (
    MODEL,
    Failing,
    make_bundle,
    make_forecaster,
    packaged,
    question,
    texts,
)

# Learning


def test_global_distribution_learns_from_what_ends(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path)
    rng = np.random.default_rng(1)
    for length in np.exp(rng.normal(np.log(200), 0.4, size=300)).astype(int):
        forecaster.observe(forecaster.answer(question(max_tokens=4096)), int(length), False)
    forecast = forecaster.answer(question(max_tokens=4096))
    assert forecast.p50 == pytest.approx(200, rel=0.2)
    assert forecast.p90 == pytest.approx(200 * np.exp(1.28 * 0.4), rel=0.25)
    assert forecaster.snapshot.observed == 300
    assert forecaster.snapshot.coverage == pytest.approx(0.9, abs=0.04)


def test_answers_cut_by_their_limit_do_not_make_lengths_short(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path)
    rng = np.random.default_rng(2)
    for length in np.exp(rng.normal(np.log(200), 0.4, size=400)).astype(int):
        limit = int(rng.integers(64, 512))
        forecast = forecaster.answer(question(max_tokens=limit))
        forecaster.observe(forecast, min(int(length), limit), bool(length > limit))
    assert forecaster.answer(question(max_tokens=4096)).p50 == pytest.approx(200, rel=0.25)


def test_each_route_learns_its_own_lengths(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path)
    for _ in range(64):
        for route, length in (("chat", 300), ("completions", 20)):
            forecast = forecaster.answer(question(route=route, max_tokens=4096))
            forecaster.observe(forecast, length, False)
    medians = [
        forecaster.answer(question(route=route, max_tokens=4096)).p50
        for route in ("chat", "completions", "new")
    ]
    assert medians[0] > 4 * medians[1]
    assert {one.route for one in forecaster.snapshot.routes} == {"chat", "completions"}


def test_network_that_is_too_short_is_corrected(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    rng = np.random.default_rng(3)
    for text in texts(200):
        forecast = forecaster.answer(question(text, max_tokens=100_000))
        assert forecast.corrected is not None
        true = forecast.corrected.raw.quantile(float(rng.uniform(0.01, 0.99)))
        forecaster.observe(forecast, 2 * true, False)
    snapshot = forecaster.snapshot
    assert snapshot.bias > 0.3
    assert snapshot.routes[0].bias == snapshot.bias
    fresh = forecaster.answer(question("anew", max_tokens=100_000))
    assert fresh.corrected is not None
    assert fresh.p50 > 1.3 * fresh.corrected.raw.quantile(0.5)


def test_bounds_that_do_not_hold_make_it_uncalibrated_until_they_do(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    rng = np.random.default_rng(4)

    def serve(n: int, factor: float) -> list[str]:
        states = []
        for index in range(n):
            forecast = forecaster.answer(question(f"thing {index}", max_tokens=1 << 20))
            assert forecast.corrected is not None
            length = forecast.corrected.raw.quantile(float(rng.uniform(0.001, 0.999))) * factor
            forecaster.observe(forecast, max(1, round(length)), False)
            states.append(forecaster.snapshot.state)
        return states

    assert set(serve(120, 1.0)) == {"ok"}
    drifted = serve(120, 4.0)
    assert "uncalibrated" in drifted
    assert forecaster.answer(question()).state in ("ok", "uncalibrated")
    at = drifted.index("uncalibrated")
    assert at > 5
    assert serve(400, 4.0)[-1] == "ok"


def test_uncalibrated_says_so_in_each_forecast_and_in_the_snapshot(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    for index in range(110):
        forecast = forecaster.answer(question(f"thing {index}", max_tokens=1 << 20))
        assert forecast.corrected is not None
        bound = forecast.corrected.bounds[TAUS.index(0.9)]
        forecaster.observe(forecast, round(bound) + 1, False)
    assert forecaster.answer(question()).state == "uncalibrated"
    assert forecaster.snapshot.state == "uncalibrated"
    assert "0 % of answers were within their 90 % bound" in forecaster.snapshot.problem


def test_ended_answers_become_neighbours(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    before = forecaster.snapshot.neighbours
    forecaster.observe(forecaster.answer(question("a")), 17, False)
    forecaster.observe(forecaster.answer(question("b")), 0, True)  # nothing came of it
    assert forecaster.snapshot.neighbours == before + 1
    assert len(make_bundle().neighbours) == before


def test_running_requests_are_heard(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    told_before = forecaster.answer(question(max_tokens=1 << 20))
    running = [forecaster.answer(question(f"r{n}", max_tokens=1 << 20)) for n in range(50)]
    forecaster.pending((forecast, 100_000) for forecast in running)
    assert forecaster.answer(question(max_tokens=1 << 20)).p90 > told_before.p90


def test_score_of_a_forecaster_is_not_that_of_what_is_told_when_it_fails(tmp_path: Path) -> None:
    bad = Failing(lambda question: question.turns[0].text == "bad")
    forecaster = make_forecaster(tmp_path, make_bundle(), make_embedder=lambda name: bad)
    for _ in range(150):
        forecaster.observe(forecaster.answer(question("bad", max_tokens=1 << 20)), 90_000, False)
    snapshot = forecaster.snapshot
    assert (snapshot.state, snapshot.coverage, snapshot.pinball) == ("ok", None, None)


def test_pinball_is_of_what_the_client_could_see(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path)
    assert forecaster.snapshot.pinball is None
    forecast = forecaster.answer(question(max_tokens=8))
    forecaster.observe(forecast, 3, True)  # cancelled: nobody knows
    assert forecaster.snapshot.pinball is None
    forecaster.observe(forecast, 8, True)  # its limit: known
    assert forecaster.snapshot.pinball is not None


def test_ledger_fills_neighbours_and_the_global_distribution(tmp_path: Path) -> None:
    vocabulary = Vocabulary("gpt2", tuple(b"abcdefghij"[at : at + 1] for at in range(10)), ())
    forecaster = make_forecaster(tmp_path, make_bundle(), spelling=lambda: Spelling(vocabulary))
    rows = [((1, 2, n % 10), 400, False) for n in range(20)]
    bad: Any = [(None, 5, False), ((1, 2), 0, True)]
    assert forecaster.rebuild(iter(rows + bad[1:])) == 20
    assert forecaster.rebuild(bad[:1]) == 0
    assert forecaster.snapshot.neighbours == 60
    assert forecaster.snapshot.observed == 0
    (tmp_path / "alone").mkdir()
    alone = make_forecaster(tmp_path / "alone")
    before = alone.answer(question(max_tokens=4096)).p50
    assert alone.rebuild(rows) == 20
    assert alone.answer(question(max_tokens=4096)).p50 > before


def test_prompts_whose_words_cannot_be_known_are_no_neighbours(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())  # its model's file is not there
    assert forecaster.rebuild([((1, 2), 400, False)] * 3) == 3
    assert forecaster.snapshot.neighbours == 40
    assert forecaster.snapshot.failed == 0


def test_many_routes_share_a_bounded_memory() -> None:
    learning = Learning()
    for n in range(10 * MOST_ROUTES):
        learning.remember(f"route {n}", 10, False)
        learning.tracker(False, f"route {n}")
    assert len(learning._hazards) <= MOST_ROUTES + 1
    assert len(learning._trackers) <= MOST_ROUTES + 1


# Another version


def test_reload_goes_over_to_what_was_installed_and_back(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path)
    versions = Versions(tmp_path, MODEL, packaged(tmp_path))
    versions.install(make_bundle(name="one"))
    assert forecaster.answer(question()).state == "global"
    assert forecaster.reload().version == "one"
    versions.install(make_bundle(name="two"))
    assert forecaster.reload().version == "two"
    old = forecaster.answer(question())
    versions.rollback()
    assert forecaster.reload().version == "one"
    neighbours = forecaster.snapshot.neighbours
    forecaster.observe(old, 50, False)  # told by the other version: its error is not this one's
    assert forecaster.snapshot.observed == 0
    assert forecaster.snapshot.neighbours == neighbours


def test_reload_of_a_broken_version_goes_global_and_comes_back(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle(name="from-the-box"))
    version = Versions(tmp_path, MODEL, packaged(tmp_path)).install(make_bundle(name="broken"))
    version.path.write_bytes(b"?")
    assert forecaster.reload().state == "global"
    (tmp_path / "forecasters" / MODEL[:12] / "current").write_text("packaged\n")
    assert forecaster.reload().version == "from-the-box"
