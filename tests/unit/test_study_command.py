"""`steelyard study` as it is typed, where no box is needed."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from appliance.cli import run, steelyard
from appliance.commands.study import study_group

NOWHERE = ("--url", "http://127.0.0.1:1")


def test_every_experiment_is_named_and_tells_its_options() -> None:
    assert set(study_group.commands) == {"grid", "prompts", "limits", "tokens", "bytes"}
    for name in study_group.commands:
        shown = CliRunner().invoke(steelyard, ["study", name, "--help"])
        assert shown.exit_code == 0
        assert "--output" in shown.output


@pytest.mark.parametrize("name", ["grid", "prompts", "limits"])
def test_experiments_on_a_box_share_their_options(name: str) -> None:
    shown = CliRunner().invoke(steelyard, ["study", name, "--help"]).output
    for option in ("--url", "--key-file", "--cacert", "--prompts", "--number", "--parallel",
                   "--quick", "--fresh", "--max-tokens"):  # fmt: skip
        assert option in shown


@pytest.mark.parametrize("name", ["grid", "prompts", "limits"])
def test_without_a_box_it_is_said_what_to_do_and_nothing_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert run(["study", name, *NOWHERE, "--output", str(folder)]) == 1
    told = capsys.readouterr().err
    assert "no box answers at http://127.0.0.1:1" in told
    assert "steelyard serve" in told
    assert not folder.exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--temperatures", "warm"],
        ["--temperatures", "0,6"],
        ["--temperatures", "nan"],
        ["--temperatures", ""],
        ["--top-ps", "0"],
        ["--top-ps", "0.5,1.1"],
        ["--samples", "0"],
        ["--max-tokens", "7"],
        ["--parallel", "65"],
        ["--number", "0"],
        ["--prompts", "/nowhere"],
    ],
    ids=" ".join,
)
def test_option_out_of_its_bounds_is_refused(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", "grid", *NOWHERE, *options]) == 2
    assert options[0] in capsys.readouterr().err


def test_bad_prompts_are_refused_before_the_box_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("{}")
    assert run(["study", "grid", *NOWHERE, "--prompts", str(file)]) == 1
    assert "p.jsonl, line 1" in capsys.readouterr().err


def test_key_file_that_holds_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe")
    assert run(["study", "grid", *NOWHERE, "--key-file", str(file)]) == 1
    assert "cannot be read as a key" in capsys.readouterr().err


def test_missing_model_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "tokens", "none-a.gguf", "none-b.gguf"]) == 1
    assert "none-a.gguf: no such file" in capsys.readouterr().err


def test_text_that_is_none_is_refused_before_a_model_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"\xff")
    assert run(["study", "tokens", "none.gguf", "none.gguf", "--text", str(file)]) == 1
    assert "UTF-8" in capsys.readouterr().err
