"""From answers to tables, pictures and JSON, on lengths that are known."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from appliance.forecast.dataset import Message, Prompt
from appliance.study import bytesize, drift, grid, limits, structure
from appliance.study.errors import StudyError
from appliance.study.output import Report, publish
from appliance.study.store import Answer

PROMPTS = [Prompt(id=f"p{i}", messages=(Message("user", f"Why {i}?"),)) for i in range(6)]
GRID = grid.Settings((0.0, 0.5, 1.0), (0.8, 1.0), samples=3, max_tokens=100)
WORDING = structure.Settings(("plain", "polite", "brief"), samples=3, max_tokens=100)


def given(key: str, length: float, limit: int = 100) -> Answer:
    cut = length > limit
    return Answer(
        key=key,
        tokens=limit if cut else max(1, round(length)),
        finish_reason="length" if cut else "stop",
    )


def grid_answers() -> dict[str, Answer]:
    """Hotter is longer; each prompt has its own length."""
    chance = np.random.default_rng(0)
    return {
        job.key: given(job.key, 20 * (1 + job.body["temperature"]) * np.exp(chance.normal(0, 0.5)))
        for job in grid.jobs(PROMPTS, GRID)
    }


def wording_answers(brief: float = 0.5) -> dict[str, Answer]:
    """`brief` halves the length."""
    chance = np.random.default_rng(0)
    factors = {"plain": 1.0, "polite": 1.0, "brief": brief}
    found = {}
    for number, job in enumerate(structure.jobs(PROMPTS, WORDING)):
        name = job.key.split()[1]
        base = 10 * (2 + number // 9)
        found[job.key] = given(job.key, base * factors[name] * np.exp(chance.normal(0, 0.1)))
    return found


def grid_report(answers: dict[str, Answer] | None = None) -> grid.Report:
    return grid.report("small", "ab", PROMPTS, GRID, answers or grid_answers())


def wording_report(answers: dict[str, Answer] | None = None) -> structure.Report:
    found = wording_answers() if answers is None else answers
    return structure.report("small", "ab", PROMPTS, WORDING, found)


def limits_report(delivered: int = 10) -> limits.Report:
    outcomes = (
        limits.Outcome("p0", "L-1", 10, "", 10, delivered, True, True),
        limits.Outcome("p0", "L", 11, "", 11, 11, True, True),
        limits.Outcome("p0", "stop 3", 20, "abc", 7, 7, True, True),
    )
    return limits.Report("small", "ab", 1, (), limits.Settings(), (11,), outcomes)


def drift_report() -> drift.Report:
    side = drift.Side(10, 0.5, 0.5, 1.2, True)
    lossy = drift.Side(20, 1.0, 1.0, 2.4, False)
    group = drift.Group("English", 2, 20, 20, 8, side, lossy, 2.0, (1.5, 2.0, 2.5), 3.0)
    return drift.Report(drift.Model("a.gguf", 10), drift.Model("b.gguf", 20), (group,))


def bytes_report() -> bytesize.Report:
    line = bytesize.Line("all", 50, 3.1, 3.0, -0.4, 1.2, 0.5, 1)
    windows = (bytesize.Window(1, 50, 3.0, 3.1, 1.0, 1.0, 0.92),
               bytesize.Window(2, 0, 0, 0, 0, 0, 0))  # fmt: skip
    shares = (0.0, *[1 / 16] * 16)
    return bytesize.Report("small", "ab", bytesize.Settings(), (line,), shares, shares, windows,
                           windows)  # fmt: skip


ALL: dict[str, Callable[[], Report]] = {
    "grid": grid_report,
    "prompts": wording_report,
    "limits": limits_report,
    "tokens": drift_report,
    "bytes": bytes_report,
}


# -- reports ---------------------------------------------------------------------------------------


def test_grid_has_one_cell_for_all_of_temperature_zero() -> None:
    found = grid_report()
    assert [(cell.temperature, cell.top_p) for cell in found.cells] == [
        (0.0, None), (0.5, 0.8), (0.5, 1.0), (1.0, 0.8), (1.0, 1.0),
    ]  # fmt: skip
    assert [cell.lengths.answers for cell in found.cells] == [6, 18, 18, 18, 18]
    assert found.at(0.0, 0.8) is found.at(0.0, 1.0) is found.cells[0]
    assert found.cells[0].within is None
    cold, hot = found.at(0.5, 1.0), found.at(1.0, 1.0)
    assert cold.lengths.mean < hot.lengths.mean
    assert cold.mean_low < cold.lengths.mean < cold.mean_high


def test_prompt_refused_at_one_setting_counts_at_none() -> None:
    answers = grid_answers()
    key = "p2 T1 P0.8 1"
    answers[key] = Answer(key=key, problem="too long")
    found = grid_report(answers)
    assert found.left_out == ("p2",)
    assert found.prompts == 5
    assert found.cells[0].lengths.answers == 5


def test_grid_without_a_whole_prompt_says_why() -> None:
    answers = {key: Answer(key=key, problem="too long") for key in grid_answers()}
    with pytest.raises(StudyError, match="too long"):
        grid_report(answers)


def test_wording_that_halves_answers_is_seen_and_one_without_effect_is_not() -> None:
    found = {row.name: row.effect for row in wording_report().rows}
    assert found["brief"].low < 0.5 < found["brief"].high < 0.6
    assert found["polite"].low < 1 < found["polite"].high
    assert (found["plain"].low, found["plain"].high) == (1, 1)


def test_spread_is_mostly_between_prompts_where_wording_changes_nothing() -> None:
    parts = wording_report(wording_answers(brief=1.0)).components
    assert parts.share(parts.prompts) > 0.8
    assert parts.share(parts.perturbations) < 0.05


def test_wording_needs_two_prompts_answered_in_every_way() -> None:
    answers = {key: a for key, a in wording_answers().items() if key.startswith("p0 ")}
    with pytest.raises(StudyError, match="fewer than 2 prompts"):
        wording_report(answers)


def test_answer_without_a_token_has_no_log_length() -> None:
    answers = wording_answers()
    answers["p1 polite 0"] = Answer(key="p1 polite 0", finish_reason="stop")
    assert wording_report(answers).left_out == ("p1",)


# -- what is written -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_study_writes_a_table_a_report_and_two_pictures(name: str, tmp_path: Path) -> None:
    table = publish(ALL[name](), tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert (folder / "table.txt").read_text() == table + "\n"
    assert json.loads((folder / "report.json").read_bytes())["experiment"] == name
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / f"{name}.svg").read_text()
    assert max(map(len, table.splitlines())) <= 110


def test_picture_of_the_same_report_is_the_same(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        publish(limits_report(), tmp_path / folder)
    pictures = [(tmp_path / folder / "limits.svg").read_bytes() for folder in ("a", "b")]
    assert pictures[0] == pictures[1]


def test_table_names_what_the_cap_hides() -> None:
    from appliance.study.tables import of_grid

    answers = {key: given(key, 500 if " T1 " in key else 20) for key in grid_answers()}
    lines = of_grid(grid_report(answers)).splitlines()
    (row,) = [line for line in lines if line.split()[:2] == ["1", "1"]]
    assert row.split()[2:4] == ["18", "100"]
    assert "> 100" in row
    assert row.split()[-1] == "-", "no mean beyond the cap from nothing but cut answers"


@pytest.mark.parametrize(
    ("delivered", "told"), [(10, "All 3 checks are exact"), (12, "1 of 3 checks are NOT exact")]
)
def test_table_of_limits_gives_the_verdict(delivered: int, told: str) -> None:
    from appliance.study.tables import of_limits

    table = of_limits(limits_report(delivered))
    assert told in table
    assert ("+2" in table) == (delivered == 12)


def test_lossy_tokenizer_is_named_below_its_table() -> None:
    from appliance.study.tables import of_drift

    assert "B does not give these back byte by byte: English." in of_drift(drift_report())


def test_many_cut_answers_are_said_to_make_shares_rough() -> None:
    from appliance.study.tables import of_structure

    answers = {key: given(key, 500) for key in wording_answers()}
    assert "100 % of the answers were cut off" in of_structure(wording_report(answers))
    assert "cut off and count" not in of_structure(wording_report())


def test_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="cannot be written"):
        publish(limits_report(), tmp_path / "file" / "x")


def test_studies_load_no_plotting_before_they_draw_and_never_a_window() -> None:
    code = (
        "import sys, appliance.study.output, appliance.commands.study\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from appliance.study.plots import _figure\n"
        "_figure(1, 2, 2)\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_command_line_starts_without_numpy_or_llama() -> None:
    code = (
        "import sys, appliance.commands.study\n"
        "assert not {'numpy', 'llama_cpp', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
