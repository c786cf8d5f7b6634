"""An update that is cut off after every single step, and what the next run or boot makes of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.bundle import entry
from appliance.bundle import record as records
from appliance.bundle.errors import BundleError
from appliance.bundle.update import TRIES, Updater

from .bundle_box import FileMachine, make_bundle, opened
from .update_runs import STEPS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.unit.update_runs", str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def of(runs: list[dict[str, Any]], kind: str, step: str) -> Iterator[dict[str, Any]]:
    found = [run for run in runs if (run["kind"], run["step"]) == (kind, step)]
    assert {run["after"] for run in found} >= {"settle", "boot"}
    for run in found:
        assert run["killed"], "the step was never reached"
        yield run


SWITCHED = STEPS["good"].index("switched")


@pytest.mark.parametrize("step", STEPS["good"])
def test_a_good_update_cut_off_anywhere_leaves_a_box_that_runs(
    runs: list[dict[str, Any]], step: str
) -> None:
    at = STEPS["good"].index(step)
    for run in of(runs, "good", step):
        new = at >= SWITCHED or run["after"] == "update"
        expected = "0.2.0" if new else "0.1.0"
        assert run["in_use"] == run["ledger"] == expected, run
        assert run["told"] == "", run
        if new:
            assert run["phase"] == "done", run
            assert run["running"] == expected or step == "done", run
        elif run["after"] == "boot":
            # Before the switch a boot cannot know whether an update is at work: the next one sees.
            assert run["phase"] == ("stopped" if step == "switching" else "building"), run
            assert run["running"] == expected, run
        else:
            assert run["phase"] == "stopped", run


@pytest.mark.parametrize("step", STEPS["back"])
def test_a_way_back_cut_off_anywhere_after_the_switch_is_gone_to_its_end(
    runs: list[dict[str, Any]], step: str
) -> None:
    for run in of(runs, "back", step):
        assert run["in_use"] == run["ledger"] == run["units"] == "0.1.0", run
        assert run["phase"] == "done", run
        assert run["running"] == "0.1.0" or (step, run["after"]) == ("done", "settle"), run


@pytest.mark.parametrize("step", STEPS["bad"])
def test_a_bad_update_cut_off_anywhere_ends_with_the_old_version_and_its_ledger(
    runs: list[dict[str, Any]], step: str
) -> None:
    for run in of(runs, "bad", step):
        assert run["in_use"] == run["ledger"] == run["units"] == "0.1.0", run
        assert run["phase"] == "returned", run
        if step != "returned" or run["after"] == "boot":
            assert run["running"] == "0.1.0", run


def make_machine(tmp_path: Path, **options: Any) -> FileMachine:
    machine = FileMachine(tmp_path, **options)
    machine.install_first(make_bundle(tmp_path / "old", version="0.1.0"))
    return machine


def update(machine: FileMachine, bundle: Path, **options: Any) -> records.Record:
    return Updater(machine.layout, machine).update(opened(bundle), **options)


def test_an_update_and_the_way_back(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    new = make_bundle(tmp_path / "new", version="0.2.0")
    assert update(machine, new).phase == "done"
    assert machine.get("running") == "0.2.0"
    assert machine.get("noted") == "done 0.2.0"
    updater = Updater(machine.layout, machine)
    with pytest.raises(BundleError, match=r"cannot use the ledger as it is now.*--with-backup"):
        updater.rollback()
    assert machine.get("running") == "0.2.0"
    assert updater.rollback(with_backup=True).phase == "done"
    assert machine.get("running") == machine.get("ledger") == "0.1.0"


def test_a_way_back_that_fails_leaves_the_newer_version_and_its_state(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, bad="0.1.0")
    update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    with pytest.raises(BundleError, match=r"version 0\.2\.0 is in use again"):
        Updater(machine.layout, machine).rollback(with_backup=True)
    assert machine.get("running") == machine.get("ledger") == "0.2.0"


def test_the_same_bundle_twice_changes_nothing(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    new = make_bundle(tmp_path / "new", version="0.2.0")
    update(machine, new)
    before = machine.layout.record.read_bytes()
    assert update(machine, new).phase == "done"
    assert machine.layout.in_use() == "b"
    assert machine.layout.record.read_bytes() == before


def test_an_older_version_needs_a_word(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    older = make_bundle(tmp_path / "older", version="0.0.9", min_version="0.0.1")
    with pytest.raises(BundleError, match="--allow-downgrade"):
        update(machine, older)
    assert records.read(machine.layout.record) is None
    (tmp_path / "ledger").write_text("0.0.9")
    assert update(machine, older, allow_downgrade=True).phase == "done"
    far = make_bundle(tmp_path / "far", version="0.5.0", min_version="0.4.0")
    with pytest.raises(BundleError, match=r"update to 0\.4\.0 first"):
        update(machine, far)


def test_without_room_it_says_how_much_is_needed(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, free=10 << 20)
    with pytest.raises(BundleError, match=r"10 MiB free, and the update needs 64 MiB"):
        update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    assert machine.layout.in_use() == "a"
    assert machine.get("running") == "0.1.0"


def test_a_slot_on_trial_has_so_many_starts(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, bad="0.2.0")
    machine.start = lambda: None  # type: ignore[method-assign]  # as with --no-start
    new = make_bundle(tmp_path / "new", version="0.2.0")
    updater = Updater(machine.layout, machine)
    assert update(machine, new).phase == "trial"
    with pytest.raises(BundleError, match="has not been started yet"):
        updater.rollback()
    for attempt in range(1, TRIES + 1):
        record = updater.before_start()
        assert record is not None
        assert (record.phase, record.attempts) == ("trial", attempt)
        assert machine.layout.in_use() == "b"
        machine.boot("b")
    record = updater.before_start()
    assert record is not None
    assert record.phase == "returned"
    assert f"{TRIES} starts" in record.why
    assert machine.layout.in_use() == "a"
    assert machine.boot("a") == ""
    assert updater.after_start() == record


def test_a_version_that_cannot_use_the_configuration_is_given_no_further_start(
    tmp_path: Path,
) -> None:
    """systemd starts nothing again that ended so."""
    machine = make_machine(tmp_path, bad="0.2.0")
    machine.start = lambda: None  # type: ignore[method-assign]  # as with --no-start
    updater = Updater(machine.layout, machine)
    assert updater.after_refusal() is None
    update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    updater.before_start()
    machine.boot("b")
    record = updater.after_refusal()
    assert record is not None
    assert (record.phase, record.why) == ("returned", "it cannot use the configuration")
    assert machine.layout.in_use() == "a"
    assert machine.get("ledger") == machine.get("units") == "0.1.0"
    assert updater.after_refusal() is None  # the old one's own refusal is nobody's update


def test_a_version_that_was_ready_once_is_never_taken_back_for_a_refusal(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    assert Updater(machine.layout, machine).after_refusal() is None
    assert machine.layout.in_use() == "b"


def test_an_update_that_is_at_work_sees_a_refusal_for_itself(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, bad="0.2.0")
    boot = machine.boot

    def start(name: str) -> str:
        fault = boot(name)
        if fault:
            assert Updater(machine.layout, machine).after_refusal() is None
        return fault

    machine.boot = start  # type: ignore[method-assign]
    with pytest.raises(BundleError, match="did not become ready"):
        update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    record = records.read(machine.layout.record)
    assert record is not None
    assert (record.phase, record.why) == ("returned", "it crashed")


@pytest.mark.parametrize(
    ("code", "status", "back"),
    [("exited", "2", True), ("exited", "1", False), ("killed", "2", False), ("", "", False)],
)
def test_guard_goes_back_for_the_one_end_that_systemd_leaves_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, status: str, back: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Updater, "after_refusal", lambda self: asked.append("refusal"))
    monkeypatch.setenv("EXIT_CODE", code)
    monkeypatch.setenv("EXIT_STATUS", status)
    assert entry.main(["guard", "ended", "--root", str(tmp_path)]) == 0
    assert asked == (["refusal"] if back else [])
    unit = (ROOT / "images/systemd/steelyard.service").read_text()
    assert f"RestartPreventExitStatus={entry.UNUSABLE}\n" in unit


def test_one_update_at_a_time(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    new = make_bundle(tmp_path / "new", version="0.2.0")
    seen: list[str] = []

    def prove(name: str) -> None:
        with pytest.raises(BundleError, match="another update is at work"):
            Updater(machine.layout, machine).settle()
        seen.append(name)

    machine.prove = prove  # type: ignore[method-assign]
    update(machine, new)
    assert seen == ["b"]


def test_a_version_that_fails_its_proof_never_gets_in(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)

    def prove(_: str) -> None:
        raise BundleError("the new version fails `steelyard selftest`")

    machine.prove = prove  # type: ignore[method-assign]
    with pytest.raises(BundleError, match="fails `steelyard selftest`"):
        update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    assert machine.layout.in_use() == "a"
    assert machine.get("backup-0.1.0") == ""
    assert machine.get("running") == machine.get("ledger") == "0.1.0"


@pytest.mark.parametrize("text", ["{", "[]", '{"phase": "done"}', "null"])
def test_a_damaged_record_stops_everything(tmp_path: Path, text: str) -> None:
    machine = make_machine(tmp_path)
    machine.layout.record.write_text(text)
    with pytest.raises(BundleError, match="is damaged"):
        update(machine, make_bundle(tmp_path / "new", version="0.2.0"))
    assert machine.layout.in_use() == "a"


def test_where_nothing_is_installed_it_says_so(tmp_path: Path) -> None:
    machine = FileMachine(tmp_path)
    with pytest.raises(BundleError, match=r"run the bundle's install\.sh"):
        update(machine, make_bundle(tmp_path / "new"))
    assert not machine.layout.base.exists()
