"""Answers that have ended are judged: by the packaged forecaster's head, for who asks, once."""

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from appliance.config import Config
from appliance.engine.commands import Submit
from appliance.engine.reports import Delta, Finished, Signals, Started
from appliance.forecast.bundle import Bundle
from appliance.forecast.dataset import Answered, Signal
from appliance.forecast.embedders import embedder
from appliance.forecast.encoder import Encoder
from appliance.forecast.forecaster import Forecaster, Served
from appliance.forecast.judge import Judge, judge_of
from appliance.forecast.quality import COMPONENTS, NAMES, Head, Tally
from appliance.forecast.qualityfit import features_of
from appliance.forecast.question import Question
from appliance.forecast.versions import Versions
from appliance.models import ModelFile, check
from appliance.observe.forecastmetrics import ForecastMetrics
from appliance.verdicts import Verdicts
from tests.unit.api_box import Step, chat, client_of, counts, events_of, ledger_of
from tests.unit.bundle_parts import DIMENSIONS, Hashed
from tests.unit.forecast_parts import Teller, forecasting, long_answer

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
SIGNALS = [Signal(8, -4.0, 2.5, -0.7), Signal(16, -1.5, 1.0, -0.2)]
PROMPT, ANSWER = (1, 9, 4, 77, 250), (33, 260, 261, 8, 2)


@pytest.fixture(scope="module")
def model() -> ModelFile:
    return check(Config())


@pytest.fixture(scope="module")
def forecaster(model: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forecaster]:
    state = tmp_path_factory.mktemp("state")
    found = Forecaster.open(Served(model.name, model.sha256, model.path, state))
    yield found
    found.close()


def packaged(model: ModelFile, state: Path) -> Bundle:
    found = Versions(state, model.sha256).load()
    assert found is not None
    return found[1]


def head(width: int = DIMENSIONS, bias: float = 0.0) -> Head:
    """Whatever it is asked, it says sigmoid(`bias`)."""
    weights = np.zeros(1 + len(NAMES) + COMPONENTS)
    weights[0] = bias
    both = 2 * width
    return Head(np.zeros((COMPONENTS, both), np.float32), np.zeros(both, np.float32), weights)


# -- the packaged head -----------------------------------------------------------------------------


def test_the_packaged_forecaster_judges_as_calibration_does(
    forecaster: Forecaster, model: ModelFile, tmp_path: Path
) -> None:
    answer = Answered(
        id="a", sample=0, temperature=0.7, top_p=0.95, max_tokens=9, seed=1, finish_reason="stop",
        prompt_tokens=5, completion_tokens=5, token_ids=ANSWER, signals=tuple(SIGNALS),
    )  # fmt: skip
    bundle = packaged(model, tmp_path)
    assert bundle.refine is not None
    fitted = Head.from_arrays(bundle.refine)
    assert fitted is not None
    reads = bundle.pipeline.attached(embedder(bundle.manifest.embedder, model.path, Encoder()))
    prompt, said = (reads.embed(Question((), ids)) for ids in (PROMPT, ANSWER))
    reads.close()
    judge = forecaster.judge
    assert judge is not None
    assert judge.claim == fitted.claim
    told = judge.told(features_of(answer), PROMPT, ANSWER)
    assert told == pytest.approx(fitted.told(features_of(answer), prompt, said), abs=1e-4)


def test_another_answer_to_the_same_prompt_is_judged_otherwise(forecaster: Forecaster) -> None:
    judge = forecaster.judge
    assert judge is not None
    features = Tally().features(5, True)
    found = {judge.told(features, PROMPT, ids) for ids in (ANSWER, (500, 501), (9000, 12))}
    assert len(found) == 3
    assert all(value is not None and 0 < value < 1 for value in found)


def test_any_thread_may_ask_and_all_are_told_the_same(forecaster: Forecaster) -> None:
    judge = forecaster.judge
    assert judge is not None
    answers = [tuple(range(start, start + 90)) for start in range(100, 4000, 100)]
    features = Tally().features(90, True)
    alone = [judge.told(features, PROMPT, answer) for answer in answers]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda a: judge.told(features, PROMPT, a), answers * 4))
    assert together == alone * 4


