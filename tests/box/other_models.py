"""Models made from the default one, byte by byte: another one, and one that no engine loads."""

import os
import subprocess
import sys
from pathlib import Path

from appliance.models import Store, packaged_model

NAMED = b"Smollm2 135M 8k Lc100K Mix1 Ep2"
TENSOR = b"blk.0.attn_q.weight"
NO_TENSOR = b"blk.0.attn_x.weight"


def add_other(state_dir: Path, name: str) -> str:
    """A model that works and is not the default one: its template adds a system prompt, since it
    did not come with the box. Its SHA-256."""
    return _add(state_dir, name, NAMED, NAMED[::-1])


def add_broken(state_dir: Path, name: str) -> str:
    """A well-formed file that lacks a tensor."""
    return _add(state_dir, name, TENSOR, NO_TENSOR)


def break_in_place(state_dir: Path, name: str) -> None:
    """The model's file loses a tensor, as on a disk that fails."""
    stored = Store(state_dir).get(name)
    at = stored.path.read_bytes().index(TENSOR)
    with open(stored.path, "r+b") as file:
        file.seek(at)
        file.write(NO_TENSOR)


def model_use(state_dir: Path, name: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`steelyard model use` on the box's own command line; `more` goes to its environment."""
    settings = {"SERVER_STATE_DIR": str(state_dir), "SERVER_PORT": "0", "ENGINE_THREADS": "1"}
    named = {f"STEELYARD_{key}": value for key, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "appliance", "model", "use", name],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **named, **more},
    )


def _add(state_dir: Path, name: str, old: bytes, new: bytes) -> str:
    data = packaged_model().read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    made = state_dir.parent / f"{name}.gguf"
    made.write_bytes(data.replace(old, new))
    stored = Store(state_dir).add(made, name=name)
    made.unlink()
    return stored.sha256
