"""The `steelyard` command, as an operator types it beside a box."""

import os
import subprocess
import sys
from pathlib import Path


def steelyard(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run to its end, on the box whose state lies in `home`."""
    return subprocess.run(
        [sys.executable, "-m", "appliance", *arguments],
        env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(home / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
