"""Files that are replaced whole."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance import durable


class Calls:
    """What was asked of the disk, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self._watch(monkeypatch, os, "fsync")
        self._watch(monkeypatch, os, "link")
        self._watch(monkeypatch, Path, "replace")

    def _watch(self, monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
        call = getattr(where, name)

        def watched(*args: Any) -> Any:
            kind = "folder" if name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode) else name
            self.made.append(kind)
            return call(*args)

        monkeypatch.setattr(where, name, watched)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_content_is_on_the_disk_before_its_name_is_and_the_name_before_the_call_returns(
    tmp_path: Path, calls: Calls
) -> None:
    durable.replace(tmp_path / "a", b"one")
    assert calls.made == ["fsync", "replace", "folder"]
    assert (tmp_path / "a").read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_what_can_be_told_anew_waits_for_no_disk(tmp_path: Path, calls: Calls) -> None:
    durable.replace(tmp_path / "a", b"one", lasting=False)
    durable.replace(tmp_path / "a", b"two", lasting=False)
    assert calls.made == ["replace", "replace"]
    assert (tmp_path / "a").read_bytes() == b"two"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_mode_is_less_the_umask_whatever_the_old_file_had(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o777)
    before = os.umask(0o027)
    try:
        durable.replace(path, b"new", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode & ~0o027


def test_disk_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        durable.replace(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL])
def test_folder_that_cannot_be_synced_has_the_file_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(durable, "sync", refuse)
    durable.replace(tmp_path / "a", b"one")
    durable.create(tmp_path / "b", b"two")
    assert names(tmp_path) == ["a", "b"]


def test_folder_that_fails_to_be_synced_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable, "sync", fail)
    with pytest.raises(OSError, match="Input/output"):
        durable.replace(tmp_path / "a", b"one")


def test_what_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        durable.replace(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]


def test_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "a").symlink_to(tmp_path / "target")
    durable.replace(tmp_path / "a", b"ours")
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"theirs"


def test_file_is_created_whole_and_durable(tmp_path: Path, calls: Calls) -> None:
    durable.create(tmp_path / "a", b"one", 0o600)
    assert calls.made == ["fsync", "link", "folder"]
    assert (tmp_path / "a").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("dangling", [False, True])
def test_file_that_is_there_is_never_created_again(tmp_path: Path, dangling: bool) -> None:
    if dangling:
        (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / "a").write_bytes(b"first")
    with pytest.raises(FileExistsError):
        durable.create(tmp_path / "a", b"second")
    assert names(tmp_path) == ["a"]
    assert dangling or (tmp_path / "a").read_bytes() == b"first"


def test_what_root_writes_is_given_to_the_owner_of_the_folder_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, int, bool]] = []

    def chown(path: Path, uid: int, gid: int, *, follow_symlinks: bool) -> None:
        given.append((path.name, uid, follow_symlinks))
        assert not (tmp_path / "a").exists()

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", chown)
    durable.replace(tmp_path / "a", b"one", give=True)
    [(name, uid, followed)] = given
    assert name.startswith(".a.")
    assert uid == tmp_path.stat().st_uid
    assert not followed


def test_what_a_killed_writer_left_is_swept_away_once_it_is_old(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal\n"
        "from appliance import durable\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"durable.replace(pathlib.Path({str(tmp_path / 'sub' / 'a')!r}), b'new')"
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -signal.SIGKILL
    (left,) = (tmp_path / "sub").glob(".a.*.new")
    assert durable.sweep(tmp_path) == 0  # it may still be written
    os.utime(left, (0, 0))
    assert durable.sweep(tmp_path) == 1
    assert names(tmp_path / "sub") == ["a"]
    assert (tmp_path / "sub" / "a").read_bytes() == b"old"


def test_sweeping_spares_what_is_no_draft_of_ours(tmp_path: Path) -> None:
    spared = ["a.new", ".a.new", ".a.12345678.old", ".a.1234567g.new", "a.12345678.new", ".b"]
    for name in spared:
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (0, 0))
    assert durable.sweep(tmp_path) == 0
    assert names(tmp_path) == sorted(spared)
    assert durable.sweep(tmp_path / "missing") == 0


def test_daemon_sweeps_its_state_directory_before_it_serves(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    left = state / ".forecaster.0123abcd.new"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    config = tmp_path / "steelyard.toml"
    config.write_text(f'[model]\npath = "{tmp_path / "none.gguf"}"\n[server]\nport = 0\n')
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "serve", "--config", str(config)],
        env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "none.gguf" in done.stderr, "it was to stop at the model"
    assert not left.exists()
