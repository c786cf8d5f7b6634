"""The peer: `xllamacpp`, llama-server's own code, in an environment of its own.

It is kept apart because it brings another build of the library that our engine brings.
"""

import os
import subprocess
import sys
from pathlib import Path

from bench.options import Value

PACKAGE = "xllamacpp"


class PeerError(Exception):
    """The peer's environment could not be made."""


def environment() -> Path:
    """Where it lives: $STEELYARD_CACHE/peer."""
    return Path(os.environ.get("STEELYARD_CACHE", "~/.cache/steelyard")).expanduser() / "peer"


def interpreter(place: Path) -> Path:
    """The Python that has the peer; makes the environment on first use."""
    python = place / "bin" / "python"
    if python.exists() and _imports(python):
        return python
    print(f"making the peer's environment in {place} ...", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    commands = (
        [sys.executable, "-m", "venv", str(place)],
        [str(python), "-m", "pip", "install", "-q", "--only-binary", ":all:", PACKAGE],
    )
    for command in commands:
        if subprocess.run(command, check=False).returncode:
            raise PeerError(
                f"cannot make the peer's environment: `{' '.join(command)}` failed. It needs pip "
                "and a package index once; or name a server that runs with --peer-url"
            )
    return python


def _imports(python: Path) -> bool:
    command = [str(python), "-c", f"import {PACKAGE}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def settings(model: Path, context: int, sequences: int, threads: int) -> dict[str, Value]:
    """What both sides share. All else stays llama-server's default: flash attention by itself,
    continuous batching, prompt cache on. Each slot gets context / sequences cells of its own.
    """
    return {
        "model.path": str(model),
        "n_ctx": context,
        "n_parallel": sequences,
        "cpuparams.n_threads": threads,
        "cpuparams_batch.n_threads": threads,
        "endpoint_metrics": True,
    }
