"""Restoring: all of it or nothing, whatever happens on the way; and older ledgers are kept."""

import json
import logging
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from appliance import daemon
from appliance.alone import CannotServe, only_daemon
from appliance.backup import BackupError, archive, places, restore, restoring, swapping, take
from appliance.backup.manifest import LEDGER, Manifest
from appliance.calibrate.status import StatusFiles
from appliance.config import Config, ServerConfig
from appliance.ledger import copying
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Note
from tests.unit.backup_parts import MODEL, OF_A_BACKUP, add_model, contents, make_state, put
from tests.unit.proof_ledger import START, add, make_ledger, verdict_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`state` and a backup of it, `backup`. Read, never written to."""
    folder = tmp_path_factory.mktemp("given")
    take(make_state(folder / "state"), folder / "backup")
    return folder


def grown(state: Path) -> str:
    """The head after one more entry."""
    path = state / "ledger.sqlite"
    add(path, Note(wall_ns=START, event="started"))
    return verdict_of(path).head


def test_a_restored_state_is_what_was_backed_up(given: Path, tmp_path: Path) -> None:
    done = restore(given / "backup", tmp_path / "new")
    assert done.replaced is None
    was = contents(given / "state")
    now = contents(tmp_path / "new")
    assert {name: now[name] for name in OF_A_BACKUP} == {name: was[name] for name in OF_A_BACKUP}
    assert set(now) - OF_A_BACKUP == {"daemon.lock"}
    verdict = verdict_of(tmp_path / "new/ledger.sqlite")
    assert verdict.ok, verdict
    assert verdict.last_seq == done.head_seq + 1, "the restore itself is an entry"


def test_the_restored_ledger_says_that_it_is_one(given: Path, tmp_path: Path) -> None:
    done = restore(given / "backup", tmp_path / "new", operator="ada")
    with closing(connect(tmp_path / "new/ledger.sqlite", read_only=True)) as db:
        newest = db.execute("SELECT body FROM entries ORDER BY seq DESC LIMIT 1").fetchone()[0]
    row = json.loads(newest)
    assert (row["action"], row["operator"], row["target"]) == ("restore", "ada", "backup")
    assert row["detail"]["head"] == done.head


def test_what_others_could_read_they_cannot_read_after_it(given: Path, tmp_path: Path) -> None:
    restore(given / "backup", tmp_path / "new")
    files = [path for path in (tmp_path / "new").rglob("*") if path.name != "daemon.lock"]
    assert files
    assert not any(path.stat().st_mode & 0o077 for path in [tmp_path / "new", *files])


def test_a_state_is_replaced_only_when_told_to_and_kept_aside(given: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    put(state / "of-the-old-box", b"1")
    head = grown(state)
    before = contents(state)
    with pytest.raises(BackupError, match="--force"):
        restore(given / "backup", state)
    assert contents(state) == before
    done = restore(given / "backup", state, force=True)
    assert done.replaced is not None
    assert verdict_of(done.replaced / "ledger.sqlite").head == head
    assert not (state / "of-the-old-box").exists()
    assert not (state / "journal").exists(), "it belongs to the ledger that went"
    for name in (*OF_A_BACKUP, "of-the-old-box", "journal/1.tokens"):
        assert (done.replaced / name).read_bytes() == before[name]
    again = restore(given / "backup", state, force=True)
    assert again.replaced not in (None, done.replaced)


def test_a_running_box_is_not_restored(given: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    before = contents(state)
    with only_daemon(state), pytest.raises(BackupError, match=r"a box runs on .* stop it first"):
        restore(given / "backup", state, force=True)
    with StatusFiles(state).take(), pytest.raises(BackupError, match="a calibration runs"):
        restore(given / "backup", state, force=True)
    with places.locked_state(state), pytest.raises(BackupError, match="another backup or restore"):
        restore(given / "backup", state, force=True)
    (state / "calibration/lock").unlink()
    assert contents(state) == before


def test_a_damaged_backup_changes_nothing(given: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    before = contents(state)
    data = (given / "backup").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(BackupError, match="cut short or damaged"):
        restore(tmp_path / "cut", state, force=True)
    assert contents(state) == before
    assert [path.name for path in state.iterdir() if path.name.startswith(".")] == []


def test_no_room_is_told_before_anything_is_written(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "free_bytes", lambda folder: 1 << 20)
    with pytest.raises(BackupError, match="has 1 MiB free, and what is in the backup may need"):
        restore(given / "backup", tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"daemon.lock"}


def rewritten(source: Path, target: Path, change: Any, swap: dict[str, Path] | None = None) -> Path:
    """A backup with another manifest."""
    folder = target.with_name(f"{target.name}-parts")
    with archive.open_archive(source, None) as opened:
        opened.unpack(folder, lambda name: True, lambda *_: None)
        manifest: Manifest = change(opened.manifest)
    sources = {part.path: folder / part.path for part in manifest.files} | (swap or {})
    with target.open("wb") as out:
        archive.write_archive(out, manifest, sources, None, lambda *_: None)
    return target


def test_room_on_the_models_own_disk_is_asked_for_before_anything_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state(tmp_path / "state")
    taken = take(state, tmp_path / "backup", with_models=True)
    target = make_state(tmp_path / "new")
    before = contents(target)
    monkeypatch.setattr(restoring, "_disk_of", lambda path: path.name == "models")

    def free(folder: Path) -> int:
        return 1 << 20 if folder.name == "models" else 1 << 40

    monkeypatch.setattr(places, "free_bytes", free)
    with pytest.raises(BackupError, match="models has 1 MiB free, and the models in the backup"):
        restore(taken.path, target, force=True)
    assert contents(target) == before
    assert not (target / ".restoring").exists()


def test_a_ledger_of_a_newer_version_is_refused(given: Path, tmp_path: Path) -> None:
    def newer(manifest: Manifest) -> Manifest:
        names = (*manifest.ledger.migrations, "m999_later")
        return replace(manifest, version="9.9", ledger=replace(manifest.ledger, migrations=names))

    later = rewritten(given / "backup", tmp_path / "later", newer)
    with pytest.raises(BackupError, match=r"newer Steelyard \(9.9; .*m999_later"):
        restore(later, tmp_path / "new")
    assert not (tmp_path / "new/ledger.sqlite").exists()


def test_a_ledger_that_hides_its_version_is_refused_too(given: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    shutil.copy(given / "state/ledger.sqlite", ledger)
    with closing(sqlite3.connect(ledger)) as db, db:
        db.execute("UPDATE _sqlite_migrations SET name = 'm999_later' WHERE name LIKE 'm009%'")
    size, digest = archive.measured(ledger)

    def swapped(manifest: Manifest) -> Manifest:
        files = [
            replace(part, size=size, sha256=digest) if part.path == LEDGER else part
            for part in manifest.files
        ]
        return replace(manifest, files=tuple(files))

    made = rewritten(given / "backup", tmp_path / "later", swapped, {LEDGER: ledger})
    with pytest.raises(BackupError, match="newer, version of Steelyard"):
        restore(made, tmp_path / "new")
    assert not (tmp_path / "new/ledger.sqlite").exists()


def test_models_that_are_there_stay_and_missing_ones_are_named(given: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    add_model(state, "other")
    add_model(state, MODEL, lora=["an adapter that was added since"])
    done = restore(given / "backup", state, force=True)
    assert done.missing_models == ()
    assert (state / f"models/{MODEL}/tiny.gguf").exists()
    assert (state / "models/other/tiny.gguf").exists()
    assert msgspec.json.decode((state / "models/selected.json").read_bytes()) == {"name": MODEL}
    add_model(state, MODEL, sha256="cd" * 32)
    done = restore(given / "backup", state, force=True)
    assert done.missing_models == (MODEL,), "another model of the same name"
    bare = restore(given / "backup", tmp_path / "new")
    assert bare.missing_models == (MODEL,)
    assert not (tmp_path / "new/models/selected.json").exists(), "it could not start"
    assert any(f"steelyard model use {MODEL}" in line for line in bare.warnings)


# Kills


def kills(what: str, folder: Path) -> list[dict[str, Any]]:
    """What was found after each step at which it was killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.backup_kills", what, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("what", ["restore", "carry"])
