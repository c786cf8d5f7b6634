"""A whole calibration as a process sees it: what is installed, what is refused, what is left."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.calibrate import job, material
from appliance.calibrate.answers import Sampling
from appliance.calibrate.catalogue import install
from appliance.calibrate.fit import Made, Order
from appliance.calibrate.gather import Box, Sources
from appliance.calibrate.job import Task, _install, _nothing_new, _wishes
from appliance.calibrate.status import Status, StatusFiles
from appliance.cli import run
from appliance.config import Config, ServerConfig
from appliance.forecast.bundle import Bundle
from appliance.forecast.versions import Versions
from tests.unit.calibrate_parts import MODEL, cases, made_of, shuffled


@pytest.fixture(autouse=True, scope="module")
def no_encoder() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(material, "KIN", "none")
    yield
    patch.undo()


@pytest.fixture(scope="module")
def useless(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of(shuffled(cases(60, signals=False)), tmp_path_factory.mktemp("useless"))


def task(tmp_path: Path, **given: Any) -> Task:
    sampling = Sampling(samples=1, temperature=0.7, top_p=0.95, max_tokens=8)
    sources = Sources(
        prompts=None, answers=(), generate=True, sampling=sampling, share=0.5, minutes=None
    )
    fields: dict[str, Any] = {
        "config": Config(server=ServerConfig(state_dir=tmp_path)), "sources": sources,
        "box": Box("http://127.0.0.1:9", "", ""), "install": "if-better", "output": None,
        "min_new": 0, "by": "alice", "order": Order(embedder="none"),
    }  # fmt: skip
    return Task(**{**fields, **given})


def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path, MODEL.sha256)


def test_what_does_not_win_is_not_installed_unless_it_shall_be(
    useless: Made, tmp_path: Path
) -> None:
    found = _install(task(tmp_path), useless, versions(tmp_path))
    assert (found.installed, found.done) == (False, "not installed")
    assert versions(tmp_path).list() == ()
    found = _install(task(tmp_path, install="always"), useless, versions(tmp_path))
    assert (found.installed, found.version) == (True, "v0001")
    assert found.coverage_pct is not None
    assert found.answers == 120


def test_a_file_that_is_asked_for_is_written_and_nothing_installed(
    useless: Made, tmp_path: Path
) -> None:
    target = tmp_path / "smol.forecaster"
    found = _install(task(tmp_path, output=target), useless, versions(tmp_path))
    assert Bundle.read(target).manifest.name == "smol"
    assert not found.installed
    assert versions(tmp_path).list() == ()


def test_a_file_that_cannot_be_written_leaves_nothing_behind(useless: Made, tmp_path: Path) -> None:
    folder = tmp_path / "x.forecaster"
    folder.mkdir()
    with pytest.raises(OSError, match=r"x\.forecaster"):
        _install(task(tmp_path, output=folder), useless, versions(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["x.forecaster"]


def test_by_itself_the_box_calibrates_only_when_enough_is_new(
    useless: Made, tmp_path: Path
) -> None:
    assert _nothing_new(cases(60), versions(tmp_path), 0) == ""
    assert _nothing_new(cases(60), versions(tmp_path), 100) == ""
    assert "120 new answers are fewer than 200" in _nothing_new(cases(60), versions(tmp_path), 200)
    install(versions(tmp_path), useless.bundle)
    assert "20 new answers are fewer than 100" in _nothing_new(cases(70), versions(tmp_path), 100)


def test_signals_are_wishes_to_stop(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    files = StatusFiles(tmp_path)
    with _wishes(files) as wished:
        files.wish("hold")
        assert wished() == "hold"
        os.kill(os.getpid(), signal.SIGTERM)
        assert wished() == "stop"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_model_that_is_not_there_is_the_status_and_not_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "NICE", 0)
    monkeypatch.setattr(job, "setproctitle", lambda title: None)
    config = task(tmp_path).config
    missing = replace(config, model=replace(config.model, path="/none.gguf"))
    told: list[Status] = []
    ended = job.calibrate(task(tmp_path, config=missing), told.append)
    assert ended.status.state == "failed"
    assert "Correct model.path" in ended.status.problem
    assert StatusFiles(tmp_path).read() == ended.status
    assert not StatusFiles(tmp_path).running


# -- the command line ----------------------------------------------------------------------------


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_SERVER_STATE_DIR", str(tmp_path))
    return tmp_path


def test_before_any_calibration_the_commands_say_how_to_begin(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", "status"]) == 0
    assert "`steelyard calibrate` starts one" in capsys.readouterr().out
    for command in ("pause", "resume", "stop"):
        assert run(["calibrate", command]) == 1
        assert "starts one" in capsys.readouterr().err


def test_a_calibration_that_runs_is_paused_from_another_terminal(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = StatusFiles(at_home)
    with files.take():
        for command, wish in (("pause", "hold"), ("resume", "go"), ("stop", "stop")):
            assert run(["calibrate", command]) == 0
            assert files.wished == wish


@pytest.mark.parametrize(
    "words",
    [
        ["--prompts", "/none.jsonl"],
        ["--samples", "0"],
        ["--install", "maybe"],
        ["--max-tokens", "1"],
    ],
)
def test_options_out_of_bounds_are_refused(
    at_home: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *words]) == 2
    assert words[0] in capsys.readouterr().err
