"""Applying what was answered: in which order, and whatever happens to the power."""

import json
from pathlib import Path

import pytest

from tests.unit.assistant_parts import FULL, SECRET, Shelf, answers, machine
from tui.assistant import files, plan
from tui.assistant.checks import Wrong
from tui.assistant.machine import Machine, run
from tui.assistant.missing import checklist
from tui.assistant.steps import foreseen


def tree(root: Path) -> dict[str, str]:
    """Every file of the machine, but for what is half written."""
    found = (path for path in root.rglob("*") if path.is_file() and ".new" not in path.name)
    return {str(path.relative_to(root)): path.read_text() for path in sorted(found)}


def made(box: Machine, **given: str) -> plan.Plan:
    facts = box.look()
    return plan.planned(answers(facts, **given), facts)


def test_everything_is_done_and_keys_come_before_the_box_opens(tmp_path: Path) -> None:
    shelf = Shelf()
    box = machine(tmp_path, shelf)
    told: list[plan.Told] = []
    out = plan.apply(made(box, **FULL), box, told.append)
    assert out.failed is None
    assert told == out.done
    assert [name for name, _, _ in out.secrets] == ["webapp", "alice"]
    assert {secret for _, _, secret in out.secrets} == {SECRET}
    candidate = f"{tmp_path}/etc/steelyard/.steelyard.toml.candidate"
    assert shelf.lines == [
        f"steelyard config check {candidate}",
        "chpasswd",
        "steelyard keys create webapp --scope infer",
        "steelyard keys create alice --scope admin",
        "systemctl restart systemd-networkd.service",
        "systemctl restart systemd-timesyncd.service",
        "timedatectl set-ntp true",
        "systemctl restart steelyard.service",
    ]
    assert shelf.told[1] == "root:long enough\n"
    facts = box.look()
    assert facts.static is not None
    assert facts.static.address == "192.168.7.20/24"
    assert (facts.time_server, facts.serves, facts.board) == (
        "time.site", "0.0.0.0", "/dev/appliance-mcu",
    )  # fmt: skip
    assert facts.names == ("box.site", "192.168.7.20")
    assert "long enough" not in "".join(tree(tmp_path).values())
    assert SECRET not in "".join(tree(tmp_path).values())


def test_answers_that_change_nothing_do_nothing(tmp_path: Path) -> None:
    shelf = Shelf()
    box = machine(tmp_path, shelf)
    before = tree(tmp_path)
    plans = made(box)
    assert plans.changes == ()
    plan.apply(plans, box)
    assert shelf.ran == []
    assert tree(tmp_path) == before


def test_planning_alone_writes_nothing(tmp_path: Path) -> None:
    shelf = Shelf()
    box = machine(tmp_path, shelf)
    before = tree(tmp_path)
    assert len(made(box, **FULL).changes) == 8
    assert tree(tmp_path) == before
    assert shelf.ran == []


def test_clock_is_set_by_hand_before_anything_has_a_date(tmp_path: Path) -> None:
    shelf = Shelf()
    box = machine(tmp_path, shelf)
    given = {"time_how": "hand", "time_now": "2027-02-01 08:00", "admin_how": "make"}
    assert plan.apply(made(box, **given), box).failed is None
    assert shelf.lines == [
        "timedatectl set-ntp false",
        "timedatectl set-time 2027-02-01 08:00:00 UTC",
        "steelyard keys create operator --scope admin",
    ]


def test_dhcp_replaces_a_static_address(tmp_path: Path) -> None:
    box = machine(tmp_path)
    plan.apply(made(box, net_how="static", net_address="10.0.0.5/8"), box)
    assert box.look().static is not None
    plan.apply(made(box, net_how="dhcp"), box)
    assert box.look().static is None
    assert "DHCP=yes" in (tmp_path / files.NETWORK).read_text()


def test_model_is_proved_while_the_box_is_away_and_the_box_comes_back(tmp_path: Path) -> None:
    for fails in ("", "model use"):
        shelf = Shelf(fails=fails)
        box = machine(tmp_path, shelf)
        out = plan.apply(made(box, model_name="Qwen"), box)
        assert (out.failed is None) is (fails == "")
        assert shelf.lines[0] == "systemctl stop steelyard.service"
        assert shelf.lines[1].endswith("model use Qwen")
        assert shelf.lines[-1] == "systemctl start steelyard.service"


@pytest.mark.parametrize(
    ("fails", "placed", "began"),
    [
        ("config check", False, 1),
        ("chpasswd", False, 2),
        ("keys create webapp", False, 3),
        ("keys create alice", False, 4),
        ("restart systemd-networkd", True, 5),
        ("restart steelyard", True, 8),
    ],
)
def test_nothing_is_begun_after_what_failed(
    tmp_path: Path, fails: str, placed: bool, began: int
) -> None:
    shelf = Shelf(fails=fails)
    box = machine(tmp_path, shelf)
    before = tree(tmp_path)
    out = plan.apply(made(box, **FULL), box)
    assert out.failed is not None
    assert len(shelf.ran) == began
    assert (tree(tmp_path) != before) is placed
    assert not (tmp_path / plan.PENDING).exists()


