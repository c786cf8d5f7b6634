"""How far an update has come, on the disk: what the next run or the next boot goes by. Standard
library only.

    building   the other slot is being filled; the one in use was not touched
    switching  the link may or may not have been moved
    trial      the new slot is in use and has not proven itself
    returning  it failed: the old slot is being put back
    done, returned, stopped   ends, of which `stopped` is one before the switch
"""

import json
import os
import signal
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from appliance.bundle import durable
from appliance.bundle.errors import BundleError

PHASES = ("building", "switching", "trial", "returning", "done", "returned", "stopped")
OPEN = ("building", "switching", "trial", "returning")
KILL = "STEELYARD_UPDATE_KILL"
"""For tests: the step at whose end the process is to die as in a power cut."""


@dataclass(frozen=True, slots=True)
class Record:
    """Of the newest update."""

    phase: str
    old: str
    new: str
    old_version: str
    new_version: str
    bundle: str
    """SHA-256 of its manifest."""
    backup: str = ""
    """The backup that was made before the switch; empty before that."""
    restore: str = ""
    """The backup that goes with the new slot, where that is the older version."""
    attempts: int = 0
    """Starts of the new slot that were begun."""
    why: str = ""
    """Of a return or a stop."""


def read(path: Path) -> Record | None:
    """None where there has been no update. Raises BundleError for a damaged file: it is written
    whole, so something else has written it."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        found = None
    known = {field.name: field.type for field in fields(Record)}
    if (
        not isinstance(found, dict)
        or set(found) != set(known)
        or any(type(value) is not known[name] for name, value in found.items())
        or found["phase"] not in PHASES
        or {found["old"], found["new"]} != {"a", "b"}
    ):
        raise BundleError(
            f"{path} is damaged. Look at which slot `current` beside it names; if the box works, "
            "remove the file"
        )
    return Record(**found)


def write(path: Path, record: Record) -> None:
    durable.replace_text(path, json.dumps(asdict(record), indent=1) + "\n")


def reached(step: str) -> None:
    """Named after each step that changes something on the disk."""
    if os.environ.get(KILL) == step:
        os.kill(os.getpid(), signal.SIGKILL)
