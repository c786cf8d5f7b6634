"""Forecasts of a real box: on every answer, in the ledger, over a restart; and never in the way."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from msgspec.structs import replace as changed

from appliance.forecast import export, features, quantize
from appliance.forecast.bundle import Bundle
from appliance.forecast.features import Outcome
from appliance.forecast.refine import HORIZONS, Refiner
from appliance.forecast.signs import NAMES
from appliance.forecast.versions import Versions
from tests.box.answered import MODEL, extra
from tests.box.asking import ask
from tests.box.running import RunningBox
from tests.box.wire import CHAT, HELLO, saying
from tests.unit.bundle_parts import make_manifest, make_network, question, texts

FORECAST = "/v1/forecast"


def told(headers: Mapping[str, str]) -> tuple[int, int, int]:
    """p10, p50, p90 of an answer's headers."""
    low, high = headers["x-forecast-range"].split("-")
    return int(low), int(headers["x-forecast-tokens"]), int(high)


def row_of(box: RunningBox, id: str) -> dict[str, Any]:
    """The final row, once it is written."""
    found: list[dict[str, Any]] = []

    def written() -> bool:
        found[:] = box.admin("GET", f"/admin/requests/{id}").json().get("entries", [])
        return bool(found)

    box.wait_until(written, what=f"the row of {id}")
    return found[-1]


def test_the_official_client_sees_a_forecast_on_every_answer(box: RunningBox) -> None:
    raw = box.client().chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=24, temperature=0
    )
    p10, p50, p90 = told(raw.headers)
    assert 1 <= p10 <= p50 <= p90 <= 24
    answer = raw.parse()
    forecast = row_of(box, answer.id)["forecast"]
    assert 1 <= forecast["p10_tok"] <= forecast["p50_tok"] <= forecast["p90_tok"] <= 24
    assert forecast["state"] in ("ok", "global", "uncalibrated")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/completion"])
def test_text_routes_tell_it_too(box: RunningBox, path: str, stream: bool) -> None:
    answer = box.http.post(path, json={"prompt": "Once", "max_tokens": 5, "stream": stream})
    assert answer.status_code == 200
    assert told(answer.headers)[2] <= 5


def test_a_stream_is_refined_while_it_runs(box: RunningBox) -> None:
    stream = box.client().chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Tell me a long story about the sea."}],
        max_tokens=80,
        temperature=0,
        stream=True,
        extra_body={"return_forecast": True},
    )
    told_ = [extra(c, "forecast") for c in stream if "forecast" in (c.model_extra or {})]
    assert told_[0]["generated"] == 0
    generated = [one["generated"] for one in told_]
    assert generated == sorted(generated)
    assert generated[-1] >= 8
    for one in told_:
        assert one["generated"] <= one["p10"] <= one["p50"] <= one["p90"] <= 80


def test_an_answer_carries_its_forecast_and_signals_when_asked_to(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=20,
        extra_body={"return_forecast": True, "return_signals": True, "ignore_eos": True},
    )
    assert extra(answer, "forecast") == {"generated": 20, "p10": 20, "p50": 20, "p90": 20}
    signals = extra(answer.choices[0], "signals")
    assert [signal[0] for signal in signals] == [8, 16]
    for _, margin, entropy, logprob in signals:
        assert margin <= 0
        assert entropy >= 0
        assert logprob <= 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_ended_is_judged_for_who_asks_and_for_the_ledger(
    box: RunningBox, stream: bool
) -> None:
    body = {"messages": HELLO, "max_tokens": 30, "temperature": 0, "stream": stream}
    said = box.http.post(CHAT, json={**body, "return_forecast": True})
    lines = said.text.splitlines() if stream else [f"data: {said.text}"]
    answers = [json.loads(x[6:]) for x in lines if x.startswith("data: {")]
    (found,) = (
        choice["confidence_after"]
        for answer in answers
        for choice in answer["choices"]
        if "confidence_after" in choice
    )
    assert 0 < found["value"] < 1
    assert found["claim"] in ("quality", "confidence")
    forecast = row_of(box, answers[0]["id"])["forecast"]
    assert (forecast["confidence_after"], forecast["claim_after"]) == (
        [found["value"]],
        found["claim"],
    )
    assert "confidence_after" not in box.http.post(CHAT, json={**body, "max_tokens": 1}).text


def test_slots_and_the_live_rows_tell_what_is_expected(box: RunningBox) -> None:
    asked = ask(box, "Write about mountains.", max_tokens=400, ignore_eos=False, seed=3)
    found: list[dict[str, Any]] = []

    def refined() -> bool:
        found[:] = [s["forecast"] for s in box.slots() if s["is_processing"] and s["forecast"]]
        return bool(found) or asked.over

    box.wait_until(refined, what="a slot with a forecast")
    asked.hang_up()
    if found:  # else the answer had ended before we looked
        assert found[0]["p10"] <= found[0]["p50"] <= found[0]["p90"] <= 400
        assert found[0]["from"] in ("global", "net", "refined")
    box.wait_until(lambda: not box.busy_slots(), what="an idle box")
    assert all(slot["forecast"] is None for slot in box.slots())