def test_a_restore_killed_at_any_step_leaves_the_old_state_or_the_new(
    tmp_path: Path, what: str
) -> None:
    """Also where the models are on a disk of their own, and are carried there."""
    state = make_state(tmp_path / "given/state")
    (state / "tuned.json").write_text("new")
    (tmp_path / "new").write_text(verdict_of(state / "ledger.sqlite").head)
    take(state, tmp_path / "backup", with_models=what == "carry")
    (state / "tuned.json").write_text("old")
    (tmp_path / "old").write_text(grown(state))
    found = kills(what, tmp_path)
    assert len(found) > 20
    for step, after in enumerate(found):
        about = (step, after)
        assert after["sound"], about
        assert after["old"] != after["new"], about
        assert after["same"] == after["old"], about
        assert after["kept"] == after["new"], about
        assert after["weights"], about
        assert not after["left"], about
    went_on = [after["went_on"] for after in found]
    assert True in went_on
    assert went_on.index(True) > 3, "long before, there is nothing to go on with"


def test_a_backup_killed_at_any_step_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    make_state(tmp_path / "given/state")
    (tmp_path / "given/usb").mkdir()
    found = kills("take", tmp_path)
    assert len(found) > 3
    for step, after in enumerate(found):
        about = (step, after)
        assert all(problems == [] for problems in after["whole"]), about
        assert after["again"] == [], about
        assert after["hidden"] == [], about
        assert after["state"], about


