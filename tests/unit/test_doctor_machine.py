"""What the doctor makes of a machine: of this one, and of others made of files."""

import errno
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance import buildinfo
from appliance.doctor import clock, cpu, disk, memory, unit
from appliance.doctor.ground import Ground
from appliance.models.memory import Available, Need
from tests.unit.doctor_parts import TellingBox, levels, machine, make_ground, only

GIB = 1 << 30
MODERN = "pni ssse3 avx avx2 f16c fma bmi2 avx512f avx512_vnni"
SAYS = "CPU : SSE3 = 1 | SSSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | BMI2 = 1"


def cpu_ground(tmp_path: Path, flags: str, said: str, quota: str = "max 100000") -> Ground:
    root = machine(
        tmp_path / "root", {"proc/cpuinfo": f"flags\t\t: {flags}\n", "sys/fs/cgroup/cpu.max": quota}
    )
    box = TellingBox({"/props": (200, {"engine": {"system_info": said}})})
    return make_ground(tmp_path, root=root, box=box, engine={"threads": 2})


# -- CPU -------------------------------------------------------------------------------------------


def test_library_with_instructions_that_the_cpu_lacks_fails(tmp_path: Path) -> None:
    ground = cpu_ground(tmp_path, MODERN, f"{SAYS} | AVX512 = 1 | AVX512_BF16 = 1 |")
    found = only(cpu.look(ground), "cpu.flags")
    assert found.level == "fail"
    assert "AVX512_BF16" in found.found


def test_cpu_features_that_the_library_leaves_unused_are_told(tmp_path: Path) -> None:
    found = only(cpu.look(cpu_ground(tmp_path, MODERN, f"{SAYS} |")), "cpu.flags")
    assert found.level == "warn"
    assert "AVX512, AVX512_VNNI" in found.found


def test_library_made_for_this_cpu_is_well(tmp_path: Path) -> None:
    ground = cpu_ground(tmp_path, MODERN, f"{SAYS} | AVX512 = 1 | AVX512_VNNI = 1 |")
    assert only(cpu.look(ground), "cpu.flags").level == "ok"


def test_amx_that_the_build_leaves_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = cpu_ground(tmp_path, f"{MODERN} amx_tile amx_int8", SAYS)
    for amx, level in (("off", "warn"), ("on", "ok")):
        build = buildinfo.BuildInfo(amx=amx, fingerprint="f", kernels="on")
        monkeypatch.setattr(buildinfo, "installed", lambda build=build: build)
        assert only(cpu.look(ground), "cpu.amx").level == level


def test_library_without_a_record_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buildinfo, "installed", buildinfo.BuildInfo)
    assert only(cpu.look(cpu_ground(tmp_path, MODERN, SAYS)), "cpu.library").level == "warn"


@pytest.mark.parametrize(
    ("quota", "level"), [("max 100000", "ok"), ("200000 100000", "ok"), ("150000 100000", "warn")]
)
def test_quota_below_the_threads_is_told(tmp_path: Path, quota: str, level: str) -> None:
    found = only(cpu.look(cpu_ground(tmp_path, MODERN, SAYS, quota)), "cpu.quota")
    assert found.level == level


# -- memory ----------------------------------------------------------------------------------------


def need(own: int, weights: int) -> Need:
    return Need(
        weights=weights, kv=own - (64 << 20), state=0, outputs=0, compute=0, kv_per_token=1,
        cells=1024, sequences=4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "weights", "level"), [(3, 1, "ok"), (3, 3, "warn"), (6, 1, "fail")]
)
def test_memory_that_is_not_there_is_told_before_the_start(
    own: int, weights: int, level: str
) -> None:
    found = memory.room(need(own * GIB, weights * GIB), Available(8 * GIB, 5 * GIB))
    assert found.level == level


def test_memory_of_the_default_model_is_told_in_full(tmp_path: Path) -> None:
    found = only(memory.look(make_ground(tmp_path)), "memory.room")
    assert "weights" in found.found
    assert "sequences" in found.found


