"""`steelyard tune` with the real engine and the default model."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.alone import only_daemon
from appliance.config import load
from appliance.engine.commands import Load
from appliance.models import locate
from appliance.tune.engines import Engine
from appliance.tune.probe import ANSWER_TOKENS, PROMPTS
from appliance.tune.search import CannotRun
from appliance.tune.settings import Work

ALL_BUT_FLASH = """
[engine]
context = 1024
threads = 1
threads_batch = 1
batch = 256
ubatch = 256
gpu_layers = 0
kv_type = "f16"
"""


def tune(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "appliance", "tune", *arguments]
    env = {**os.environ, "STEELYARD_STATE": str(home)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_it_measures_keeps_shows_and_forgets(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text(ALL_BUT_FLASH)
    options = ("--config", str(file), "--quick", "--keep-anyway", "--json")
    done = tune(tmp_path, *options, "--prompt-tokens", "64", "--answer-tokens", "8")
    assert done.returncode == 0, done.stderr
    assert "kept" in done.stderr
    entry = json.loads(done.stdout)
    found = entry["found"]
    first = found["trials"][0]
    assert first["change"] == {"flash_attention": "off"}
    assert first["ratio"] > 0
    assert first["answers"] in ("same bits", "same tokens", "other tokens")
    # What changes answers is never taken unasked.
    assert first["verdict"] != "taken" or first["answers"] == "same bits"
    assert entry["settings"] in ({}, {"flash_attention": "off"})
    assert found["base_timing"]["prefill_ms"] > 0
    assert entry["mix"] == {"prompt": 64, "answer": 8, "source": "as told"}

    shown = tune(tmp_path, "show")
    assert "SmolLM2-135M-Instruct" in shown.stdout
    assert "flash_attention off" in shown.stdout
    assert tune(tmp_path, "clear").stdout == "forgotten\n"
    assert "nothing was tuned here yet" in tune(tmp_path, "show").stderr


def test_it_does_not_measure_beside_a_daemon(tmp_path: Path) -> None:
    with only_daemon(tmp_path):
        refused = tune(tmp_path, "--quick")
    assert refused.returncode == 1
    assert "another steelyard serve uses" in refused.stderr


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    opened = Engine(load_of_default(), 120)
    yield opened
    opened.close()


def load_of_default(**changes: object) -> Load:
    options: dict[str, object] = {
        "model_path": str(locate(load(None, env={}).model)), "n_ctx": 1024, "max_sequences": 8,
        "n_batch": 256, "n_ubatch": 128, "threads": 1, "threads_batch": 1, "n_gpu_layers": 0,
        "flash_attention": "on", "kv_type": "f16", "cached_sequences": 0, "draft_tokens": 0,
        "prefill_tokens": 256,
    }  # fmt: skip
    return Load(**{**options, **changes})  # type: ignore[arg-type]


def test_an_engine_answers_alike_each_time_and_tells_its_times(engine: Engine) -> None:
    answers = engine.answers()
    assert len(answers.tokens) == 2 * len(PROMPTS)
    assert {len(one) for one in answers.tokens} == {ANSWER_TOKENS}
    timing = engine.measure(Work(prompt=300, steps=3, parallel=(1, 4)))
    assert timing.prefill_ms > 0
    assert len(timing.decode_ms) == 2
    assert engine.answers() == answers
    assert engine.anonymous_bytes() > 1 << 20


def test_an_engine_that_cannot_open_says_why(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="cannot load the model file"):
        Engine(load_of_default(model_path=str(tmp_path / "none.gguf")), 60)


def test_an_engine_that_is_killed_is_a_setting_that_does_not_run() -> None:
    killed = Engine(load_of_default(), 120)
    killed._process.kill()
    with pytest.raises(CannotRun, match="SIGKILL"):
        killed.answers()
    killed.close()
