"""What /proc says about a process."""

import os
from pathlib import Path

import pytest

from appliance.vitals import Vitals, read_vitals


def make_proc(root: Path, status: str) -> Path:
    folder = root / "7"
    folder.mkdir()
    (folder / "status").write_text(status)
    return root


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        ("S (sleeping)", False),
        ("R (running)", False),
        ("T (stopped)", True),
        ("t (tracing stop)", True),
        ("Z (zombie)", False),
    ],
)
def test_stopped_process_is_recognised(tmp_path: Path, state: str, stopped: bool) -> None:
    proc = make_proc(tmp_path, f"Name:\tengine\nState:\t{state}\nVmRSS:\t 10 kB\nRssAnon:\t 4 kB\n")
    assert read_vitals(7, proc) == Vitals(stopped, 10 * 1024, 4 * 1024)


def test_process_that_is_gone_has_none(tmp_path: Path) -> None:
    assert read_vitals(8, tmp_path) is None


def test_zombie_has_no_memory(tmp_path: Path) -> None:
    proc = make_proc(tmp_path, "Name:\tengine\nState:\tZ (zombie)\n")
    assert read_vitals(7, proc) == Vitals(False, 0, 0)


def test_this_process_lives_and_has_memory_of_its_own() -> None:
    vitals = read_vitals(os.getpid())
    assert vitals is not None
    assert not vitals.stopped
    assert 0 < vitals.anonymous_bytes <= vitals.rss_bytes