def test_a_dry_run_counts_exactly_and_generates_nothing(box: RunningBox) -> None:
    box.wait_idle()
    before = box.http.get("/metrics").text
    body = {"messages": HELLO, "max_tokens": 50}
    found = box.http.post(FORECAST, json=body)
    assert found.status_code == 200
    dry = found.json()
    tokens = dry["output_tokens"]
    assert 1 <= tokens["p10"] <= tokens["p50"] <= tokens["p90"] <= tokens["p99"] <= 50
    assert dry["kv_tokens"] == dry["prompt_tokens"] + tokens["p90"]
    assert dry["queue_position"] == 0
    assert dry["cost"]["low"] == 0  # no prices are set
    real = box.http.post(CHAT, json={**body, "max_tokens": 1}).json()
    assert dry["prompt_tokens"] == real["usage"]["prompt_tokens"]
    counter = "llamacpp:tokens_predicted_total"
    (was,) = (line for line in before.splitlines() if line.startswith(f"{counter} "))
    now = box.http.get("/metrics").text
    (then,) = (line for line in now.splitlines() if line.startswith(f"{counter} "))
    assert float(then.split()[1]) - float(was.split()[1]) == 1


@pytest.mark.parametrize(
    "text", ["", " ", "🙂" * 50, "\u200b" * 300, "ǂʘǃ" * 40, "请用不超过两百字回答。", "\x00\x01"]
)
def test_odd_prompts_are_forecast_all_the_same(box: RunningBox, text: str) -> None:
    answer = box.http.post(FORECAST, json={"messages": [{"role": "user", "content": text}]})
    assert answer.status_code == 200, answer.text
    tokens = answer.json()["output_tokens"]
    assert 1 <= tokens["p10"] <= tokens["p50"] <= tokens["p90"] <= tokens["p99"]


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(box: RunningBox) -> None:
    answer = box.http.post(FORECAST, json={"prompt": [5] * 100_000})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (100_000, 2048)


def test_unknown_fields_stay_refused(box: RunningBox) -> None:
    with pytest.raises(openai.BadRequestError, match="return_forecasts"):
        box.client().chat.completions.create(
            model=MODEL, messages=HELLO, extra_body={"return_forecasts": True}
        )


def command(box: RunningBox, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "appliance", "forecast", *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "STEELYARD_URL": box.url},
        check=False,
    )


def test_the_command_prints_a_small_table_or_what_the_box_said(box: RunningBox) -> None:
    shown = command(box, "How tall is Everest?", "--max-tokens", "30", "--system", "Be brief.")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("prompt     ")
    assert "told by" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    raw = command(box, "How tall is Everest?", "--json")
    assert json.loads(raw.stdout)["output_tokens"]["p50"] > 0


def test_the_command_says_what_went_wrong_without_a_traceback(box: RunningBox) -> None:
    nobody = command(box, "hi", "--url", "http://127.0.0.1:9")
    assert nobody.returncode == 1
    assert "Nothing listens at" in nobody.stderr
    long = command(box, "word " * 4000)
    assert long.returncode == 1
    assert "prompt tokens" in long.stderr
    assert "Traceback" not in nobody.stderr + long.stderr


# -- boxes of their own ----------------------------------------------------------------------------


def short_answers(box: RunningBox, count: int) -> None:
    """Answers that the model ends soon."""
    said = {**saying("Yes."), "max_tokens": 400}
    for _ in range(count):
        answer = box.http.post(CHAT, json={"messages": HELLO, **said})
        assert answer.json()["choices"][0]["finish_reason"] == "stop"


def median(box: RunningBox) -> int:
    body = {"messages": HELLO, "max_tokens": 400}
    return int(box.http.post(FORECAST, json=body).json()["output_tokens"]["p50"])


def cost(box: RunningBox) -> float | None:
    """What the next answer would cost; None where the box does not know its own pace."""
    found: float | None = box.http.post(FORECAST, json={"messages": HELLO}).json()["cost"]["mid"]
    return found


def degraded(box: RunningBox) -> list[str]:
    """What is said of forecasts: the loop beside them may stand still on a busy machine."""
    found = box.http.get("/readyz").json()["degraded"]
    return [why for why in found if why.startswith("forecast")]


