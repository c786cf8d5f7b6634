"""Killed at any step, the store holds a model whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.gguf import BadModel
from appliance.models import Store, staging
from tests.unit.model_parts import write_lora, write_mite, write_parts

KILLED_AT_EACH_STEP = """
import os, signal, sys
from pathlib import Path
from appliance.models import BadModel, Store

steps = 0

def counted(call, last):
    def counting(*args, **more):
        global steps
        steps += 1
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **more)
    return counting

def run(last, work):
    for name in ("fsync", "open", "link", "mkdir", "rename", "replace", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name), last))
    for name in ("rename", "replace", "mkdir", "unlink"):
        setattr(Path, name, counted(getattr(Path, name), last))
    work()
    os._exit(0)

def main(state, before, work, check):
    for last in range(1, 400):
        store = Store(Path(f"{state}-{last}"))
        before(store)
        pid = os.fork()
        if not pid:
            run(last, lambda: work(store))
        _, status = os.waitpid(pid, 0)
        check(store)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            print("steps:", last - 1)
            return
    raise AssertionError("it never ended")
"""

ADDING = """
def before(store): pass
def work(store): store.add(Path(sys.argv[2]), name="a")
def check(store):
    assert store.broken() == (), store.broken()
    for stored in store.list():
        store.verify(stored.name)
    if not store.list():
        store.add(Path(sys.argv[2]), name="a")
    entries = sorted(entry.name for entry in store.folder.iterdir())
    assert entries == [".lock", "a"], entries
    store.verify("a")
main(sys.argv[1], before, work, check)
"""

CHOOSING = """
def before(store):
    store.add(Path(sys.argv[2]), name="a")
    store.add(Path(sys.argv[2]), name="b")
    store.select("a")
def work(store):
    store.select("b")
    store.select(None)
def check(store): assert store.selected() in ("a", "b", None)
main(sys.argv[1], before, work, check)
"""

REMOVING = """
def before(store): store.add(Path(sys.argv[2]), name="a")
def work(store): store.remove("a")
def check(store):
    assert store.broken() == (), store.broken()
    for stored in store.list():
        store.verify(stored.name)
    store.add(Path(sys.argv[2]), name="b")
    assert not [e for e in store.folder.iterdir() if e.name.startswith(".removing")]
main(sys.argv[1], before, work, check)
"""

ADAPTING = """
def before(store): store.add(Path(sys.argv[2]), name="a")
def work(store): store.add(Path(sys.argv[3]), name="accent")
def check(store):
    assert store.broken() == (), store.broken()
    stored = store.verify("a")
    if not stored.lora:
        store.add(Path(sys.argv[3]), name="accent")
    assert len(store.verify("a").lora) == 1
main(sys.argv[1], before, work, check)
"""


@pytest.mark.parametrize(
    ("scene", "least"),
    [
        pytest.param(ADDING, 20, id="adding"),
        pytest.param(ADAPTING, 15, id="adding an adapter"),
        pytest.param(CHOOSING, 15, id="choosing"),
        pytest.param(REMOVING, 5, id="removing"),
    ],
)
def test_killed_at_any_step_it_holds_all_or_nothing(tmp_path: Path, scene: str, least: int) -> None:
    model = write_parts(tmp_path, count=2)[0]
    for file in tmp_path.iterdir():
        file.chmod(0o666)  # So that it is copied.
    lora = write_lora(tmp_path / "accent.gguf")
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_STEP + scene, tmp_path / "state", model, lora],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.removeprefix("steps: ")) >= least


def test_what_somebody_is_writing_is_not_a_leftover(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    mite = write_mite(tmp_path / "mite.gguf")
    with staging.staged(store.folder) as hidden:
        (hidden / "half").write_text("half")
        store.add(mite)
        assert (hidden / "half").read_text() == "half"
    assert not hidden.exists()


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    store = Store(tmp_path / "state")
    mite = write_mite(tmp_path / "mite.gguf")
    with pytest.raises(KeyboardInterrupt):
        store.add(mite, tell=interrupt)
    assert [entry.name for entry in store.folder.iterdir()] == [staging.LOCK]


def test_two_who_add_the_same_name_do_not_mix(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    mite = write_mite(tmp_path / "mite.gguf")
    added: list[str] = []

    def meanwhile(*_: object) -> None:
        if not added:
            added.append(store.add(mite, name="a").name)

    with pytest.raises(BadModel, match="has a model named `a` already"):
        store.add(mite, name="a", tell=meanwhile)
    assert store.verify("a").name == "a"
    assert sorted(entry.name for entry in store.folder.iterdir()) == [staging.LOCK, "a"]