def test_once_its_forecaster_is_gone_nothing_is_told_and_that_is_counted(
    model: ModelFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = Forecaster.open(Served(model.name, model.sha256, model.path, tmp_path))
    judge = found.judge
    assert judge is not None
    found.reload()
    with caplog.at_level(logging.ERROR):
        assert judge.told(Tally().features(5, True), (400, 401), (402, 403)) is None
        assert judge.told(Tally().features(5, True), (400, 401), (402, 403)) is None
    assert judge.failed == 2
    assert len(caplog.records) == 1, "the log says it once"
    assert found.judge is not judge
    assert found.judge is not None
    assert found.judge.told(Tally().features(5, True), (400, 401), (402, 403)) is not None
    found.close()
    assert found.judge is None


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [((), ()), ((-1, 1 << 40), (5,)), ((5,), (10**9,) * 300), ((7,) * 100_000, (8,) * 100_000)],
)
def test_odd_tokens_are_judged_all_the_same(
    forecaster: Forecaster, prompt: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    assert forecaster.judge is not None
    value = forecaster.judge.told(Tally().features(len(answer), False), prompt, answer)
    assert value is not None
    assert 0 < value < 1


def test_features_that_are_no_numbers_give_no_verdict() -> None:
    judge = Judge(head(), Hashed())
    assert judge.told([float("nan")] * len(NAMES), PROMPT, ANSWER) is None
    assert judge.failed == 1


# -- what cannot judge -----------------------------------------------------------------------------


def test_a_forecaster_without_a_head_or_without_token_rows_judges_nothing() -> None:
    assert judge_of(None, Hashed) is None
    assert judge_of({}, Hashed) is None
    assert judge_of(head().arrays(), lambda: None) is None
    assert judge_of(head().arrays(), Hashed) is not None


@pytest.mark.parametrize("spoilt", ["width", "version", "nan"])
def test_a_head_that_does_not_fit_judges_nothing_and_the_log_says_why(
    spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    arrays = head(DIMENSIONS + (spoilt == "width")).arrays()
    if spoilt == "version":
        arrays["quality_version"] = np.array([99, 0])
    elif spoilt == "nan":
        arrays["quality_weights"] = arrays["quality_weights"] * np.nan
    with caplog.at_level(logging.WARNING):
        assert judge_of(arrays, Hashed) is None
    assert "not judged" in caplog.text


# -- one request -----------------------------------------------------------------------------------


class Counting:
    """A judge that counts how often it is asked, and what it was given."""

    claim = "confidence"

    def __init__(self) -> None:
        self.asked: list[tuple[list[float], Sequence[int], Sequence[int]]] = []

    def told(
        self, features: Sequence[float], prompt: Sequence[int], answer: Sequence[int]
    ) -> float | None:
        self.asked.append((list(features), prompt, answer))
        return 0.25 if len(answer) < 9 else None


def ended(choice: int = 0, *, stop_type: Any = "eos", tokens: int = 5) -> Finished:
    return Finished("r", choice, "stop", stop_type, "", counts(3, tokens))


def test_a_verdict_is_made_once_of_what_was_heard() -> None:
    judge = Counting()
    found = Verdicts(judge, PROMPT, 1)
    found.answers = [ANSWER]
    for signal in SIGNALS:
        found.signal(0, signal)
    assert found.of(0) is None, "it has not ended"
    found.ended(ended())
    assert found.of(0) == 0.25
    assert found.row() == {"confidence_after": [0.25], "claim_after": "confidence"}
    tally = Tally()
    for signal in SIGNALS:
        tally.add(signal)
    assert judge.asked == [(tally.features(5, True), PROMPT, ANSWER)]


@pytest.mark.parametrize(("stop_type", "tokens"), [("none", 5), ("eos", 0)])
def test_of_what_was_cancelled_or_is_empty_nothing_is_told(stop_type: str, tokens: int) -> None:
    judge = Counting()
    found = Verdicts(judge, PROMPT, 1)
    found.answers = [ANSWER]
    found.ended(ended(stop_type=stop_type, tokens=tokens))
    assert (found.row(), judge.asked) == ({}, [])


def test_each_choice_has_its_own_and_an_answer_that_ran_to_its_limit_was_not_ended() -> None:
    judge = Counting()
    found = Verdicts(judge, PROMPT, 3)
    found.answers = [ANSWER, ANSWER * 2, ANSWER]
    for choice, stop in enumerate(("limit", "eos", "none")):
        found.ended(ended(choice, stop_type=stop))
    assert found.row()["confidence_after"] == [0.25, None, None]
    assert [features[NAMES.index("ended")] for features, _, _ in judge.asked] == [0.0, 1.0]


def test_two_threads_that_ask_at_once_are_told_one_verdict() -> None:
    judge, gate = Counting(), threading.Barrier(2)
    found = Verdicts(judge, PROMPT, 1)
    found.answers = [ANSWER]
    found.ended(ended())

    def ask() -> float | None:
        gate.wait(30)
        return found.of(0)

    with ThreadPoolExecutor(2) as pool:
        assert [one.result() for one in [pool.submit(ask), pool.submit(ask)]] == [0.25, 0.25]
    assert len(judge.asked) == 1


# -- clients, the ledger, metrics ----------------------------------------------------------------


def judging(bias: float = 0.0) -> Teller:
    teller = Teller()
    teller.judge = Judge(head(bias=bias), Hashed())
    return teller


def verdicts(answer: Any) -> list[Any]:
    return [choice.get("confidence_after") for choice in answer["choices"]]


HALF = {"value": 0.5, "claim": "confidence"}


@pytest.mark.parametrize("n", [1, 2])
async def test_who_asks_for_the_forecast_is_told_of_each_choice(tmp_path: Path, n: int) -> None:
    async with forecasting(tmp_path, judging(), long_answer) as box:
        asked = chat(n=n, return_forecast=True)
        told = (await client_of(box).post(CHAT, json=asked)).json()
        plain = (await client_of(box).post(CHAT, json=chat(n=n))).json()
    assert verdicts(told) == [HALF] * n
    assert "confidence_after" not in json.dumps(plain)


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
async def test_a_stream_tells_it_with_the_end_of_a_choice(tmp_path: Path, path: str) -> None:
    body = chat() if path == CHAT else {"prompt": "hi"}
    async with forecasting(tmp_path, judging(), long_answer) as box:
        asked = {**body, "stream": True, "return_forecast": True}
        said = await client_of(box).post(path, json=asked)
        whole = (await client_of(box).post(path, json={**asked, "stream": False})).json()
    chunks = [json.loads(one) for one in events_of(said.text) if one != "[DONE]"]
    told = [one for chunk in chunks for one in _judged(chunk)]
    assert told == [HALF] == _judged(whole)


def _judged(answer: Any) -> list[Any]:
    found = answer.get("choices", [answer])
    return [one["confidence_after"] for one in found if "confidence_after" in one]


async def test_the_final_row_keeps_it_whether_anybody_asked_or_not(tmp_path: Path) -> None:
    async with forecasting(tmp_path, judging(bias=1.0), long_answer) as box:
        await client_of(box).post(CHAT, json=chat(n=2))
    (entry,) = ledger_of(box).requests
    assert entry.forecast is not None
    assert entry.forecast["confidence_after"] == [0.7311, 0.7311]
    assert entry.forecast["claim_after"] == "confidence"
    assert entry.forecast["version"] == "v7", "beside what was told before it ran"


async def test_what_the_model_told_on_the_way_is_judged(tmp_path: Path) -> None:
    hears = head()
    hears.weights[1 + NAMES.index("logprob_mean")] = 1.0
    teller = Teller()
    teller.judge = Judge(hears, Hashed())
    async with forecasting(tmp_path, teller, long_answer) as box:
        await client_of(box).post(CHAT, json=chat())
    (entry,) = ledger_of(box).requests
    assert entry.forecast is not None
    assert entry.forecast["confidence_after"] == [0.4378], "of a log-probability of -0.25"


async def test_without_a_judge_nothing_is_told_and_nothing_is_missing(tmp_path: Path) -> None:
    async with forecasting(tmp_path, Teller(), long_answer) as box:
        answer = (await client_of(box).post(CHAT, json=chat(return_forecast=True))).json()
    (entry,) = ledger_of(box).requests
    assert "confidence_after" not in json.dumps(answer)
    assert entry.forecast is not None
    assert "confidence_after" not in entry.forecast


class Broken(Hashed):
    def embed(self, question: Question) -> Any:
        raise OSError("the model file became shorter")


async def test_a_judge_that_fails_costs_no_answer_and_is_counted(tmp_path: Path) -> None:
    teller = Teller()
    teller.judge = Judge(head(), Broken())
    async with forecasting(tmp_path, teller, long_answer) as box:
        answer = await client_of(box).post(CHAT, json=chat(return_forecast=True))
        assert answer.status_code == 200
        registry = CollectorRegistry()
        ForecastMetrics(registry, box.forecasts)
        assert "steelyard_forecast_failures_total 1.0" in generate_latest(registry).decode()
    (entry,) = ledger_of(box).requests
    assert entry.forecast is not None
    assert "confidence_after" not in entry.forecast


async def test_metrics_count_what_is_told_and_what_failed(tmp_path: Path) -> None:
    async with forecasting(tmp_path, judging(bias=1.0), long_answer) as box:
        registry = CollectorRegistry()
        ForecastMetrics(registry, box.forecasts)
        await client_of(box).post(CHAT, json=chat(n=2))
        text = generate_latest(registry).decode()
    name = "steelyard_forecast_confidence_after"
    assert f"{name}_count 2.0" in text
    assert f'{name}_bucket{{le="0.7"}} 0.0' in text
    assert f'{name}_bucket{{le="0.8"}} 2.0' in text
    assert "steelyard_forecast_failures_total 0.0" in text


async def test_an_answer_that_was_cancelled_has_no_verdict_in_its_row(tmp_path: Path) -> None:
    def cut(submit: Submit) -> Sequence[Step]:
        return [
            Started(submit.id, 1.0, 0),
            Delta(submit.id, 0, "a" * 8, (97,) * 8),
            Signals(submit.id, 0, 8, -1.0, 1.5, -0.25),
            Finished(submit.id, 0, "deadline", "none", "", counts(2, 8)),
        ]

    async with forecasting(tmp_path, judging(), cut) as box:
        assert (await client_of(box).post(CHAT, json=chat())).status_code == 408
    (entry,) = ledger_of(box).requests
    assert entry.forecast is not None
    assert "confidence_after" not in entry.forecast
