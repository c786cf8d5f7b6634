"""Programs under MicroPython, as the board runs them."""

import subprocess
from pathlib import Path

from firmware_bridge.simulation import interpreter

ROOT = Path(__file__).resolve().parents[2]


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run to its end; our packages can be imported."""
    return subprocess.run(
        [*interpreter(), "-c", program],
        env={"MICROPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
