"""Which model the operator chose.

Written among the models, and once more above them: their folder may be a disk of its own, and one
that is not there must not look like a box on which nothing was chosen. Where the two differ,
because the power failed between them, the one among the models counts.
"""

from pathlib import Path

import msgspec

from appliance.durable import sync
from appliance.gguf import BadModel
from appliance.models.staging import failed, write

SELECTED = "selected.json"
WITNESS = ".selected-model.json"
"""Hidden: backups leave it out, and a restore leaves it alone."""
_BYTES = 4096


class _Selected(msgspec.Struct, frozen=True):
    name: str


def read_choice(models: Path) -> str | None:
    """Of the folder of the models; None: nothing was chosen. Raises BadModel."""
    name = _read(models / SELECTED)
    if name is not None:
        return name
    absent = _read(models.parent / WITNESS)
    if absent is not None:
        raise BadModel(
            f"{models}: the model `{absent}` was chosen, and the choice is gone from there. Mount "
            "the disk of the models, or choose again with `steelyard model use NAME`"
        )
    return None


def write_choice(models: Path, name: str) -> None:
    """Durable when this returns. Raises OSError."""
    content = msgspec.json.encode(_Selected(name)) + b"\n"
    write(models / SELECTED, content)
    write(models.parent / WITNESS, content)


def forget_choice(models: Path) -> None:
    """Durable when this returns. Raises OSError."""
    for path in (models.parent / WITNESS, models / SELECTED):
        path.unlink(missing_ok=True)
        sync(path.parent)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_BYTES), type=_Selected).name
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed(path, error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadModel(
            f"{path}: it is damaged ({error}), so which model was chosen is not known. Choose with "
            "`steelyard model use NAME`"
        ) from error
