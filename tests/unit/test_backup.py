"""Backups: what is in them, that they are whole, and that what is not whole is told."""

import platform
import random
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.accounts.keys import KeyStore
from appliance.backup import (
    BackupError,
    NothingToBackUp,
    archive,
    backups,
    is_sealed,
    places,
    restore,
    sealing,
    take,
    taking,
    verify,
)
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.rows import Note
from appliance.ledger.writer import Ledger
from tests.unit.backup_parts import MODEL, OF_A_BACKUP, PASSPHRASE, contents, make_state, put
from tests.unit.ledger_parts import admitted, request
from tests.unit.proof_ledger import START, add, make_entries, verdict_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _hurried() -> Iterator[None]:
    """To make a key takes some tenths of a second, by intent. It is the same here, but small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "N", 1 << 10)
        yield


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read, never written to."""
    return make_state(tmp_path_factory.mktemp("backup") / "state")


@pytest.fixture(scope="module")
def plain(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return take(state, tmp_path_factory.mktemp("plain") / "b").path


@pytest.fixture(scope="module")
def sealed(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return take(state, tmp_path_factory.mktemp("sealed") / "b", passphrase=PASSPHRASE).path


def names_in(path: Path, passphrase: bytes | None = None) -> set[str]:
    with archive.open_archive(path, passphrase) as opened:
        return {part.path for part in opened.manifest.files}


def test_a_backup_has_all_but_what_only_the_running_box_needs(plain: Path) -> None:
    models = {f"models/{MODEL}/manifest.json", "models/selected.json"}
    expected = {f"state/{name}" for name in OF_A_BACKUP | models} | {"state/ledger.sqlite"}
    assert names_in(plain) == expected


def test_only_its_owner_can_read_a_backup(plain: Path, sealed: Path) -> None:
    for path in (plain, sealed):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_backup_verifies_with_the_head_of_its_ledger(state: Path, plain: Path) -> None:
    found = verify(plain)
    assert found.problems == ()
    assert found.head == verdict_of(state / "ledger.sqlite").head
    assert not found.encrypted
    assert found.models == (MODEL,)


def test_a_file_that_a_later_version_adds_is_in_the_backup(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    put(state / "something/new.json", b"1")
    assert "state/something/new.json" in names_in(take(state, tmp_path / "b").path)


def test_models_come_along_when_asked_for(state: Path, tmp_path: Path) -> None:
    taken = take(state, tmp_path / "b", with_models=True)
    assert f"state/models/{MODEL}/tiny.gguf" in names_in(taken.path)
    restore(taken.path, tmp_path / "new")
    assert contents(tmp_path / "new/models") == contents(state / "models")


def test_models_on_a_disk_that_a_link_leads_to_come_along_and_nothing_else_there(
    tmp_path: Path,
) -> None:
    state, disk = make_state(tmp_path / "state"), tmp_path / "disk"
    (state / "models").rename(disk)
    (state / "models").symlink_to(disk)
    put(disk / "private/key.pem", b"nobody's business")
    put(disk / "passwords.txt", b"nobody's business")
    (disk / "elsewhere").symlink_to(tmp_path / "state/tls")
    put(state / "tls/manifest.json", b"{}")
    for with_models in (False, True):
        taken = take(state, tmp_path / f"backup-{with_models}", with_models=with_models)
        with archive.open_archive(taken.path, None) as opened:
            names = {part.path for part in opened.manifest.files}
        there = {name.removeprefix("state/models/") for name in names if "/models/" in name}
        weights = {f"{MODEL}/tiny.gguf"} if with_models else set()
        assert there == {"selected.json", f"{MODEL}/manifest.json"} | weights
        assert not taken.warnings
    restore(taken.path, tmp_path / "new")
    assert (tmp_path / "new/models/tiny/tiny.gguf").is_file()


def test_links_are_not_followed_and_never_left_out_in_silence(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    (state / "calibration").rename(tmp_path / "elsewhere")
    (state / "calibration").symlink_to(tmp_path / "elsewhere")
    (state / "forecasters/abc/newest").symlink_to("v0001.forecaster")
    taken = take(state, tmp_path / "backup")
    assert [warning.partition("'")[2].partition("'")[0] for warning in taken.warnings] == [
        "calibration",
        "forecasters/abc/newest",
    ]
    with archive.open_archive(taken.path, None) as opened:
        assert not [part for part in opened.manifest.files if "calibration" in part.path]


def test_the_configuration_and_the_files_that_it_names_come_along(
    state: Path, tmp_path: Path
) -> None:
    put(tmp_path / "etc/chat.jinja", b"{{ messages }}")
    config = tmp_path / "etc/steelyard.toml"
    config.write_text('[model]\nchat_template = "chat.jinja"\n')
    taken = take(state, tmp_path / "b", config_file=config)
    assert {"config/steelyard.toml", "config/files/00-chat.jinja"} <= names_in(taken.path)
    (tmp_path / "etc/chat.jinja").unlink()
    kept = config.read_bytes()
    config.unlink()
    done = restore(taken.path, tmp_path / "new", config_file=config)
    assert (done.configuration, config.read_bytes()) == (config, kept)
    (told,) = [line for line in done.warnings if "chat.jinja" in line]
    assert str(tmp_path / "new/restored/files/00-chat.jinja") in told


def test_a_configuration_that_is_there_is_never_written_over(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "steelyard.toml"
    config.write_text("[limits]\nn = 2\n")
    taken = take(state, tmp_path / "b", config_file=config)
    config.write_text("[limits]\nn = 3\n")
    done = restore(taken.path, tmp_path / "new", config_file=config)
    assert "n = 3" in config.read_text()
    assert done.configuration == tmp_path / "new/restored/steelyard.toml"
    assert "n = 2" in done.configuration.read_text()
    assert any(str(config) in line for line in done.warnings)


def test_what_is_written_while_the_copy_is_made_is_not_half_in_it(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    before = verdict_of(state / "ledger.sqlite").last_seq
    box = Ledger.open(state / "ledger.sqlite")
    numbers: list[int] = []

    def go_on(phase: str, done: int, total: int) -> None:
        if phase == "copy":
            number = box.next_number()
            box.admit(admitted(number)).result(20)
            box.record(request(number), None).result(20)
            numbers.append(number)

    try:
        taken = take(state, tmp_path / "b", tell=go_on)
        assert numbers, "it was never asked"
        assert taken.head_seq == before
        assert take(state, tmp_path / "later").head_seq >= before + 2 * len(numbers)
    finally:
        box.close()
    assert verify(taken.path).problems == ()


def test_a_key_made_before_the_backup_works_after_the_restore(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    secret = KeyStore(tmp_path / "state/ledger.sqlite").create("phone", ["infer"])
    taken = take(tmp_path / "state", tmp_path / "b")
    restore(taken.path, tmp_path / "new")
    key = KeyStore(tmp_path / "new/ledger.sqlite").authenticate(secret)
    assert key is not None
    assert key.name == "phone"


def test_an_encrypted_backup_shows_nothing_and_opens_with_its_passphrase_alone(
    state: Path, sealed: Path, tmp_path: Path
) -> None:
    assert is_sealed(sealed)
    data = sealed.read_bytes()
    for secret in ((state / "ledger-key.pem").read_bytes()[30:60], b"ledger.sqlite", b"box.local"):
        assert secret not in data
    assert verify(sealed, passphrase=PASSPHRASE).encrypted
    with pytest.raises(BackupError, match="the passphrase is not the one"):
        verify(sealed, passphrase=b"incorrect horse")
    with pytest.raises(BackupError, match="encrypted: give its passphrase"):
        restore(sealed, tmp_path / "new")


def test_an_encrypted_backup_is_never_put_together_on_the_disk_that_it_is_for(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "free_bytes", lambda folder: 0)
    with pytest.raises(BackupError) as refused:
        take(state, tmp_path / "b", passphrase=PASSPHRASE)
    assert f"{tmp_path} has" not in str(refused.value)
    with pytest.raises(BackupError) as refused:
        take(state, tmp_path / "b")
    assert f"{tmp_path} has 0 MiB" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_passphrase_that_protects_nothing_is_refused(state: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="at least 8"):
        take(state, tmp_path / "b", passphrase=b"short")


def test_a_file_that_vanishes_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state(tmp_path / "state")
    true = taking.state_files

    def listed(folder: Path, *, with_models: bool) -> list[tuple[str, Path]]:
        return [*true(folder, with_models=with_models), ("gone", folder / "gone")]

    monkeypatch.setattr(taking, "state_files", listed)
    taken = take(state, tmp_path / "b")
    assert "state/gone" not in names_in(taken.path)
    assert verify(taken.path).problems == ()


def test_nothing_to_back_up_is_not_a_backup(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(NothingToBackUp, match="there is no ledger"):
        take(tmp_path / "state", tmp_path / "b")


def test_a_file_that_is_there_is_not_written_over(state: Path, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(BackupError, match="exists"):
        take(state, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"mine"


def older(usb: Path, *years: int) -> list[Path]:
    """Backups of this machine, as far as their names say."""
    usb.mkdir(exist_ok=True)
    made = [usb / places.named(platform.node(), (year - 1970) * 365.25 * 86400) for year in years]
    for path in made:
        put(path, b"older")
    return made


def test_old_backups_go_and_other_files_stay(state: Path, tmp_path: Path) -> None:
    usb = tmp_path / "usb"
    first, second, third = older(usb, 2001, 2002, 2003)
    others = [usb / f"another-{first.name}", usb / "notes.txt", usb / f"{first.name}.txt"]
    for other in others:
        put(other, b"mine")
    taken = take(state, usb, keep=2)
    assert sorted(taken.removed) == [first, second]
    assert set(usb.iterdir()) == {taken.path, third, *others}


def test_an_older_backup_that_cannot_be_removed_does_not_fail_the_new_one(
    state: Path, tmp_path: Path
) -> None:
    usb = tmp_path / "usb"
    stuck, gone = older(usb, 2001, 2002)
    stuck.unlink()
    stuck.mkdir()
    taken = take(state, usb, keep=1)
    assert taken.removed == (gone,)
    (warning,) = taken.warnings
    assert str(stuck) in warning
    assert set(usb.iterdir()) == {taken.path, stuck}


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_backups_of_another_box_with_the_same_name_stay(
    tmp_path: Path, passphrase: bytes | None
) -> None:
    """Boxes are called what their image calls them, until somebody names them."""
    ours, theirs = make_state(tmp_path / "ours"), make_state(tmp_path / "theirs")
    (theirs / "ledger.sqlite").unlink()
    with connect(theirs / "ledger.sqlite") as db, transaction(db):
        append(db, make_entries(range(1, 9), START + 1))
    usb = tmp_path / "usb"
    usb.mkdir()
    first = take(ours, usb, passphrase=passphrase).path
    other = take(theirs, usb, passphrase=passphrase).path
    add(ours / "ledger.sqlite", Note(wall_ns=START, event="started"))
    taken = take(ours, usb, passphrase=passphrase, keep=1)
    assert taken.removed == (first,)
    assert {path.name for path in usb.iterdir()} == {other.name, taken.path.name}
    (warning,) = taken.warnings
    assert "another box" in warning


def test_an_unsound_ledger_is_backed_up_with_a_warning_and_removes_no_older_backup(
    tmp_path: Path,
) -> None:
    state, usb = make_state(tmp_path / "state"), tmp_path / "usb"
    (before,) = older(usb, 2001)
    with sqlite3.connect(state / "ledger.sqlite") as db:
        db.execute("UPDATE entries SET body = replace(body, 'acme', 'evil') WHERE seq = 3")
    db.close()
    taken = take(state, usb, keep=1)
    assert "not sound" in taken.warnings[0]
    assert taken.removed == ()
    assert before.exists()
    assert "not sound" in verify(taken.path).problems[0]
    with pytest.raises(BackupError, match="--accept-faults"):
        restore(taken.path, tmp_path / "new")
    assert not (tmp_path / "new/ledger.sqlite").exists()
    restore(taken.path, tmp_path / "new", accept_faults=True)
    assert (tmp_path / "new/ledger.sqlite").exists()


def test_a_directory_is_listed_with_what_its_backups_say(plain: Path, tmp_path: Path) -> None:
    put(tmp_path / "a.steelyard-backup", plain.read_bytes())
    put(tmp_path / "b.steelyard-backup", b"not a backup")
    first, second = backups(tmp_path)
    assert first.manifest is not None
    assert second.manifest is None
    assert "no backup" in second.problem


_LIMITED = """
import resource, sys
from pathlib import Path
from appliance.backup import BackupError, take
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    take(Path(sys.argv[1]), Path(sys.argv[2]))
except BackupError as error:
    print(error)
"""
"""Files grow no further than that, as on a disk that gets full."""


@pytest.mark.parametrize("most", [100, 9000, 50_000])
def test_a_disk_that_gets_full_on_the_way_is_told_and_nothing_stays(
    tmp_path: Path, most: int
) -> None:
    state = make_state(tmp_path / "state")
    put(state / "noise", bytes(random.Random(1).randbytes(60_000)))
    before = contents(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(state), str(tmp_path / "b"), str(most)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert re.search("too large|failed to read or write|is full|cannot be", done.stdout)
    assert contents(tmp_path) == before


def test_the_boxs_own_disk_is_never_filled(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same directory tree is the same disk."""
    free = iter([1 << 40, (100 << 20) + state.joinpath("ledger.sqlite").stat().st_size])
    monkeypatch.setattr(places, "free_bytes", lambda folder: next(free))
    with pytest.raises(BackupError, match="the backup may need"):
        take(state, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_takes_no_writing_is_named(state: Path) -> None:
    """Nobody, not even root, writes there."""
    with pytest.raises(BackupError, match="/sys"):
        take(state, Path("/sys"))