def test_processes_that_the_kernel_ended_are_told(tmp_path: Path) -> None:
    root = machine(
        tmp_path / "root",
        {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n",
         "proc/vmstat": "nr_free_pages 1\noom_kill 3\n"},
    )  # fmt: skip
    found = only(memory.look(make_ground(tmp_path, root=root)), "memory.killed")
    assert (found.level, "3 processes" in found.found) == ("note", True)


# -- disk ------------------------------------------------------------------------------------------


def test_durable_writes_are_timed_and_leave_nothing_behind(tmp_path: Path) -> None:
    took = disk.durable_ms(tmp_path, 5)
    assert len(took) == 5
    assert min(took) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "as root"), (errno.EROFS, "disk.read_only"),
     (errno.EIO, "dmesg")],
)  # fmt: skip
def test_state_that_cannot_be_written_fails_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refused(_: Path) -> list[float]:
        raise OSError(number, os.strerror(number))

    (tmp_path / "state").mkdir()
    monkeypatch.setattr(disk, "durable_ms", refused)
    found = only(disk.look(make_ground(tmp_path)), "disk.fsync")
    assert (found.level, advice in found.do) == ("fail", True)


def test_state_that_can_be_written_is_timed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    found = only(disk.look(make_ground(tmp_path)), "disk.fsync")
    assert re.search(r"takes \d+\.\d+ ms \(slowest of 25", found.found)


@pytest.mark.parametrize(
    ("told", "level"),
    [
        ({"smart_status": {"passed": True}}, "ok"),
        ({"smart_status": {"passed": False}}, "fail"),
        ({"smart_status": {"passed": True},
          "nvme_smart_health_information_log": {"percentage_used": 95, "media_errors": 0}}, "warn"),
        ({"smart_status": {"passed": True},
          "nvme_smart_health_information_log": {"percentage_used": 1, "media_errors": 2}}, "warn"),
        ({"smartctl": {"messages": [{"string": "Unable to detect device type"}]}}, "note"),
        ({}, "note"),
    ],
)  # fmt: skip
def test_health_of_a_disk_is_what_smartctl_says(told: dict[str, object], level: str) -> None:
    assert disk.smart("/dev/sda", told).level == level


def test_disk_of_a_partition_is_the_whole_one(tmp_path: Path) -> None:
    place = tmp_path / "sys/devices/pci/nvme0n1/nvme0n1p2"
    machine(place, {"partition": "2\n"})
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/259:2").symlink_to(place)
    assert disk.disk_of(os.makedev(259, 2), tmp_path) == "/dev/nvme0n1"
    assert disk.disk_of(os.makedev(0, 7), tmp_path) is None


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [(500 << 30, 1 << 40, "ok"), (900 << 20, 1 << 40, "warn"), (50 << 20, 1 << 40, "fail"),
     (900 << 20, 1 << 30, "ok")],
    ids=["much", "little of much", "too little", "much of little"],
)  # fmt: skip
def test_space_that_runs_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, total: int, level: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: file_system(free, total))
    root = machine(tmp_path / "root", {"proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\n"})
    found = levels(disk.look(make_ground(tmp_path, root=root)))
    assert found["disk.space"] == level
    assert found["disk.read_only"] == "ok"


def test_state_on_a_read_only_file_system_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: file_system(1 << 40, 1 << 40, os.ST_RDONLY))
    assert only(disk.look(make_ground(tmp_path)), "disk.read_only").level == "fail"


def file_system(free: int, total: int, flags: int = 0) -> os.statvfs_result:
    block = 4096
    blocks = (block, block, total // block, free // block, free // block)
    return os.statvfs_result((*blocks, 100_000, 90_000, 90_000, flags, 255))


def test_read_only_root_is_told_and_no_failure(tmp_path: Path) -> None:
    mounts = "/dev/sda1 / ext4 ro,relatime 0 0\n/dev/sda2 /var ext4 rw 0 0\n"
    root = machine(tmp_path / "root", {"proc/self/mounts": mounts})
    assert only(disk.look(make_ground(tmp_path, root=root)), "disk.read_only").level == "note"


# -- clock -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "by", "level"),
    [
        (clock.Kernel(True, 0.01), "chrony (ntp.lan)", "ok"),
        (clock.Kernel(False, 16.0), "chrony", "note"),
        (clock.Kernel(False, 16.0), "", "warn"),
        (None, "", "note"),
    ],
)
def test_clock_that_nobody_keeps_is_told(kernel: clock.Kernel, by: str, level: str) -> None:
    assert clock.source(kernel, by).level == level