def test_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    box = machine(tmp_path)
    (tmp_path / "var").write_text("in the way")
    out = plan.apply(made(box, net_how="dhcp"), box)
    assert out.failed is not None
    assert out.failed.key == "assist.wrong.write"


def test_owner_and_mode_of_the_configuration_stay(tmp_path: Path) -> None:
    box = machine(tmp_path)
    (tmp_path / files.CONFIG).chmod(0o640)
    plan.apply(made(box, board_how="/dev/appliance-mcu"), box)
    assert (tmp_path / files.CONFIG).stat().st_mode & 0o777 == 0o640


# -- power -----------------------------------------------------------------------------------------


class Cut(BaseException):
    """The power went."""


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The power goes before the renaming or removing of that number; the list counts them down."""
    left = [10**6]

    def cut() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Cut

    real_replace, real_unlink = Path.replace, Path.unlink

    def replace(self: Path, target: Path) -> Path:
        cut()
        return real_replace(self, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        cut()
        real_unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    return left


def test_power_cut_at_any_instant_leaves_the_old_files_or_the_new_ones(
    tmp_path: Path, cutting: list[int]
) -> None:
    reference = machine(tmp_path / "reference")
    old = written(tmp_path / "reference")
    plan.apply(made(reference, **FULL), reference)
    new = written(tmp_path / "reference")
    seen = []
    for step in range(12):
        root = tmp_path / f"cut-{step}"
        box = machine(root)
        plans = made(box, **FULL)
        cutting[0] = step
        try:
            plan.apply(plans, box)
            ended = True
        except Cut:
            ended = False
        cutting[0] = 10**6
        plan.resume(root)
        now = written(root)
        assert now in (old, new)
        assert not (root / plan.PENDING).exists()
        seen.append(now == new)
        if ended:
            break
    assert ended
    assert seen == sorted(seen)  # old up to the one instant, new from it on
    assert {False, True} == set(seen)


def written(root: Path) -> dict[str, str]:
    """What the assistant writes, by name."""
    return {name: files.read(root / name) for name in files.TARGETS}


def test_ending_it_is_cut_off_as_well_and_ends_all_the_same(
    tmp_path: Path, cutting: list[int]
) -> None:
    texts = {files.NETWORK: "new network", files.TIME: "new time", files.CONFIG: "new config"}
    for step in range(5):
        root = tmp_path / str(step)
        machine(root)
        files.write_whole(root / plan.PENDING, json.dumps({"files": texts}), 0o600)
        cutting[0] = step
        try:
            plan.resume(root)
        except Cut:
            assert (root / plan.PENDING).exists()
            cutting[0] = 10**6
            assert plan.resume(root)
        cutting[0] = 10**6
        assert written(root) == texts
        assert plan.resume(root) is False


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"files": {}}', '{"files": {"etc/passwd": "x"}}',
     '{"files": {"etc/steelyard/steelyard.toml": 1}}', '{"files": {"../x": ""}}'],
)  # fmt: skip
def test_plan_that_is_not_ours_is_told_and_touched_by_nobody(tmp_path: Path, text: str) -> None:
    box = machine(tmp_path)
    files.write_whole(box.root / plan.PENDING, text)
    before = tree(tmp_path)
    with pytest.raises(Wrong, match="plan"):
        plan.resume(tmp_path)
    assert tree(tmp_path) == before


def test_plan_is_for_root_alone(tmp_path: Path, cutting: list[int]) -> None:
    box = machine(tmp_path)
    plans = made(box, net_how="dhcp")
    cutting[0] = 1  # its own renaming, and no other
    with pytest.raises(Cut):
        plan.apply(plans, box)
    assert (tmp_path / plan.PENDING).stat().st_mode & 0o777 == 0o600


# -- what is missing -------------------------------------------------------------------------------


def states(facts: object) -> dict[str, str]:
    from tui.assistant.machine import Facts

    assert isinstance(facts, Facts)
    return {row.step: row.state for row in checklist(facts)}


def test_list_tells_what_a_fresh_box_lacks_and_what_the_answers_bring(tmp_path: Path) -> None:
    facts = machine(tmp_path).look()
    fresh = states(facts)
    assert fresh == {
        "network": "ok", "time": "ok", "login": "todo", "app": "todo", "serve": "todo",
        "tls": "wait", "admin": "ok", "board": "skip", "model": "ok",
    }  # fmt: skip
    after = states(foreseen(answers(facts, **FULL), facts))
    assert after == dict.fromkeys(fresh, "ok") | {"board": "todo"}  # it is not plugged in
    assert all(row.how for row in checklist(facts) if row.state == "todo")


def test_list_of_a_box_that_can_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    blind = machine(tmp_path, Shelf(blind=True), interfaces=0).look()
    assert {name for name, state in states(blind).items() if state == "todo"} == {
        "network", "login", "app", "serve", "admin", "model",
    }  # fmt: skip


def test_command_that_is_missing_or_fails_is_told() -> None:
    with pytest.raises(Wrong, match="no-such-command"):
        run(["no-such-command"])
    with pytest.raises(Wrong, match="no such thing"):
        run(["sh", "-c", "echo no such thing >&2; exit 3"])
    assert run(["cat"], "told") == "told"
