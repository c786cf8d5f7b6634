"""Root's commands leave the service's state to the service."""

import atexit
import os
from pathlib import Path

import pytest

from appliance.ownership import give_to, keep_owner

ME = os.geteuid()
Given = dict[str, tuple[int, int]]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """What would get which owner, by name; changing it for good takes root."""
    found: Given = {}

    def chown(name: str, uid: int, gid: int, **_: object) -> None:
        found[os.path.basename(name)] = (uid, gid)

    monkeypatch.setattr(os, "chown", chown)
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    (folder / "models/tiny").mkdir(parents=True)
    (folder / "ledger.sqlite").touch()
    (folder / "models/tiny/manifest.json").touch()
    return folder


def test_everything_of_root_is_given(state: Path, given: Given) -> None:
    give_to(state, 61234, 61235, ME)
    assert set(given) == {"state", "models", "tiny", "manifest.json", "ledger.sqlite"}
    assert set(given.values()) == {(61234, 61235)}


def test_directory_behind_a_link_is_the_state_too(
    state: Path, tmp_path: Path, given: Given
) -> None:
    """As systemd has it: /var/lib/steelyard leads to /var/lib/private/steelyard."""
    link = tmp_path / "link"
    link.symlink_to(state)
    give_to(link, 61234, 61235, ME)
    assert "ledger.sqlite" in given


def test_what_is_anothers_stays_so(state: Path, given: Given) -> None:
    give_to(state, 61234, 61235, whose=ME + 1)
    assert given == {}


def test_links_lead_nobody_out_of_the_state(state: Path, tmp_path: Path, given: Given) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    (state / "way").symlink_to(outside)
    os.link(outside / "secret", state / "twin")
    give_to(state, 61234, 61235, ME)
    assert "secret" not in given
    assert "twin" not in given


@pytest.mark.parametrize(("euid", "owner", "kept"), [(0, 61234, 1), (1000, 61234, 0), (0, 0, 0)])
def test_only_roots_commands_in_anothers_state_give(
    euid: int, owner: int, kept: int, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[tuple[object, ...]] = []
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr(atexit, "register", lambda *call: registered.append(call))
    real = os.stat(state)
    monkeypatch.setattr(
        Path, "stat", lambda self: os.stat_result((*real[:4], owner, owner, *real[6:10]))
    )
    keep_owner(state)
    assert registered == [(give_to, state, owner, owner)] * kept


def test_state_that_is_not_there_yet_needs_nothing(tmp_path: Path) -> None:
    keep_owner(tmp_path / "missing")
