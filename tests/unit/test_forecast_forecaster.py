"""The forecaster at work: what it tells, what it learns, and what cannot stop it."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.forecast import export
from appliance.forecast.bundle import Quality
from appliance.forecast.conformal import TAUS
from appliance.forecast.encoder import EncoderError
from appliance.forecast.forecaster import Forecast, Forecaster, Served
from appliance.forecast.question import Question, Turn
from appliance.forecast.sessions import CPU
from appliance.forecast.versions import Versions
from tests.unit.bundle_parts import (
    MODEL,
    OTHER_MODEL,
    Failing,
    Hashed,
    make_bundle,
    make_forecaster,
    make_network,
    make_table,
    packaged,
    question,
)


def told(forecast: Forecast) -> tuple[int, ...]:
    return (forecast.p10, forecast.p50, forecast.p90, forecast.p99, forecast.mean)


# With a forecaster


def test_packaged_forecaster_forecasts_at_once(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    forecast = forecaster.answer(question())
    assert (forecast.version, forecast.state) == ("test-1", "ok")
    assert 1 <= forecast.p10 <= forecast.p50 <= forecast.p90 <= forecast.p99 <= 512
    assert forecast.confidence is not None
    assert 0.0 < forecast.confidence < 1.0
    assert forecast.claim == "confidence"
    snapshot = forecaster.snapshot
    assert (snapshot.state, snapshot.version, snapshot.problem) == ("ok", "test-1", "")
    assert (snapshot.provider, snapshot.precision, snapshot.degraded) == (CPU, "fp32", "")
    assert (snapshot.encoder, snapshot.skill) == ("tokens-8-8", 0.66)
    assert snapshot.neighbours == 40


def test_forecast_is_the_networks_corrected_by_the_calibration(tmp_path: Path) -> None:
    plain = make_forecaster(tmp_path, make_bundle()).answer(question(max_tokens=100_000))
    other = tmp_path / "other"
    other.mkdir()
    table = make_bundle(conformal=make_table(0.4))
    longer = make_forecaster(other, table).answer(question(max_tokens=100_000))
    assert longer.corrected is not None
    assert plain.corrected is not None
    assert longer.corrected.raw.quantiles(TAUS) == plain.corrected.raw.quantiles(TAUS)
    assert longer.p90 == pytest.approx(plain.p90 * np.exp(0.4), rel=0.02)


def test_confidence_is_not_told_where_nothing_was_learned_of_it(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle(quality=Quality()))
    assert forecaster.answer(question()).confidence is None


def test_configured_precision_runs(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle(), precision="int8")
    assert forecaster.snapshot.precision == "int8"
    assert forecaster.answer(question()).state == "ok"


def test_forecaster_prefers_the_precision_it_was_made_with(tmp_path: Path) -> None:
    assert make_forecaster(tmp_path, make_bundle(precision="int8")).snapshot.precision == "int8"


def test_forecaster_made_without_int8_runs_as_it_was_made(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, replace(make_bundle(), int8=None), precision="int8")
    assert (forecaster.snapshot.precision, forecaster.snapshot.degraded) == ("fp32", "")


def test_provider_that_does_not_run_is_degraded_but_forecasts(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle(), providers=["cuda"])
    assert forecaster.snapshot.state == "ok"
    assert "cuda does not run" in forecaster.snapshot.degraded
    assert forecaster.answer(question()).state == "ok"


def test_times_are_of_the_clock_it_was_given(tmp_path: Path) -> None:
    ticks: Iterator[float] = itertools.count(0.0, 0.001)
    forecaster = make_forecaster(tmp_path, make_bundle(), clock=lambda: next(ticks))
    forecaster.answer(question())
    assert forecaster.snapshot.encode_ms == pytest.approx((1.0, 1.0))
    assert forecaster.snapshot.answer_ms == pytest.approx((2.0, 2.0))


# Without, and with a bad one


def test_fresh_model_starts_global_and_says_so(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path)
    forecast = forecaster.answer(question())
    assert (forecast.version, forecast.state, forecast.confidence) == ("", "global", None)
    assert 1 <= forecast.p10 < forecast.p50 < forecast.p90 <= forecast.p99 <= 512
    assert "no forecaster for this model" in forecaster.snapshot.problem
    assert forecaster.manifest is None
    assert forecaster.refine is None


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"not a zip"])
def test_corrupt_version_leaves_it_global_and_says_what_to_do(tmp_path: Path, data: bytes) -> None:
    version = Versions(tmp_path, MODEL).install(make_bundle())
    version.path.write_bytes(data)
    forecaster = make_forecaster(tmp_path)
    assert forecaster.answer(question()).state == "global"
    assert "v0001 is not used" in forecaster.snapshot.problem
    assert "steelyard calibrate" in forecaster.snapshot.problem


def test_version_of_another_model_leaves_it_global(tmp_path: Path) -> None:
    version = Versions(tmp_path, MODEL).install(make_bundle())
    version.path.write_bytes(make_bundle(model_sha256=OTHER_MODEL).pack())
    forecaster = make_forecaster(tmp_path)
    assert forecaster.snapshot.state == "global"
    assert "made for the model" in forecaster.snapshot.problem


def test_foreign_onnx_beside_its_weights_leaves_it_global(tmp_path: Path) -> None:
    bundle = make_bundle()
    foreign = export.fp32(make_network(bundle.network.inputs, seed=5))
    forecaster = make_forecaster(tmp_path, replace(bundle, fp32=foreign))
    assert forecaster.snapshot.state == "global"
    assert "ONNX model is foreign" in forecaster.snapshot.problem


def test_embedder_that_cannot_work_leaves_it_global(tmp_path: Path) -> None:
    def refuse(name: str) -> Any:
        raise EncoderError(f"no embedder is called {name!r}")

    forecaster = make_forecaster(tmp_path, make_bundle(), make_embedder=refuse)
    assert "embedder tokens-8-8 does not work" in forecaster.snapshot.problem
    assert forecaster.answer(question()).state == "global"


def test_encoder_with_the_wrong_hash_is_found_at_the_start(tmp_path: Path) -> None:
    forecaster = make_forecaster(
        tmp_path, make_bundle(), make_embedder=lambda name: Failing(lambda question: True)
    )
    assert "SHA-256 1 instead of 2" in forecaster.snapshot.problem
    assert forecaster.answer(question()).state == "global"


def test_embedder_of_other_dimensions_is_found_at_the_start(tmp_path: Path) -> None:
    class Wide(Hashed):
        def embed(self, question: Question) -> Any:
            return np.ones(99, dtype=np.float32)

    forecaster = make_forecaster(tmp_path, make_bundle(), make_embedder=lambda name: Wide())
    assert "fails at its first question" in forecaster.snapshot.problem


def test_open_reads_the_served_models_own_file(tmp_path: Path) -> None:
    served = Served(
        "tiny", MODEL, tmp_path / "no.gguf", tmp_path, packaged(tmp_path, make_bundle())
    )
    forecaster = Forecaster.open(served)
    assert "the model cannot be read" in forecaster.snapshot.problem
    assert forecaster.answer(question()).state == "global"


# Hostile questions


def test_question_that_breaks_the_embedder_is_answered_global_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Failing(lambda question: question.turns[0].text == "bad")
    forecaster = make_forecaster(tmp_path, make_bundle(), make_embedder=lambda name: bad)
    caplog.clear()
    forecasts = [forecaster.answer(question("bad")) for _ in range(3)]
    assert {forecast.state for forecast in forecasts} == {"global"}
    assert forecaster.answer(question("good")).state == "ok"
    forecaster.observe(forecasts[0], 30, False)
    assert forecaster.snapshot.failed == 3
    assert len(caplog.records) == 1


def test_network_that_gives_no_numbers_is_answered_global(tmp_path: Path) -> None:
    network, spoilt = make_bundle().network, [False]

    def run(names: object, feeds: dict[str, Any]) -> list[Any]:
        logits = network.forward(feeds["features"])
        return [logits * np.float32(np.nan)] if spoilt[0] else [logits]

    runtime = SimpleNamespace(
        SessionOptions=SimpleNamespace,
        get_available_providers=lambda: [CPU],
        InferenceSession=lambda *args, **kwargs: SimpleNamespace(
            get_providers=lambda: [CPU], run=run
        ),
    )
    forecaster = make_forecaster(tmp_path, make_bundle(), runtime=runtime)
    assert forecaster.answer(question()).state == "ok"
    spoilt[0] = True
    assert forecaster.answer(question()).state == "global"


def test_question_that_is_none_is_answered_all_the_same(tmp_path: Path) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    broken = Question(turns=None, prompt=(), route=["no"], max_tokens=100)  # type: ignore[arg-type]
    forecast = forecaster.answer(broken)
    assert forecast.state == "global"
    assert 1 <= forecast.p50 <= 100
    forecaster.observe(forecast, 20, False)
    forecaster.pending([(forecast, 5), (None, 5)])  # type: ignore[list-item]
    assert forecaster.snapshot.failed >= 2


HOSTILE = {
    "empty": question(""),
    "no turns at all": Question(turns=(), prompt=(), max_tokens=50),
    "100k tokens": Question(turns=(Turn("user", "word " * 100_000),), prompt=tuple(range(100_000)),
                            max_tokens=8192),
    "emoji and zero width": question("👩‍👩‍👧‍👦\u200b\u200d\ufeff" * 2000),
    "half a surrogate": question("\ud83d alone"),
    "unknown language": question("ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ"),
    "numbers that are none": replace(question(), temperature=float("nan"), top_p=float("inf")),
    "negative token ids": Question(turns=(), prompt=(-1, 1 << 40), max_tokens=7),
    "a limit beyond all": question(max_tokens=1 << 60),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_question_is_answered_within_its_limit(tmp_path: Path, name: str) -> None:
    forecaster = make_forecaster(tmp_path, make_bundle())
    forecast = forecaster.answer(HOSTILE[name])
    p10, p50, p90, p99, mean = told(forecast)
    assert 1 <= p10 <= p50 <= p90 <= p99 <= HOSTILE[name].max_tokens
    assert 1 <= mean <= HOSTILE[name].max_tokens
    assert forecast.state in ("ok", "global")


@pytest.mark.parametrize("limit", [0, -5])
def test_no_tokens_allowed_are_no_tokens_forecast(tmp_path: Path, limit: int) -> None:
    for bundle in (None, make_bundle()):
        assert told(
            make_forecaster(tmp_path, bundle).answer(question(max_tokens=limit))
        ) == (0,) * 5  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Forecaster:
    return make_forecaster(tmp_path_factory.mktemp("shared"), make_bundle())


@given(text=st.text(max_size=200), limit=st.integers(1, 5000))
def test_any_text_gets_ordered_numbers_within_its_limit(
    shared: Forecaster, text: str, limit: int
) -> None:
    p10, p50, p90, p99, mean = told(shared.answer(question(text, max_tokens=limit)))
    assert 1 <= p10 <= p50 <= p90 <= p99 <= limit
    assert 1 <= mean <= limit
