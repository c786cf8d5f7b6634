"""`steelyard study` against a real box, on tiny experiments."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance import models
from appliance.cli import run
from appliance.config import ModelConfig
from tests.box.conftest import Start
from tests.box.running import RunningBox

PICTURE = b"\x89PNG"


def report_of(folder: Path, name: str) -> dict[str, Any]:
    """The report; beside it must lie what else a study writes."""
    assert (folder / f"{name}.png").read_bytes().startswith(PICTURE)
    assert "<svg" in (folder / f"{name}.svg").read_text()
    assert (folder / "table.txt").stat().st_size > 100
    found: dict[str, Any] = json.loads((folder / "report.json").read_bytes())
    assert found["experiment"] == name
    return found


def study(box: RunningBox, name: str, folder: Path, *options: str) -> int:
    return run(["study", name, "--url", box.url, "--output", str(folder), *options])


GRID = ("--temperatures", "0,0.9", "--top-ps", "0.7,1", "--samples", "2", "--max-tokens", "12")


def test_grid_tells_lengths_of_each_setting(
    box: RunningBox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study(box, "grid", tmp_path, "--number", "2", *GRID) == 0
    assert "Length of answers by temperature and top_p" in capsys.readouterr().out
    found = report_of(tmp_path, "grid")
    cells = [(cell["temperature"], cell["top_p"]) for cell in found["cells"]]
    assert cells == [(0, None), (0.9, 0.7), (0.9, 1)]
    assert [cell["lengths"]["answers"] for cell in found["cells"]] == [2, 4, 4]
    assert all(0 < cell["lengths"]["mean"] <= 12 for cell in found["cells"])


def test_finished_study_asks_nothing_when_it_is_run_again(box: RunningBox, tmp_path: Path) -> None:
    options = ("--number", "1", "--temperatures", "0.9", "--top-ps", "1", "--samples", "2",
               "--max-tokens", "8")  # fmt: skip
    assert study(box, "grid", tmp_path, *options) == 0
    before = (tmp_path / "answers.jsonl").read_bytes()
    (tmp_path / "answers.jsonl").write_bytes(before[:-3])  # as a crash leaves it
    assert study(box, "grid", tmp_path, *options) == 0
    after = (tmp_path / "answers.jsonl").read_bytes()
    assert len(after.splitlines()) == len(before.splitlines()) == 3
    assert study(box, "grid", tmp_path, *options) == 0
    assert (tmp_path / "answers.jsonl").read_bytes() == after


def test_answers_to_other_settings_are_never_mixed_in(
    box: RunningBox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--number", "1", "--temperatures", "0", "--max-tokens")
    assert study(box, "grid", tmp_path, *options, "8") == 0
    assert study(box, "grid", tmp_path, *options, "9") == 1
    assert "another study" in capsys.readouterr().err
    assert study(box, "grid", tmp_path, *options, "9", "--fresh") == 0


def test_prompts_part_the_spread_of_length(box: RunningBox, tmp_path: Path) -> None:
    options = ("--quick", "--number", "3", "--max-tokens", "10", "--temperature", "1")
    assert study(box, "prompts", tmp_path, *options) == 0
    found = report_of(tmp_path, "prompts")
    assert found["rows"][0]["name"] == "plain"
    assert len(found["rows"]) == 5
    assert set(found["components"]) == {"prompts", "perturbations", "interaction", "samples"}


def test_limits_and_stop_strings_are_kept_to_the_token(box: RunningBox, tmp_path: Path) -> None:
    assert study(box, "limits", tmp_path, "--number", "4", "--max-tokens", "60") == 0
    found = report_of(tmp_path, "limits")
    kinds = {outcome["kind"] for outcome in found["outcomes"]}
    assert {"L-2", "L-1", "L", "stop 3"} <= kinds
    assert min(found["natural"]) < 60, "an answer that ends by itself must be among them"
    assert "L+2" in kinds
    assert {outcome["bias"] for outcome in found["outcomes"]} == {0}
    assert found["exact"]


def test_own_prompts_are_read_and_one_that_is_too_long_is_left_out(
    box: RunningBox, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    asked = {"short": "Say hello.", "long": "weight " * 3000}
    lines = [
        json.dumps({"id": name, "messages": [{"role": "user", "content": text}]})
        for name, text in asked.items()
    ]
    file.write_text("\n".join(lines))
    options = ("--temperatures", "0", "--max-tokens", "8", "--prompts", str(file))
    assert study(box, "grid", tmp_path / "out", *options) == 0
    found = report_of(tmp_path / "out", "grid")
    assert found["prompts"] == 1
    assert found["left_out"] == ["long"]


def test_box_with_keys_refuses_a_study_without_one_and_says_what_to_do(
    start_box: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    box = start_box()
    made = box.admin("POST", "/admin/keys", json={"name": "study", "scopes": ["infer"]}).json()
    options = ("--number", "1", "--temperatures", "0", "--max-tokens", "8")
    assert study(box, "grid", tmp_path, *options) == 1
    assert "STEELYARD_API_KEY" in capsys.readouterr().err
    monkeypatch.setenv("STEELYARD_API_KEY", made["secret"])
    assert study(box, "grid", tmp_path, *options) == 0


def test_interrupted_study_keeps_what_was_answered(box: RunningBox, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    command = ["study", "grid", "--url", box.url, "--output", str(tmp_path), "--parallel", "1"]
    started = [sys.executable, "-m", "appliance", *command]
    with subprocess.Popen(started, stderr=subprocess.PIPE) as process:
        try:
            box.wait_until(
                lambda: answers.exists() and len(answers.read_bytes().splitlines()) > 2,
                60,
                "answers",
            )
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"it goes on" in said
    assert len(answers.read_bytes().splitlines()) > 2
    box.wait_until(lambda: box.busy_slots() == 0, 30, "its requests end with it")


def test_bytes_of_the_model_s_own_tokens_are_as_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEELYARD_ENGINE_THREADS", "1")
    monkeypatch.setenv("STEELYARD_SERVER_STATE_DIR", str(tmp_path / "state"))
    text = tmp_path / "text"
    text.write_text("The old scales in the market hall\n今天早上仓库里\n")
    output = tmp_path / "out"
    options = ["--text", str(text), "--tokens", "12", "--output", str(output)]
    assert run(["study", "bytes", *options]) == 0
    found = report_of(output, "bytes")
    assert [line["group"] for line in found["lines"]] == ["Chinese", "Latin", "all"]
    assert all(abs(line["z"]) < 5 for line in found["lines"])
    assert sum(found["predicted"]) <= 1 + 1e-9


def test_model_compared_with_itself_has_no_drift(tmp_path: Path) -> None:
    model = str(models.locate(ModelConfig()))
    assert run(["study", "tokens", model, model, "--output", str(tmp_path)]) == 0
    found = report_of(tmp_path, "tokens")
    assert {group["ratio"] for group in found["groups"]} == {1.0}
    assert all(group["a"]["lossless"] for group in found["groups"])


def test_file_that_is_no_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no model")
    model = str(models.locate(ModelConfig()))
    assert run(["study", "tokens", model, str(tmp_path / "x.gguf")]) == 1
    assert "it is not a GGUF file" in capsys.readouterr().err
