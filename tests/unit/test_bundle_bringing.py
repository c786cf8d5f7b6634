"""Models and firmware that a bundle brings into the state."""

import sys
from pathlib import Path

import pytest

from appliance.bundle import create
from appliance.bundle.bringing import bring
from appliance.bundle.errors import BundleError
from appliance.cli import steelyard
from appliance.commands.model import model_group
from appliance.models import Store

from .bundle_box import make_bundle, opened
from .model_parts import write_parts

FILES = {"models/tiny/tiny.gguf": b"GGUF", "firmware/board-1.0.0.fw": b"image"}
ROLES = {"models/tiny/tiny.gguf": "model", "firmware/board-1.0.0.fw": "firmware"}


def stand_in(tmp_path: Path, status: int = 0) -> Path:
    """In place of a slot's Python: writes down what it is asked."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$STEELYARD_SERVER_STATE_DIR $*" >> "{tmp_path}/asked"\n'
        f"echo 'it is no model' >&2\nexit {status}\n"
    )
    python.chmod(0o755)
    return python


def test_what_is_not_there_yet_is_brought(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "b", FILES, roles=ROLES)
    said: list[str] = []
    state = tmp_path / "state"
    bring(opened(folder), stand_in(tmp_path), state, said.append)
    assert (state / "firmware/board-1.0.0.fw").read_bytes() == b"image"
    assert state.stat().st_mode & 0o077 == 0
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    words = asked.split()
    assert words[0] == str(state)
    assert words[1:] == [
        *("-P", "-m", "appliance", "model", "add"),
        *(str(folder / "models/tiny/tiny.gguf"), "--name", "tiny"),
    ]
    assert said == ["adds model tiny", "adds board firmware board-1.0.0.fw"]


def test_model_in_parts_is_brought_whole(tmp_path: Path) -> None:
    """With the command itself, and a model that can be loaded."""
    parts = write_parts(tmp_path, count=3)
    files = {path: f"models/mite/{path.name}" for path in create._parts(parts[0])}
    assert list(files) == parts
    data = {name: path.read_bytes() for path, name in files.items()}
    folder = make_bundle(tmp_path / "b", data, roles=dict.fromkeys(data, "model"))
    said: list[str] = []
    bring(opened(folder), Path(sys.executable), tmp_path / "state", said.append)
    assert said == ["adds model mite"]
    stored = Store(tmp_path / "state").get("mite")
    assert [file.file for file in stored.files] == [path.name for path in parts]
    bring(opened(folder), Path(sys.executable), tmp_path / "state", said.append)
    assert len(said) == 1


def test_the_command_it_asks_is_there() -> None:
    assert steelyard.commands["model"] is model_group
    options = {name for option in model_group.commands["add"].params for name in option.opts}
    assert "--name" in options


def test_what_is_there_is_the_operators(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "models/tiny").mkdir(parents=True)
    (state / "models/tiny/manifest.json").write_text("{}")
    (state / "firmware").mkdir()
    (state / "firmware/board-1.0.0.fw").write_bytes(b"mine")
    bundle = opened(make_bundle(tmp_path / "b", FILES, roles=ROLES))
    bring(bundle, stand_in(tmp_path), state, lambda _: None)
    assert not (tmp_path / "asked").exists()
    assert (state / "firmware/board-1.0.0.fw").read_bytes() == b"mine"


def test_a_model_that_cannot_be_added_stops_it(tmp_path: Path) -> None:
    bundle = opened(make_bundle(tmp_path / "b", FILES, roles=ROLES))
    with pytest.raises(BundleError, match="model tiny cannot be added: it is no model"):
        bring(bundle, stand_in(tmp_path, 1), tmp_path / "state", lambda _: None)
    odd = make_bundle(tmp_path / "c", {"a.gguf": b"x"}, roles={"a.gguf": "model"})
    with pytest.raises(BundleError, match="is no model of a bundle"):
        bring(opened(odd), Path(sys.executable), tmp_path / "state", lambda _: None)
