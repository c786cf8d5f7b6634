"""Child processes that take long, and how far they are. Standard library only."""

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence

from appliance.bundle.errors import BundleError

_LOOK_S = 0.5
_TAIL = 8
"""Lines of what it said that make up the message."""


def run_watched(
    command: Sequence[str],
    fault: str,
    *,
    look: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Runs it to its end, and looks now and then how far it is. Raises BundleError, which begins
    with `fault`, when it fails."""
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env
        ) as child:
            try:
                while not _ended(child):
                    look()
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()[-_TAIL:]
            told = "\n".join(lines) or f"exit status {child.returncode}"
            raise BundleError(f"{fault}: {told}")


def _ended(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return False
    return True