def test_what_was_learned_survives_a_restart(tmp_path: Path) -> None:
    prices = {"cost": {"overhead_per_month": 90}}
    with RunningBox.start(tmp_path, **prices) as box:
        state = box.http.post(FORECAST, json={"messages": HELLO}).json()["forecaster"]["state"]
        first = median(box)
        assert cost(box) is None  # it has generated nothing so far
        short_answers(box, 12)
        if state == "global":
            box.wait_until(lambda: median(box) < first, what="a lesson")
        learned = median(box)
        assert box.stop() == 0
    with RunningBox.start(tmp_path, **prices) as again:
        again.wait_until(lambda: cost(again) is not None, what="the pace, from the ledger")
        if state == "global":
            again.wait_until(lambda: median(again) == learned, what="what the ledger remembers")
        answer = again.http.post(CHAT, json={"messages": HELLO, "max_tokens": 3})
        assert told(answer.headers)[2] <= 3


def test_while_forecasts_are_off_everything_else_works(unforecast: RunningBox) -> None:
    box = unforecast
    answer = box.http.post(CHAT, json={"messages": HELLO, "max_tokens": 3})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("x-forecast")]
    assert row_of(box, answer.json()["id"])["forecast"] is None
    refused = box.http.post(FORECAST, json={"messages": HELLO})
    assert refused.status_code == 404
    assert "forecast.enabled" in refused.json()["error"]["message"]
    assert "steelyard_forecast" not in box.http.get("/metrics").text
    assert degraded(box) == []


def test_a_corrupt_forecaster_degrades_the_box_and_serving_goes_on(
    box: RunningBox, tmp_path: Path
) -> None:
    sha = box.http.get("/readyz").json()["model"]["sha256"]
    home = tmp_path / "state" / "forecasters" / sha[:12]
    home.mkdir(parents=True, exist_ok=True)
    (home / "v0001.forecaster").write_bytes(b"PK\x03\x04 no zip at all")
    (home / "current").write_text("v0001\n")
    with RunningBox.start(tmp_path) as own:
        answer = own.http.post(CHAT, json={"messages": HELLO, "max_tokens": 3})
        assert answer.status_code == 200
        assert told(answer.headers)[2] <= 3
        dry = own.http.post(FORECAST, json={"messages": HELLO}).json()
        assert dry["forecaster"] == {"version": "", "state": "global"}
        (why,) = degraded(own)
        assert why.startswith("forecast: the forecaster v0001 is not used")
        assert "steelyard calibrate" in why


def some_forecaster(box: RunningBox) -> Bundle:
    """One for the model of that box; it was never trained."""
    served = box.http.get("/v1/models").json()["data"][0]["meta"]
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, served["n_embd"]))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    fitted = features.fit(
        [question(text) for text in texts(40)],
        vectors.astype(np.float32),
        [[Outcome(int(length), False)] for length in rng.integers(5, 300, 40)],
        np.arange(40),
        embedder="tokens-8-8",
    )
    network = make_network(fitted.pipeline.width)
    made = make_manifest(fitted.pipeline)
    near = np.zeros((2, len(HORIZONS), 2 + len(NAMES)))
    near[:, :, 1] = 1.0  # what the forecast says, whatever the signals say
    return Bundle(
        changed(made, model_sha256=served["sha256"], embedder="tokens-8-8"),
        fitted.pipeline,
        fitted.neighbours,
        network,
        export.fp32(network),
        quantize.int8(network, fitted.matrix),
        Refiner(near, np.zeros((2, 1 + len(NAMES)))).arrays(),
        b"<p>report</p>",
        b"{}",
    )


def test_an_installed_forecaster_forecasts_refines_and_is_named_everywhere(
    box: RunningBox, tmp_path: Path
) -> None:
    bundle = some_forecaster(box)
    Versions(tmp_path / "state", bundle.manifest.model_sha256).install(bundle)
    with RunningBox.start(tmp_path) as own:
        dry = own.http.post(FORECAST, json={"messages": HELLO, "max_tokens": 400}).json()
        name = dry["forecaster"]["version"]
        assert name
        assert dry["forecaster"]["state"] == "ok"
        assert 0 <= dry["confidence"] <= 1
        answer = own.http.post(CHAT, json={"messages": HELLO, "max_tokens": 400})
        assert row_of(own, answer.json()["id"])["forecast"]["version"] == name
        asked = ask(own, "Write about mountains.", max_tokens=300, ignore_eos=False, seed=3)
        found: list[dict[str, Any]] = []

        def refined() -> bool:
            found[:] = [s["forecast"] for s in own.slots() if s["forecast"]]
            return asked.over or any(one["from"] == "refined" for one in found)

        own.wait_until(refined, what="a refined forecast")
        asked.hang_up()
        assert asked.over or found[0]["version"] == name
        live = json.loads(own.http.get("/events?frames=live&once=1").text.split("data: ")[1])
        assert (live["forecaster"], live["forecast_state"]) == (f"{name} CPU INT8", "ok")
        assert f'version="{name}"' in own.http.get("/metrics").text
        assert degraded(own) == []
