"""The units, the udev rule and the drop-ins: systemd's own checks, and what only we can check."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from images.layout import FILES, HERE, WANTED, place

UNITS = sorted((HERE / "systemd").glob("*.service"))
UNITS_BY = {unit.name: unit for unit in UNITS}
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here"
)
STUBS = """
basic.target dbus.socket getty@tty1.service local-fs.target multi-user.target
network-online.target rescue.service shutdown.target sysinit.target system.slice
systemd-user-sessions.service time-set.target -.slice
"""
"""What they lean on, and every machine with systemd has."""
MOST_EXPOSED = 2.0
NAMES = {f"steelyard{name}.service" for name in ("", "-firstboot", "-setup", "-setup-resume")}


def words_of(unit: Path) -> dict[str, list[str]]:
    """Every setting of a unit, with its values in order."""
    found: dict[str, list[str]] = {}
    for row in unit.read_text().splitlines():
        if row and row[0] not in "#[":
            key, _, value = row.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with our files, and stubs of what they call."""
    root = tmp_path_factory.mktemp("root")
    place(root, appliance=True)
    lib = root / "usr/lib/systemd/system"
    lib.mkdir(parents=True)
    for name in STUBS.split():
        body = "[Service]\nExecStart=/usr/bin/chown\n" if name.endswith(".service") else ""
        body += "[Socket]\nListenStream=/run/x\n" if name.endswith(".socket") else ""
        (lib / name).write_text(f"[Unit]\nDescription={name}\n{body}")
    for unit in UNITS:
        for key, values in words_of(unit).items():
            for value in values if key.startswith("Exec") else ():
                program = root / value.lstrip("+-/").split()[0]
                program.parent.mkdir(parents=True, exist_ok=True)
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
    return root


