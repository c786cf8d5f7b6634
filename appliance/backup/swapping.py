"""Putting a prepared state in the place of another, so that a power cut leaves one or the other.

Rules
- What is new lies complete and synced in `.restoring/new` before `.restoring/plan.json` appears,
  which is one rename. Before that instant the old state stands; from it on the new one does, and
  whoever comes next goes on where the last one was cut off.
- Each entry is renamed: the old one into the folder aside, the new one into its place. An entry
  that is no longer in `.restoring/new` is done. Models on a disk of their own are carried there.
- Nothing old is deleted.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from appliance import durable
from appliance.backup.carrying import move
from appliance.backup.contents import LEDGER_FILE, MODELS, STAYS
from appliance.backup.errors import BackupError
from appliance.backup.places import make_private
from appliance.ledger.copying import REPLACED
from appliance.ownership import hand_over

WORK = ".restoring"
NEW = "new"
PLAN = "plan.json"
_LOGS = (f"{LEDGER_FILE}-wal", f"{LEDGER_FILE}-shm", f"{LEDGER_FILE}-journal")


class Plan(msgspec.Struct, frozen=True):
    """What is left to do is what of it is not done."""

    aside: str
    """Folder for the old state, below the state directory."""
    old: tuple[str, ...]
    """Entries that go aside; the ledger's logs before the ledger, which they belong to."""
    new: tuple[str, ...]


def prepare(state_dir: Path) -> Path:
    """An empty folder to prepare in what is new; `commit` takes it from the folder NEW in it. What
    a killed restore had prepared is gone."""
    work = state_dir / WORK
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(mode=0o700)
    return work


def discard(state_dir: Path) -> None:
    """Leaves the old state as it is."""
    shutil.rmtree(state_dir / WORK, ignore_errors=True)


def commit(state_dir: Path, stamp: str) -> Path | None:
    """Makes what was prepared the state. The folder that holds the old one, if there was any."""
    new = state_dir / WORK / NEW
    _settle(state_dir, new)
    entries = tuple(_entries(new))
    old = tuple(_old_entries(state_dir, entries))
    plan = Plan(f"{REPLACED}/{stamp}", old, entries)
    durable.replace(state_dir / WORK / PLAN, msgspec.json.encode(plan))
    finish(state_dir)
    return state_dir / plan.aside if old else None


def finish(state_dir: Path) -> bool:
    """Goes on with a swap that was committed, and clears away what was not. Whether there was a
    committed one. Raises BackupError, OSError."""
    work = state_dir / WORK
    if not work.is_dir():
        return False
    try:
        plan = msgspec.json.decode((work / PLAN).read_bytes(), type=Plan)
    except FileNotFoundError:
        discard(state_dir)
        return False
    except msgspec.MsgspecError as error:
        raise BackupError(
            f"{work / PLAN} is damaged ({error}), and a restore is half done: restore the backup"
            " again with --force"
        ) from None
    _follow(state_dir, plan)
    (work / PLAN).unlink()
    durable.sync(work)
    discard(state_dir)
    return True


def _follow(state_dir: Path, plan: Plan) -> None:
    new, aside = state_dir / WORK / NEW, state_dir / plan.aside
    for name in plan.old:
        done = name in plan.new and not os.path.lexists(new / name)
        if not done and os.path.lexists(state_dir / name):
            _move(state_dir / name, _free(aside / name))
    for name in plan.new:
        if os.path.lexists(new / name):
            _move(new / name, state_dir / name)


def _move(source: Path, target: Path) -> None:
    """Durable before the next one begins."""
    missing = [folder for folder in target.parents if not folder.is_dir()]
    make_private(target.parent)
    for folder in reversed(missing):
        hand_over(folder, folder.parent)
    move(source, target)
    durable.sync(target.parent)
    durable.sync(source.parent)


def _free(path: Path) -> Path:
    """A command may have made a file in the moment when there was none."""
    count = 1
    found = path
    while os.path.lexists(found):
        count += 1
        found = path.with_name(f"{path.name}.{count}")
    return found


def _entries(folder: Path) -> Iterator[str]:
    """What is swapped as one: entries at the top, but each model by itself."""
    for path in sorted(folder.iterdir()):
        if path.name == MODELS:
            yield from (f"{MODELS}/{model.name}" for model in sorted(path.iterdir()))
        else:
            yield path.name


def _old_entries(state_dir: Path, new: tuple[str, ...]) -> Iterator[str]:
    """All that is there, but models that the backup does not have."""
    found = [name for name in _LOGS if (state_dir / name).exists()]
    yield from found
    for path in sorted(state_dir.iterdir()):
        if path.name not in {*STAYS, *found, MODELS} and not path.name.startswith("."):
            yield path.name
    if (state_dir / MODELS).is_dir():
        yield from (name for name in new if name.startswith(f"{MODELS}/"))


def _settle(state_dir: Path, new: Path) -> None:
    """Owners, and names on the disk."""
    for folder, names, files in os.walk(new, topdown=False):
        for name in (*names, *files):
            hand_over(Path(folder) / name, state_dir)
        durable.sync(Path(folder))
    hand_over(new.parent, state_dir)
    hand_over(new, state_dir)
