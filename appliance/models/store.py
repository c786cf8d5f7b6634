"""The models that the box holds: one folder each below `models/` of the state directory.

A folder appears under its name only when all of it is written and synced, and loses the name before
anything of it is deleted. So a power cut leaves no half model, only a folder whose name begins with
a dot; nobody has such a folder locked, and the next change of the store deletes it.
"""

from pathlib import Path

import msgspec

from appliance.alike import alike
from appliance.gguf import BadModel
from appliance.models.adding import Adding
from appliance.models.choice import forget_choice, read_choice, write_choice
from appliance.models.copying import Tell, read_sha256
from appliance.models.packaged import packaged_name, packaged_stored
from appliance.models.staging import clean, discard, failed, locked, write
from appliance.models.stored import (
    MANIFEST,
    NAME,
    Stored,
    StoredFile,
    encode_manifest,
    read_manifest,
)

FOLDER = "models"


class Store:
    """The models below one state directory. Every method raises BadModel, which says what to do."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.folder = state_dir / FOLDER

    # -- reading ---------------------------------------------------------------------------------

    def list(self) -> tuple[Stored, ...]:
        """All models by name, without the packaged one and without what `broken` tells."""
        return tuple(found for found in self._read() if isinstance(found, Stored))

    def broken(self) -> tuple[str, ...]:
        """Why folders that should be models are none."""
        return tuple(str(found) for found in self._read() if isinstance(found, BadModel))

    def get(self, name: str) -> Stored:
        """The model of that name, the packaged one too. Unknown: names the nearest. Whether its
        files are there is not looked at.
        """
        if name == packaged_name():
            return packaged_stored(self.state_dir)
        if name in self._names():
            return read_manifest(self.folder / name)
        raise BadModel(self._unknown(name))

    def selected(self) -> str | None:
        """The operator's choice; None: the packaged model."""
        return read_choice(self.folder)

    def verify(self, name: str, *, tell: Tell | None = None) -> Stored:
        """Read all of it again and compare each SHA-256 with what it was when it was added."""
        stored = self.get(name)
        files: tuple[StoredFile, ...] = (*stored.files, *stored.lora)
        for listed in files:
            path = stored.folder / listed.file
            found = read_sha256(path, tell)
            if found != listed.sha256:
                raise BadModel(changed(path, found, listed.sha256))
        return stored

    # -- changing --------------------------------------------------------------------------------

    def add(
        self,
        path: Path,
        *,
        name: str = "",
        licence: str = "",
        to: str = "",
        tell: Tell | None = None,
    ) -> Stored:
        """Take a GGUF file, the first of several, or a LoRA adapter into the store. Without a name
        it gets the file's. An adapter goes beside the model `to`, or beside the only one that it
        fits; then that model is what is returned.
        """
        try:
            return Adding(self, tell).add(path, name, licence, to)
        except OSError as error:
            raise failed(self.folder, error) from error

    def remove(self, name: str) -> None:
        """Delete it. Refuses the packaged one and the one that is selected."""
        if name == packaged_name():
            raise BadModel(f"`{name}` came with the box and cannot be removed")
        try:
            with locked(self.folder):
                clean(self.folder)
                if name not in self._names():
                    raise BadModel(self._unknown(name))
                if self.selected() == name:
                    raise BadModel(
                        f"`{name}` is the model that is served. Choose another one first "
                        "(`steelyard model use NAME`)"
                    )
                discard(self.folder / name)
        except OSError as error:
            raise failed(self.folder, error) from error

    def remove_adapter(self, name: str, adapter: str) -> None:
        """Delete a LoRA adapter of a model. A box that runs keeps what it has loaded."""
        try:
            with locked(self.folder):
                model = self.get(name)
                gone = next((lora for lora in model.lora if lora.name == adapter), None)
                if gone is None:
                    names = ", ".join(f"`{lora.name}`" for lora in model.lora) or "none"
                    raise BadModel(f"`{name}` has no LoRA adapter `{adapter}`, it has {names}")
                kept = tuple(lora for lora in model.lora if lora is not gone)
                model = msgspec.structs.replace(model, lora=kept)
                write(model.folder / MANIFEST, encode_manifest(model))
                (model.folder / gone.file).unlink(missing_ok=True)
        except OSError as error:
            raise failed(self.folder, error) from error

    def select(self, name: str | None) -> None:
        """Choose what is served from the next start on, durable when this returns. None, or the
        name of the packaged model: that one.
        """
        try:
            with locked(self.folder):
                if name is None or name == packaged_name():
                    forget_choice(self.folder)
                else:
                    self.get(name)
                    write_choice(self.folder, name)
        except OSError as error:
            raise failed(self.folder, error) from error

    # -- inside ----------------------------------------------------------------------------------

    def _read(self) -> "tuple[Stored | BadModel, ...]":
        return tuple(self._manifest(name) for name in self._names())

    def _manifest(self, name: str) -> Stored | BadModel:
        try:
            return read_manifest(self.folder / name)
        except BadModel as error:
            return error

    def _names(self) -> "tuple[str, ...]":
        try:
            entries = (entry for entry in self.folder.iterdir() if NAME.fullmatch(entry.name))
            return tuple(sorted(entry.name for entry in entries if entry.is_dir()))
        except FileNotFoundError as error:
            if self.folder.is_symlink():
                raise failed(self.folder, error) from error
            return ()
        except OSError as error:
            raise failed(self.folder, error) from error

    def _unknown(self, name: str) -> str:
        came = packaged_name()
        names = [*self._names(), *([came] if came is not None else [])]
        near = alike(name, names, 0.5)
        hint = f"Did you mean `{near}`?" if near else "`steelyard model list` shows all"
        return f"no model is named `{name}`. {hint}"


def changed(path: Path, found: str, listed: str) -> str:
    """What to say of a file of the store whose SHA-256 is another now."""
    return (
        f"{path}: its SHA-256 is {found}, but it was {listed} when it was added: it was changed or "
        "damaged. Remove the model and add it again"
    )
