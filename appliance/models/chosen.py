"""Which model the box runs: found, checked and named by its SHA-256 before anything opens it.

`model.path` in the configuration comes first, then the operator's choice (`steelyard model use`),
then the model that came with the box.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance import gguf
from appliance.config import Config, ModelConfig
from appliance.gguf import BadModel, Header
from appliance.models.fingerprints import fingerprint
from appliance.models.packaged import packaged_model
from appliance.models.store import Store, changed
from appliance.models.stored import Stored, StoredFile, joint_sha256


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file that was checked."""

    path: Path
    """The first part, where there are several."""
    header: Header
    sha256: str
    """Of the file; of a model in parts, see `joint_sha256`."""
    name: str
    """What clients see: `model.name`, or the name in the store, or the file's without its end."""
    packaged: bool = False
    """The model that came with the box, not one of the operator's."""
    chat_template: str | None = None
    """The operator's, used instead of the one in the file."""
    stored: Stored | None = None
    """What the store knows of it; None: it is not in the store."""


def locate(model: ModelConfig, state_dir: Path | None = None) -> Path:
    """The file to serve. Raises BadModel, saying what to correct, when there is none."""
    if model.path:
        path = Path(model.path)
        if not path.is_file():
            raise BadModel(f"{path}: no such file. Correct model.path in the configuration")
        return path
    chosen = selected(model, state_dir)
    return packaged_model() if chosen is None else chosen.path


def selected(model: ModelConfig, state_dir: Path | None) -> Stored | None:
    """The operator's choice, where the configuration leaves it to them; None: there is none.
    Raises BadModel when the model that was chosen is not there.
    """
    if model.path or state_dir is None:
        return None
    store = Store(state_dir)
    name = store.selected()
    if name is None:
        return None
    try:
        return store.get(name)
    except BadModel as error:
        raise BadModel(f"the model that was chosen with `steelyard model use`: {error}") from None


def check(config: Config) -> ModelFile:
    """Find the model and check its structure, then its SHA-256. Raises BadModel."""
    return check_stored(config, selected(config.model, config.server.state_dir))


def check_stored(config: Config, stored: Stored | None) -> ModelFile:
    """The same of a model of the store, whatever was chosen. None, or one that came with the box:
    the one that is served without a choice."""
    if stored is not None and stored.packaged:
        stored = None
    path = locate(config.model) if stored is None else _present(stored)
    header = gguf.read(path)
    for lora in config.model.lora:
        if not Path(lora.path).is_file():
            raise BadModel(f"{lora.path}: no such file. Correct model.lora in the configuration")
    sha256 = _checked_sha256(gguf.paths_of(path, header.parts), config, stored)
    for beside in stored.lora if stored is not None else ():
        _check_file(path.parent / beside.file, beside, config)
    wanted = config.model.sha256.lower()
    if wanted and sha256 != wanted:
        raise BadModel(
            f"{path}: its SHA-256 is {sha256}, but model.sha256 says {wanted}. Restore the file, "
            "or correct the setting if the change is wanted"
        )
    name = config.model.name or (stored.name if stored is not None else gguf.stem_of(path))
    packaged = stored is None and not config.model.path
    return ModelFile(path, header, sha256, name, packaged, chat_template(config.model), stored)


def _present(stored: Stored) -> Path:
    if not stored.path.exists():
        raise BadModel(
            f"{stored.path}: the file of the model `{stored.name}` is gone, or its disk is not "
            "there. Mount the disk, or serve another model (`steelyard model use NAME`)"
        )
    return stored.path


def _checked_sha256(parts: Sequence[Path], config: Config, stored: Stored | None) -> str:
    """Raises BadModel if a file of the store is not what was added."""
    if stored is None:
        return joint_sha256([fingerprint(part, config.server.state_dir) for part in parts])
    for part, listed in zip(parts, stored.files, strict=False):
        _check_file(part, listed, config)
    return stored.sha256


def _check_file(path: Path, listed: StoredFile, config: Config) -> None:
    found = fingerprint(path, config.server.state_dir)
    if found != listed.sha256:
        raise BadModel(changed(path, found, listed.sha256))


def chat_template(model: ModelConfig) -> str | None:
    """The operator's; None: there is none. Raises BadModel where it cannot be read."""
    if not model.chat_template:
        return None
    try:
        return Path(model.chat_template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadModel(
            f"{model.chat_template}: the chat template cannot be read ({error}). Correct "
            "model.chat_template in the configuration"
        ) from error