def test_the_start_of_the_box_ends_a_restore_that_was_cut_off(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(swapping, "finish", lambda state_dir: False)
        restore(given / "backup", tmp_path / "state")
    assert not (tmp_path / "state/ledger.sqlite").exists()

    def refuse(config: Config) -> None:
        raise CannotServe("far enough")

    monkeypatch.setattr(daemon, "check", refuse)
    config = Config(server=ServerConfig(state_dir=tmp_path / "state"))
    assert daemon.serve(config) == daemon.FAILED
    assert verdict_of(tmp_path / "state/ledger.sqlite").ok
    assert not (tmp_path / "state/.restoring").exists()


# Ledgers of older versions


def make_older(path: Path) -> None:
    """As it was before the last migration."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE corrections")
        db.execute("DELETE FROM _sqlite_migrations WHERE name LIKE 'm009%'")


def test_a_migration_keeps_the_ledger_as_it_was_and_says_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    make_older(path)
    before = verdict_of(path)
    with caplog.at_level(logging.WARNING):
        connect(path).close()
    kept = tmp_path / "replaced/ledger-before-m009_corrections.sqlite"
    assert str(kept) in caplog.text
    assert kept.stat().st_mode & 0o077 == 0
    assert verdict_of(kept).head == before.head == verdict_of(path).head
    with closing(sqlite3.connect(kept)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    assert "corrections" not in tables
    caplog.clear()
    connect(path).close()
    assert caplog.text == "", "nothing is left to migrate"
    assert len(list((tmp_path / "replaced").iterdir())) == 1


def test_a_new_ledger_has_nothing_to_keep(tmp_path: Path) -> None:
    connect(tmp_path / "ledger.sqlite").close()
    assert not (tmp_path / "replaced").exists()


def test_no_room_to_keep_it_is_told_and_nothing_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    make_older(path)
    before = path.read_bytes()
    monkeypatch.setattr(copying, "free_bytes", lambda folder: 1 << 20)
    with pytest.raises(LedgerError, match=r"has 1 MiB free, and .* are needed"):
        connect(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name == "replaced"] == []


def test_only_the_newest_kept_ledgers_stay(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    for name in ("a", "b", "c", "d"):
        newest = copying.keep_copy(path, f"before-{name}")
    kept = sorted(path.name for path in (tmp_path / "replaced").iterdir())
    assert len(kept) == copying.KEPT
    assert newest.name in kept


def test_a_migration_killed_at_any_step_is_done_by_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    make_older(make_ledger(tmp_path / "given/ledger.sqlite"))
    found = kills("migrate", tmp_path)
    assert len(found) >= 3
    for step, after in enumerate(found):
        assert after["sound"], (step, after)
        assert after["kept"] == [True], (step, after)


def test_a_backup_of_an_older_version_is_restored_and_brought_up_to_date(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    make_older(state / "ledger.sqlite")
    restore(take(state, tmp_path / "backup").path, tmp_path / "new")
    with closing(connect(tmp_path / "new/ledger.sqlite", read_only=True)) as db:
        assert "corrections" in db.table_names()
    assert verdict_of(tmp_path / "new/ledger.sqlite").ok
    assert not (tmp_path / "new/replaced").exists(), "the backup is the copy"
