"""What of a state directory goes into a backup: all of it, but for what only a running box needs.

A file that a later version adds is in the backup by itself; what has to stay out is named here.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from appliance.config import Config
from appliance.ledger.copying import REPLACED

LEDGER_FILE = "ledger.sqlite"
MODELS = "models"
RESTORED = "restored"
"""Holds what a restore found in the backup and could not put in its place."""
STAYS = frozenset({"daemon.lock", "fingerprints.json", REPLACED, RESTORED})
"""At the top of the state directory: never in a backup, and left in place by a restore."""
_OF_THE_RUN = frozenset({*STAYS, "journal"})
_LOCKS = frozenset({"lock"})
WEIGHTS = frozenset({".gguf"})


def state_files(state_dir: Path, *, with_models: bool) -> Iterator[tuple[str, Path]]:
    """Name below the state directory, and path, of all files but the ledger's. Raises OSError."""
    for path in _below(state_dir):
        name = path.relative_to(state_dir).as_posix()
        top = name.partition("/")[0]
        if top in _OF_THE_RUN or top.startswith(LEDGER_FILE):
            continue
        if top == MODELS and path.suffix in WEIGHTS and not with_models:
            continue
        yield name, path


def _below(folder: Path, *, top: bool = True) -> Iterator[Path]:
    """Regular files in a fixed order; nothing hidden, no drafts, no links: but the models may be
    on a disk of their own that a link leads to."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.name in _LOCKS:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), top=False)
        elif top and entry.name == MODELS and entry.is_dir():
            yield from _linked_models(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _linked_models(folder: Path) -> Iterator[Path]:
    """Through the link only what the store keeps: wherever else it leads is nobody's business."""
    chosen = folder / "selected.json"
    kept = [path.parent for path in folder.glob("*/manifest.json") if not path.parent.is_symlink()]
    for path in (chosen, *(found for model in sorted(kept) for found in _below(model, top=False))):
        if path.is_file() and not path.is_symlink():
            yield path


def left_out(state_dir: Path) -> Iterator[str]:
    """Names of links, which are not in a backup, nor is what they lead to. Raises OSError."""
    for folder, names, files in os.walk(state_dir):
        names[:] = [name for name in names if not name.startswith(".")]
        for name in sorted((*names, *files)):
            path = Path(folder, name)
            found = path.relative_to(state_dir)
            top = found.parts[0]
            if top in _OF_THE_RUN or top.startswith(LEDGER_FILE) or name.startswith("."):
                continue
            if path.is_symlink() and found.parts != (MODELS,):
                yield str(found)


def model_names(state_dir: Path) -> tuple[str, ...]:
    """Of the models in the box's store."""
    return tuple(sorted(path.parent.name for path in (state_dir / MODELS).glob("*/manifest.json")))


def referenced_files(config: Config, state_dir: Path) -> Iterator[Path]:
    """What the configuration names and a box on new hardware would miss, models left out."""
    names = [config.tls.cert, config.tls.key, config.tls.client_ca, config.model.chat_template]
    for name in dict.fromkeys(filter(None, names)):
        path = Path(name)
        if not path.absolute().is_relative_to(state_dir.absolute()):
            yield path