@pytest.mark.parametrize(
    ("wall", "row", "level"),
    [
        (2e9, 0.0, "ok"),
        (2e9, 2e9 + 200, "ok"),
        (2e9, 2e9 + 3600, "fail"),
        (1e8, 0.0, "fail"),
        (9e9, 0.0, "fail"),
    ],
    ids=["right", "a little behind", "before the ledger", "before this program", "after 2100"],
)
def test_time_that_cannot_be_is_told(wall: float, row: float, level: str) -> None:
    assert clock.sane(wall, 1e9, row).level == level


def test_the_kernels_own_clock_can_be_read() -> None:
    found = clock.kernel()
    assert found is None or found.error_s >= 0


def test_keeper_of_the_clock_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    answers = {
        ("chronyc", "-c", "tracking"): "",
        ("timedatectl", "show"): "NTP=yes\nNTPSynchronized=yes\n",
        ("timedatectl", "show-timesync", "--property=ServerName", "--value"): "time.lan\n",
    }
    assert clock.keeper(lambda command: answers[tuple(command)]) == "systemd-timesyncd (time.lan)"
    answers["chronyc", "-c", "tracking"] = "C0A80001,192.168.0.1,3,1,2\n"
    assert clock.keeper(lambda command: answers[tuple(command)]) == "chrony (192.168.0.1)"


def test_clock_of_this_machine_is_later_than_this_program(tmp_path: Path) -> None:
    assert only(clock.look(make_ground(tmp_path)), "clock.sane").level == "ok"
    assert time.time() > 1.7e9


# -- unit ------------------------------------------------------------------------------------------

SHOWN = (
    "LoadState=loaded\nUnitFileState=enabled\nActiveState=active\nSubState=running\nNRestarts=0\n"
    "WatchdogUSec=1min 30s\n"
)
OVERALL = "→ Overall exposure level for steelyard.service: {} OK\n"


def unit_levels(tmp_path: Path, shown: str, exposed: str) -> dict[str, str]:
    def run(command: Sequence[str]) -> str:
        return shown if command[0] == "systemctl" else OVERALL.format(exposed)

    return levels(unit.look(make_ground(tmp_path), run))


def test_unit_as_shipped_is_well(tmp_path: Path) -> None:
    assert set(unit_levels(tmp_path, SHOWN, "1.8").values()) == {"ok"}


@pytest.mark.parametrize(
    ("shown", "exposed", "id", "level"),
    [
        (SHOWN.replace("=enabled", "=disabled"), "1.8", "unit.installed", "warn"),
        (SHOWN.replace("=active", "=failed"), "1.8", "unit.active", "warn"),
        (SHOWN.replace("NRestarts=0", "NRestarts=4"), "1.8", "unit.active", "warn"),
        (SHOWN.replace("1min 30s", "0"), "1.8", "unit.watchdog", "note"),
        (SHOWN, "6.2", "unit.hardening", "note"),
        (SHOWN, "n/a", "unit.hardening", "note"),
        ("LoadState=not-found\n", "", "unit.installed", "note"),
    ],
)
def test_unit_that_is_not_as_it_should_be_is_told(
    tmp_path: Path, shown: str, exposed: str, id: str, level: str
) -> None:
    assert unit_levels(tmp_path, shown, exposed)[id] == level


def test_machine_without_systemd_is_told(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, root=machine(tmp_path / "root", {"proc/cpuinfo": ""}))
    assert levels(unit.look(ground)) == {"unit.installed": "note"}
