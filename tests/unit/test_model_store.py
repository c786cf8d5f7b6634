"""The store of models: what is added, kept, chosen and removed."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from appliance import models
from appliance.gguf import BadModel
from appliance.models import Store, copying, staging
from appliance.models.staging import failed
from tests.unit.model_parts import write_mite, write_parts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


@pytest.fixture
def mite(tmp_path: Path) -> Path:
    return write_mite(tmp_path / "Mite v1.gguf")


def hidden(store: Store) -> list[str]:
    """What lies in the store besides models."""
    return [entry.name for entry in store.folder.iterdir() if entry.name.startswith(".")]


def test_an_added_model_is_kept_with_what_is_known_of_it(store: Store, mite: Path) -> None:
    stored = store.add(mite, name="house")
    assert store.list() == (stored,)
    assert store.get("house") == stored
    assert stored.path.read_bytes() == mite.read_bytes()
    assert stored.sha256 == hashlib.sha256(mite.read_bytes()).hexdigest()
    assert (stored.architecture, stored.quantisation, stored.licence) == (
        "llama", "F32", "apache-2.0",
    )  # fmt: skip
    assert (stored.size, stored.source) == (mite.stat().st_size, str(mite))
    assert stored.added.endswith("+00:00")
    manifest = json.loads((stored.folder / "manifest.json").read_text())
    assert manifest["files"] == [
        {"file": "house.gguf", "size": stored.size, "sha256": stored.sha256}
    ]
    assert "folder" not in manifest
    assert hidden(store) == [staging.LOCK]


def test_the_original_is_not_needed_afterwards(store: Store, mite: Path) -> None:
    stored = store.add(mite)
    mite.unlink()
    assert store.verify(stored.name) == stored


def test_without_a_name_it_gets_the_files_made_fit(store: Store, mite: Path) -> None:
    assert store.add(mite).name == "Mite-v1"


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "-a", "a b", "x" * 128, "a.gguf"])
def test_a_name_that_could_mean_something_else_is_refused(
    store: Store, mite: Path, name: str
) -> None:
    with pytest.raises(BadModel, match="cannot be a model's name"):
        store.add(mite, name=name)
    assert not store.folder.exists()


def test_a_name_that_is_taken_is_refused(store: Store, mite: Path) -> None:
    store.add(mite, name="a")
    with pytest.raises(BadModel, match="has a model named `a` already"):
        store.add(mite, name="a")
    packaged = models.packaged_model().stem
    with pytest.raises(BadModel, match=f"has a model named `{packaged}` already"):
        store.add(mite, name=packaged)
    assert [stored.name for stored in store.list()] == ["a"]


def test_what_is_no_model_leaves_no_trace(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"hello")
    with pytest.raises(BadModel, match="not a GGUF file"):
        store.add(tmp_path / "a.gguf")
    with pytest.raises(BadModel, match="No such file"):
        store.add(tmp_path / "none.gguf")
    assert not store.folder.exists()


def test_a_model_in_parts_is_kept_in_parts_under_its_name(store: Store, tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    stored = store.add(parts[0], name="split")
    assert [part.file for part in stored.files] == [
        f"split-{number:05d}-of-00003.gguf" for number in (1, 2, 3)
    ]
    assert [part.sha256 for part in stored.files] == [
        hashlib.sha256(part.read_bytes()).hexdigest() for part in parts
    ]
    assert stored.sha256 not in {part.sha256 for part in stored.files}
    assert stored.size == sum(part.stat().st_size for part in parts)


def test_the_licence_is_what_the_operator_says_else_the_files(store: Store, tmp_path: Path) -> None:
    path = write_mite(tmp_path / "a.gguf", general__license__link=(8, "https://example.org/l"))
    stored = store.add(path, name="a")
    assert (stored.licence, stored.licence_link) == ("apache-2.0", "https://example.org/l")
    assert store.add(path, name="b", licence="ours").licence == "ours"
    silent = write_mite(tmp_path / "c.gguf", general__license=None)
    assert store.add(silent).licence == ""


def test_the_text_of_a_licence_beside_the_file_is_kept(store: Store, mite: Path) -> None:
    (mite.parent / "LICENSE.md").write_text("You may.")
    (mite.parent / "LICENSE-huge").write_bytes(b" " * (2 * 1024 * 1024))
    stored = store.add(mite)
    mite.with_name("LICENSE.md").unlink()
    assert (stored.folder / stored.licence_file).read_text() == "You may."
    assert store.get(stored.name).licence_file == stored.licence_file


# -- copies ----------------------------------------------------------------------------------------


def test_a_file_of_ones_own_gets_a_second_name(
    store: Store, mite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mite.chmod(0o644)
    monkeypatch.setattr(copying, "_cloned", lambda *_: False)
    stored = store.add(mite)
    assert stored.path.samefile(mite)


def test_a_file_that_others_may_write_is_copied(store: Store, mite: Path) -> None:
    mite.chmod(0o666)
    told: list[tuple[str, int, int]] = []
    stored = store.add(mite, tell=lambda *what: told.append(what))
    assert not stored.path.samefile(mite)
    assert stored.path.stat().st_mode & 0o777 == 0o644
    size = mite.stat().st_size
    assert told[-1][1:] == (size, size)
    mite.write_bytes(b"")
    assert store.verify(stored.name) == stored


def test_a_copy_that_does_not_fit_says_how_much_is_missing(
    store: Store, mite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mite.chmod(0o666)
    monkeypatch.setattr(copying, "_cloned", lambda *_: False)
    usage = shutil.disk_usage(mite.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(BadModel, match=r"needs 0\.07 GB and 0\.00 GB are free\. Free 0\.07 GB"):
        store.add(mite)
    assert store.list() == ()
    assert hidden(store) == [staging.LOCK]


def test_room_for_all_parts_is_wanted_before_the_first_is_copied(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = write_parts(tmp_path)
    for part in parts:
        part.chmod(0o666)
    told: list[object] = []
    usage = shutil.disk_usage(tmp_path)
    first = copying.SPARE + parts[0].stat().st_size
    monkeypatch.setattr(copying, "_cloned", lambda *_: False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=first))
    with pytest.raises(BadModel, match="a copy needs"):
        store.add(parts[0], tell=lambda *what: told.append(what))
    assert told == []


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    store: Store, mite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    mite.chmod(0o666)
    monkeypatch.setattr(copying, "_cloned", lambda *_: False)
    monkeypatch.setattr(copying, "_write", full)
    with pytest.raises(BadModel, match="a copy needs"):
        store.add(mite)
    assert store.list() == ()
    assert hidden(store) == [staging.LOCK]


@pytest.mark.parametrize("cloned", [True, False])
def test_a_file_that_changes_while_it_is_read_is_refused(
    store: Store, mite: Path, monkeypatch: pytest.MonkeyPatch, cloned: bool
) -> None:
    def change(*_: object) -> None:
        with mite.open("ab") as file:
            file.write(b"more")

    mite.chmod(0o666)
    if not cloned:
        monkeypatch.setattr(copying, "_cloned", lambda *_: False)
    with pytest.raises(BadModel, match=r"while it was read\. Try again"):
        store.add(mite, tell=change)
    assert store.list() == ()


def test_what_the_store_cannot_do_says_who_may(tmp_path: Path) -> None:
    said = str(failed(tmp_path, PermissionError(13, "Permission denied")))
    assert said.endswith("Permission denied. Run this as the user of the box, or as root")
    assert "its disk is there" in str(failed(tmp_path, OSError(5, "Input/output error")))


def test_what_root_adds_belongs_to_the_owner_of_the_state(
    store: Store, mite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: given.append(Path(path)))
    mite.chmod(0o666)
    store.add(mite, name="a")
    names = {path.name for path in given}
    assert {"models", staging.LOCK, "a.gguf"} <= names
    assert any(name.startswith(".manifest.json") for name in names)


# -- the choice ------------------------------------------------------------------------------------


def test_the_choice_is_kept_and_taken_back(store: Store, mite: Path) -> None:
    assert store.selected() is None
    store.add(mite, name="a")
    store.select("a")
    assert Store(store.state_dir).selected() == "a"
    store.select(None)
    assert store.selected() is None
    store.select("a")
    store.select(models.packaged_model().stem)
    assert store.selected() is None


def test_an_unknown_model_cannot_be_chosen(store: Store, mite: Path) -> None:
    store.add(mite, name="house")
    with pytest.raises(BadModel, match=r"no model is named `hause`\. Did you mean `house`\?"):
        store.select("hause")
    with pytest.raises(BadModel, match="`steelyard model list` shows all"):
        store.get("zzzzzz")
    assert store.selected() is None


@pytest.mark.parametrize("body", [b"", b"{", b'{"name": 3}', b"\xff"])
def test_a_damaged_choice_is_said_and_can_be_made_again(
    store: Store, mite: Path, body: bytes
) -> None:
    store.add(mite, name="a")
    (store.folder / "selected.json").write_bytes(body)
    with pytest.raises(BadModel, match="Choose with `steelyard model use NAME`"):
        store.selected()
    store.select("a")
    assert store.selected() == "a"


def test_the_packaged_model_is_known_but_not_listed(store: Store) -> None:
    name = models.packaged_model().stem
    stored = store.get(name)
    assert stored.packaged
    assert stored.path == models.packaged_model()
    assert stored.licence == "apache-2.0"
    assert store.list() == ()
    with pytest.raises(BadModel, match="came with the box and cannot be removed"):
        store.remove(name)


# -- removing and verifying ------------------------------------------------------------------------


def test_a_removed_model_is_gone(store: Store, mite: Path) -> None:
    stored = store.add(mite, name="a")
    store.remove("a")
    assert store.list() == ()
    assert not stored.folder.exists()
    assert hidden(store) == [staging.LOCK]
    with pytest.raises(BadModel, match="no model is named `a`"):
        store.remove("a")


def test_the_model_that_is_chosen_is_not_removed(store: Store, mite: Path) -> None:
    store.add(mite, name="a")
    store.select("a")
    with pytest.raises(BadModel, match="Choose another one first"):
        store.remove("a")
    assert store.verify("a").name == "a"


def test_a_changed_a_shortened_and_a_lost_file_are_told_apart(store: Store, mite: Path) -> None:
    mite.chmod(0o666)
    stored = store.add(mite, name="a")
    body = bytearray(stored.path.read_bytes())
    body[-1] ^= 1
    stored.path.write_bytes(body)
    with pytest.raises(BadModel, match=rf"^{stored.path}: its SHA-256 is .* changed or damaged"):
        store.verify("a")
    stored.path.write_bytes(body[:-1])
    with pytest.raises(BadModel, match=f"but it was {stored.sha256} when it was added"):
        store.verify("a")
    stored.path.unlink()
    with pytest.raises(BadModel, match="it is gone, or its disk is not there"):
        store.verify("a")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b'{"name": "a"}', b"\xff", b" " * 2_000_000,
        *(
            json.dumps(
                {"name": name, "files": [{"file": file, "size": 1, "sha256": ""}],
                 "architecture": "", "parameters": 0, "quantisation": "", "licence": "",
                 "added": "", "source": ""}
            ).encode()
            for name, file in [("b", "a.gguf"), ("a", "../../etc/passwd"), ("a", "")]
        ),
    ],
)  # fmt: skip
def test_a_damaged_manifest_hides_one_model_only(store: Store, mite: Path, body: bytes) -> None:
    stored = store.add(mite, name="a")
    store.add(mite, name="sound")
    (stored.folder / "manifest.json").write_bytes(body)
    assert [model.name for model in store.list()] == ["sound"]
    assert len(store.broken()) == 1
    assert str(stored.folder / "manifest.json") in store.broken()[0]
    with pytest.raises(BadModel, match=r"manifest\.json"):
        store.get("a")
    store.remove("a")
    assert store.broken() == ()


def test_a_store_whose_disk_is_gone_is_not_an_empty_store(store: Store, tmp_path: Path) -> None:
    store.state_dir.mkdir()
    store.folder.symlink_to(tmp_path / "disk")
    with pytest.raises(BadModel, match="Check that its disk is there"):
        store.list()


def test_a_choice_on_a_disk_that_is_gone_is_not_forgotten(store: Store, mite: Path) -> None:
    store.add(mite, name="a")
    store.select("a")
    disk = store.folder.rename(store.state_dir / "disk")
    for _ in range(2):
        with pytest.raises(BadModel, match="the model `a` was chosen, and the choice is gone"):
            store.selected()
        store.folder.mkdir(exist_ok=True)
    store.folder.rmdir()
    disk.rename(store.folder)
    assert store.selected() == "a"
    shutil.rmtree(store.folder)
    store.select(None)
    assert store.selected() is None