@needs_systemd
@units
def test_systemd_finds_nothing_wrong(unit: Path, tree: Path) -> None:
    """Its exit status is 0 for unknown settings, so its silence is what counts."""
    done = verify(tree / "etc/systemd/system" / unit.name, tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_systemd_would_find_a_setting_that_does_not_exist(tree: Path) -> None:
    """Else the test above proved nothing."""
    wrong = tree / "etc/systemd/system/wrong.service"
    text = (HERE / "systemd/steelyard.service").read_text()
    wrong.write_text(text.replace("ProtectHome=yes", "ProtectHomes=yes"))
    done = verify(wrong, tree)
    wrong.unlink()
    assert "ProtectHomes" in done.stderr


def verify(unit: Path, root: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "verify", "--man=no", f"--root={root}", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_systemd
@units
def test_units_are_exposed_to_little(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is too old to look at a file (--offline)")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= MOST_EXPOSED, done.stdout


def test_names_are_those_that_others_rely_on() -> None:
    assert {unit.name for unit in UNITS} == NAMES == set(WANTED)


def test_every_file_for_a_machine_is_placed(tmp_path: Path) -> None:
    placed = {file.source for file in FILES}
    kept = [*HERE.glob("systemd/*"), *HERE.glob("udev/*"), *HERE.glob("firstboot/*")]
    assert {str(path.relative_to(HERE)) for path in kept if path.is_file()} <= placed
    assert all((HERE / source).is_file() for source in placed)
    place(tmp_path, appliance=True)
    assert (tmp_path / "usr/libexec/steelyard/firstboot").stat().st_mode & 0o777 == 0o755


def test_install_beside_others_changes_nothing_of_theirs(tmp_path: Path) -> None:
    config = tmp_path / "etc/steelyard/steelyard.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n")
    placed = place(tmp_path, appliance=False)
    assert config.read_text() == "# mine\n"
    assert not any("system.conf.d" in target or "setup" in target for target in placed)
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    assert {link.name for link in wants.iterdir()} == {
        "steelyard.service",
        "steelyard-firstboot.service",
    }


def test_links_of_units_lead_to_the_units(tmp_path: Path) -> None:
    place(tmp_path, appliance=True)
    place(tmp_path, appliance=True)  # again: the links are there already
    for link in (tmp_path / "etc/systemd/system/multi-user.target.wants").iterdir():
        assert (tmp_path / str(link.readlink()).lstrip("/")).is_file()


def test_timeouts_leave_the_daemon_its_own() -> None:
    """systemd steps in later than the box itself does, by the defaults of both."""
    from appliance.config import Config

    defaults = Config()
    service = {key: values[-1] for key, values in words_of(UNITS_BY["steelyard.service"]).items()}
    assert int(service["TimeoutStartSec"]) > defaults.engine.start_timeout_s
    assert int(service["TimeoutStopSec"]) >= defaults.server.drain_s + 10
    assert 10 <= int(service["WatchdogSec"]) < defaults.board.timeout_s
    assert service["Type"] == "notify"
    assert service["KillMode"] == "mixed"


def test_first_boot_writes_as_the_user_that_serves() -> None:
    serves, first = (words_of(UNITS_BY[f"steelyard{name}.service"]) for name in ("", "-firstboot"))
    for key in ("User", "DynamicUser", "StateDirectory", "StateDirectoryMode", "UMask"):
        assert serves[key] == first[key], key
    assert "tty" in first["StandardOutput"]  # the key is not for the journal
    assert "systemd-user-sessions.service" in first["Before"][0].split()  # before any login
    done = first["ConditionPathExists"][0].removeprefix("!")
    assert done == "/var/lib/steelyard/firstboot.done"
    assert "firstboot.done" in (HERE / "firstboot/firstboot").read_text()


def test_ticker_keeps_its_priority() -> None:
    """LimitRTPRIO, no RestrictRealtime, and a call that the filter lets through."""
    service = words_of(UNITS_BY["steelyard.service"])
    assert service["LimitRTPRIO"] == ["1"]
    assert "RestrictRealtime" not in service
    assert any("sched_setscheduler" in row.split() for row in service["SystemCallFilter"][2:])


def test_devices_are_the_gpu_and_the_board() -> None:
    service = words_of(UNITS_BY["steelyard.service"])
    assert service["DevicePolicy"] == ["closed"]
    assert service["DeviceAllow"] == ["char-nvidia* rw", "char-ttyACM rw", "char-ttyUSB rw"]


def test_groups_that_are_asked_for_are_there() -> None:
    """dialout and video are Debian's own, from the first; doubled they would be a warning."""
    made = set(re.findall(r"(?m)^g (\w+)", (HERE / "systemd/steelyard.sysusers.conf").read_text()))
    asked = words_of(UNITS_BY["steelyard.service"])["SupplementaryGroups"][0].split()
    assert set(asked) == made | {"dialout", "video"}


def test_console_has_one_owner_at_a_time() -> None:
    """The assistant till it is done, the login from then on."""
    setup = words_of(UNITS_BY["steelyard-setup.service"])
    login = words_of(HERE / "systemd/10-steelyard-getty.conf")
    done = login["ConditionPathExists"][0]
    assert setup["ConditionPathExists"][0] == f"!{done}"
    assert any("start getty@tty1" in row for row in setup["ExecStopPost"])
    assert setup["TTYPath"] == ["/dev/tty1"]
    from tui.assistant.machine import DONE

    assert f"/{DONE}" == done


def test_set_up_that_was_broken_off_is_ended_before_the_network_comes() -> None:
    from tui.assistant.plan import PENDING

    resume = words_of(UNITS_BY["steelyard-setup-resume.service"])
    assert resume["ConditionPathExists"] == [f"/{PENDING}"]
    assert "systemd-networkd.service" in resume["Before"][0].split()
    assert "steelyard.service" in resume["Before"][0].split()


@pytest.mark.parametrize("name", ["watchdog", "journal", "online", "getty"])
def test_drop_ins_are_well_formed(name: str) -> None:
    parser = configparser.ConfigParser(strict=False, allow_no_value=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string((HERE / f"systemd/10-steelyard-{name}.conf").read_text())
    assert parser.sections()


def test_shipped_configuration_can_be_used() -> None:
    from appliance.config import load

    config = load(HERE / "rootfs/steelyard.toml", {})
    assert str(config.server.state_dir) == "/var/lib/steelyard"
    assert config.server.host == "127.0.0.1"
    link = re.search(r'SYMLINK\+="([\w-]+)"', (HERE / "udev/70-appliance-mcu.rules").read_text())
    assert link is not None
    assert f"/dev/{link[1]}" in (HERE / "rootfs/steelyard.toml").read_text()
