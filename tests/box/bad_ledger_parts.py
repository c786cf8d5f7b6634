"""Boxes that cannot start, and commands beside them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.box.asking import Asked, ask
from tests.box.running import RunningBox

ENGINE = {"max_sequences": 3, "restart_window_s": 1, "context": 8192}
LONG = 7000
"""Tokens that no request reaches before its test ends it."""


def named(box: RunningBox, name: str, **fields: Any) -> Asked:
    return ask(box, f"A story of {name}:", headers={"X-Request-Id": name}, **fields)


def serve(home: Path, state: Path, file_bytes: int | None = None) -> tuple[str, int]:
    """What `steelyard serve` says that cannot start, and its exit status. `file_bytes`: how large
    the kernel lets its files become."""
    command = [sys.executable, "-m", "appliance", "serve"]
    if file_bytes is not None:
        command = ["prlimit", f"--fsize={file_bytes}", *command]
    home.mkdir(exist_ok=True)
    config = home / "cannot.toml"
    config.write_text("[server]\nport = 0\n[engine]\ncontext = 512\nthreads = 1\n")
    ended = subprocess.run(
        [*command, "--config", str(config)],
        env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.stdout + ended.stderr, ended.returncode
