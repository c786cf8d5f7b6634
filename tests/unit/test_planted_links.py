"""Root's commands write into directories of the box's own user. A link that lies there, should that
user have been taken over, leads root to no other file: none is cut off, written or given away."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.alone import CannotServe, only_daemon
from appliance.bundle import bringing, folder
from appliance.bundle.manifest import Entry
from appliance.models.staging import LOCK
from appliance.models.staging import locked as locked_models
from appliance.tls.files import locked as locked_tls

WORDS = b"root:x:0:0"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    found = tmp_path / "victim"
    found.write_bytes(WORDS)
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


def serve(state: Path) -> None:
    with only_daemon(state):
        pass


def renew(state: Path) -> None:
    with locked_tls(state / "lock"):
        pass


def add(state: Path) -> None:
    with locked_models(state):
        pass


@pytest.mark.parametrize(
    ("name", "act"),
    [("daemon.lock", serve), ("lock", renew), (LOCK, add)],
    ids=["serve", "tls", "models"],
)
def test_a_lock_that_is_a_link_is_refused(
    state: Path, victim: Path, name: str, act: Callable[[Path], None]
) -> None:
    act(state)
    (state / name).unlink()
    (state / name).symlink_to(victim)
    with pytest.raises((OSError, CannotServe)):
        act(state)
    assert victim.read_bytes() == WORDS
    victim.unlink()
    with pytest.raises((OSError, CannotServe)):
        act(state)
    assert not victim.exists(), "nor is one made where there was none"


def test_what_a_bundle_brings_is_never_written_through_a_link(state: Path, victim: Path) -> None:
    data = b"firmware"
    (state / "image").write_bytes(data)
    entry = Entry("image", len(data), hashlib.sha256(data).hexdigest(), "firmware")
    (state / ".target.part").symlink_to(victim)
    folder.copy(state / "image", entry, state / "target", 0o640)
    assert victim.read_bytes() == WORDS
    made = state / "target"
    assert (made.read_bytes(), made.is_symlink()) == (data, False)
    assert made.stat().st_mode & 0o777 == 0o640


def test_what_a_bundle_brings_is_given_to_the_box_and_nothing_else_is(
    state: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root does it; that a link is not followed is for the system to see to."""
    given: list[tuple[Path, bool]] = []

    def chown(path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        given.append((path, follow_symlinks))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", chown)
    (state / "firmware").mkdir()
    (state / "firmware/image").symlink_to(victim)
    bringing._hand_over(state / "firmware/image")
    assert given == [(state / "firmware", False), (state / "firmware/image", False)]
