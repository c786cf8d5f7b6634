"""The examination as a whole, and what an operator sees of it."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from appliance.cli import steelyard
from appliance.doctor import ledger, running, settings
from appliance.doctor.box import look as look_at_box
from appliance.doctor.finding import Finding, fail, ok, size, warn
from appliance.doctor.ground import Ground, ground
from appliance.doctor.report import AREAS, Area, Report, examine
from appliance.doctor.running import Box
from appliance.support.pack import MOST_ALL
from tests.unit.doctor_parts import TellingBox, levels, make_config, make_ground, only

QUICK = "config,disk,clock,board,tls,keys,ledger,permissions,unit"
"""Areas that start no child."""


def run(tmp_path: Path, *arguments: str) -> Result:
    env = {"STEELYARD_STATE": str(tmp_path / "state"), "STEELYARD_ADMIN_KEY": ""}
    return CliRunner().invoke(steelyard, ["doctor", *arguments], env=env, standalone_mode=False)


def area(name: str, *findings: Finding) -> Area:
    return Area(name, "", lambda ground: iter(findings))


def test_report_keeps_the_order_of_the_areas_and_counts_levels(tmp_path: Path) -> None:
    areas = (area("one", ok("one.a", "1"), warn("one.b", "2", "do")), area("two", ok("two.a", "3")))
    seen: list[tuple[str, int, int]] = []
    report = examine(make_ground(tmp_path), areas, lambda *told: seen.append(told))
    assert [one.id for one in report.findings] == ["one.a", "one.b", "two.a"]
    assert report.count() == {"ok": 2, "note": 0, "warn": 1, "fail": 0}
    assert report.well
    assert seen == [("one", 0, 2), ("two", 1, 2)]


def test_check_that_breaks_is_a_failure_and_hides_nothing(tmp_path: Path) -> None:
    def broken(_: Ground) -> Iterator[Finding]:
        yield ok("bad.first", "seen")
        raise ZeroDivisionError("in here")

    report = examine(
        make_ground(tmp_path), (Area("bad", "", broken), area("good", ok("good.a", "")))
    )
    assert levels(report.findings) == {"bad.first": "ok", "bad.broken": "fail", "good.a": "ok"}
    assert "ZeroDivisionError: in here" in only(report.findings, "bad.broken").found
    assert not report.well


def test_without_a_configuration_only_what_needs_none_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text("[engine]\ncontxt = 1\n")
    found = ground(file, env={"HOME": str(tmp_path)})
    report = examine(found, [one for one in AREAS if one.name != "unit"])
    assert levels(report.findings)["config.file"] == "fail"
    assert "engine.context" in only(report.findings, "config.file").found
    skipped = {one.area for one in report.findings if one.id.endswith(".skipped")}
    assert skipped == {one.name for one in AREAS} - {"config", "unit"}


def test_every_finding_that_is_not_well_says_what_to_do(tmp_path: Path) -> None:
    result = run(tmp_path, "--json", "--only", QUICK)
    for one in json.loads(result.stdout)["findings"]:
        assert one["do"] or one["level"] in ("ok", "note"), one


def test_exit_code_is_1_only_where_something_failed(tmp_path: Path) -> None:
    assert run(tmp_path, "--only", "keys,ledger").return_value == 0
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "ledger.sqlite").write_bytes(b"no database at all" * 100)
    failed = run(tmp_path, "--only", "keys,ledger")
    assert failed.return_value == 1
    assert "FAIL ledger.chain" in failed.output


def test_json_is_one_object_with_every_finding(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, "--json", "--only", "disk,board").stdout)
    assert {one["id"].partition(".")[0] for one in told["findings"]} == {"disk", "board"}
    assert told["well"] is True
    assert sum(told["counts"].values()) == len(told["findings"])


def test_quiet_leaves_out_what_is_well(tmp_path: Path) -> None:
    loud, quiet = run(tmp_path, "--only", "tls,board"), run(tmp_path, "-q", "--only", "tls,board")
    assert "tls.on" in loud.output
    assert "tls.on" not in quiet.output
    assert "board.line" in quiet.output


@pytest.mark.parametrize(
    ("only", "said"),
    [("dsk", "did you mean disk"), ("", "names no area"), ("disk,zz", "known are")],
)
def test_unknown_area_is_refused_and_the_nearest_named(
    tmp_path: Path, only: str, said: str
) -> None:
    result = run(tmp_path, "--only", only)
    assert result.exception is not None
    assert said in str(result.exception.format_message())  # type: ignore[attr-defined]


def test_looking_makes_nothing_in_the_state_directory(tmp_path: Path) -> None:
    run(tmp_path, "--only", QUICK)
    assert not (tmp_path / "state").exists()


def test_words_of_others_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = fail("disk.x", "a\x1b[2Jb", "c\nd\x07")
    monkeypatch.setattr("appliance.doctor.report.examine", lambda *_: Report((evil,), 0.0, "now"))
    output = run(tmp_path, "--only", "disk").output
    assert "\x1b[2J" not in output
    assert "\x07" not in output


def test_help_names_every_area(tmp_path: Path) -> None:
    words = run(tmp_path, "--help").output.replace(",", " ").replace(".", " ").split()
    assert {one.name for one in AREAS} <= set(words)


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (300 << 20, "300 MiB"),
     (5 << 40, "5120 GiB")],
)  # fmt: skip
def test_sizes_are_told_in_units_of_1024(count: int, told: str) -> None:
    assert size(count) == told


# -- the running box -------------------------------------------------------------------------------


def box_levels(tmp_path: Path, box: Box) -> dict[str, str]:
    return levels(look_at_box(make_ground(tmp_path, box=box)))


def test_no_box_is_no_fault(tmp_path: Path) -> None:
    assert box_levels(tmp_path, Box.none()) == {"box.running": "note"}


def test_box_that_is_ready_is_well(tmp_path: Path) -> None:
    answers = {"/health": (200, {}), "/readyz": (200, {"failing": [], "degraded": []})}
    assert set(box_levels(tmp_path, TellingBox(answers)).values()) == {"ok"}


def test_box_that_is_not_ready_says_why(tmp_path: Path) -> None:
    told = {
        "failing": ["engine", "disk"],
        "degraded": ["board: lost"],
        "engine": {"restarts": 2, "last_failure": "hung"},
    }
    found = box_levels(tmp_path, TellingBox({"/health": (200, {}), "/readyz": (503, told)}))
    assert found["box.ready"] == "fail"
    assert found["box.degraded"] == "warn"
    assert found["box.restarts"] == "warn"


def test_box_that_goes_over_to_another_model_is_no_fault(tmp_path: Path) -> None:
    told = {"status": "switching", "switch": "loading", "failing": ["model", "engine"]}
    box = TellingBox({"/health": (200, {}), "/readyz": (503, told)})
    found = only(look_at_box(make_ground(tmp_path, box=box)), "box.ready")
    assert (found.level, "loading" in found.found) == ("note", True)


def test_box_that_is_silent_fails(tmp_path: Path) -> None:
    box = TellingBox({"/health": (0, "it did not answer within 10 s")})
    assert box_levels(tmp_path, box) == {"box.running": "fail"}


def test_box_that_wants_a_key_is_no_fault(tmp_path: Path) -> None:
    box = TellingBox({"/health": (200, {}), "/readyz": (401, {})})
    assert box_levels(tmp_path, box)["box.ready"] == "note"


def test_configuration_changed_after_the_start_is_said(tmp_path: Path) -> None:

    file = tmp_path / "steelyard.toml"
    file.write_text("")
    os.utime(file, (4e9, 4e9))
    box = TellingBox({}, pid=os.getpid())
    assert (
        levels(settings.look(make_ground(tmp_path, box=box, file=file)))["config.running"] == "note"
    )
    os.utime(file, (1, 1))
    assert "config.running" not in levels(settings.look(make_ground(tmp_path, box=box, file=file)))


def test_documentation_names_every_area_and_its_bounds() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/operating.md").read_text()
    section = page.partition("\n## Doctor\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == [one.name for one in AREAS]
    for bound in (ledger.WHOLE_ROWS, ledger.END_ROWS):
        assert f"{bound:,}".replace(",", " ") in section
    bundle = page.partition("\n## Support bundle\n")[2].partition("\n## ")[0]
    assert f"{MOST_ALL >> 20} MiB" in bundle


# -- what this user may not see --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "id", "level"),
    [
        (PermissionError(13, "Permission denied", "/var/lib/x"), "bad.unseen", "warn"),
        (OSError(5, "Input/output error", "/var/lib/x"), "bad.unreadable", "fail"),
    ],
)
def test_what_cannot_be_read_is_named_and_never_taken_for_well(
    tmp_path: Path, error: OSError, id: str, level: str
) -> None:
    def broken(_: Ground) -> Iterator[Finding]:
        raise error
        yield

    found = only(examine(make_ground(tmp_path), (Area("bad", "", broken),)).findings, id)
    assert found.level == level
    assert "/var/lib/x" in found.found


def test_state_of_another_user_is_not_taken_for_a_box_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_sight(_: Path) -> None:
        raise PermissionError(13, "Permission denied", "/var/lib/x")

    monkeypatch.setattr(running, "locked_by", out_of_sight)
    box = Box.find(make_config(tmp_path, server={"port": 9}))
    assert box.url == "http://127.0.0.1:9", "it is asked where it would be"
    found = only(look_at_box(make_ground(tmp_path, box=box)), "box.running")
    assert (found.level, "does not see" in found.found) == ("note", True)
