"""How many threads pay: physical cores, not hyper-threads."""

import os
from pathlib import Path

import pytest

from appliance.threads import usable_cores


def make_topology(root: Path, siblings: list[str]) -> Path:
    for cpu, group in enumerate(siblings):
        folder = root / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{group}\n")
    return root


@pytest.mark.parametrize(
    ("allowed", "siblings", "cores"),
    [
        ({0, 1, 2, 3}, ["0,2", "1,3", "0,2", "1,3"], 2),
        ({0, 1, 2, 3}, ["0", "1", "2", "3"], 4),
        ({1}, ["0-1", "0-1"], 1),
        ({0, 2}, ["0,2", "1,3", "0,2", "1,3"], 1),
        ({0, 1, 2}, [], 3),
    ],
    ids=["hyper-threads", "plain", "one thread", "both of one core", "unknown"],
)
def test_hyper_threads_of_one_core_count_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    allowed: set[int],
    siblings: list[str],
    cores: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    assert usable_cores(make_topology(tmp_path, siblings)) == cores


def test_this_machine_has_at_least_one() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
