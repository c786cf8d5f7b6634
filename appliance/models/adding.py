"""Takes a model or a LoRA adapter into the store: checked, copied, checked again, published."""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from appliance import gguf
from appliance.durable import sync
from appliance.gguf import Adapter, BadModel, Header
from appliance.models.copying import Tell, take
from appliance.models.fingerprints import remember
from appliance.models.packaged import packaged_name
from appliance.models.staging import locked, publish, staged, write
from appliance.models.stored import (
    ADAPTERS,
    MANIFEST,
    NAME,
    Manifest,
    Stored,
    StoredFile,
    StoredLora,
    encode_manifest,
    placed,
)

LICENCE_FILES = re.compile(r"(LICEN[SC]E|COPYING|NOTICE)([._-].*)?", re.IGNORECASE)
LICENCE_BYTES = 1024 * 1024
MODELS = 256
LICENCE = "LICENSE.txt"
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]+")


class Shelf(Protocol):
    """What adding needs of the store."""

    state_dir: Path
    folder: Path

    def list(self) -> tuple[Stored, ...]: ...

    def get(self, name: str) -> Stored: ...


class Adding:
    """One addition to a store."""

    def __init__(self, shelf: Shelf, tell: Tell | None) -> None:
        self._shelf = shelf
        self._tell = tell

    def add(self, path: Path, name: str, licence: str, to: str) -> Stored:
        """Raises BadModel; OSError where the store cannot be written."""
        path = path.absolute()
        if gguf.is_adapter(path):
            return self._add_adapter(path, name, to)
        if to:
            raise BadModel(f"{path}: it is a model and not a LoRA adapter, which alone goes to one")
        return self._add_model(path, gguf.read(path), checked_name(name, path), licence)

    def _add_model(self, path: Path, header: Header, name: str, licence: str) -> Stored:
        target = self._shelf.folder / name
        self._refuse_taken(name)
        if len(self._shelf.list()) >= MODELS:
            raise BadModel(f"the box holds {MODELS} models, and not more are kept: remove one")
        with staged(self._shelf.folder) as hidden:
            files = self._take(path, hidden, name, header.parts)
            # What was checked may not be what was copied.
            header = gguf.read(hidden / files[0].file)
            text = _licence_text(path)
            if text:
                write(hidden / LICENCE, text)
            manifest = Manifest(
                name=name,
                files=files,
                architecture=header.architecture,
                parameters=header.n_params,
                quantisation=header.file_type,
                licence=licence or header.licence,
                licence_link=header.licence_link,
                licence_file=LICENCE if text else "",
                added=_now(),
                source=str(path),
            )
            stored = placed(manifest, target)
            write(hidden / MANIFEST, encode_manifest(stored))
            with locked(self._shelf.folder):
                self._refuse_taken(name)
                publish(hidden, target)
        self._remember(target, [(file.file, file.sha256) for file in files])
        return stored

    def _take(self, first: Path, hidden: Path, name: str, count: int) -> tuple[StoredFile, ...]:
        parts = gguf.paths_of(first, count)
        left = sum(part.stat().st_size for part in parts)
        files = list[StoredFile]()
        for number, part in enumerate(parts, 1):
            left -= part.stat().st_size
            target = hidden / gguf.part_name(name, number, count)
            files.append(take(part, target, self._tell, left))
        return tuple(files)

    def _refuse_taken(self, name: str) -> None:
        if os.path.lexists(self._shelf.folder / name) or name == packaged_name():
            raise BadModel(
                f"the box has a model named `{name}` already: give this one another name (--name), "
                f"or remove that one (`steelyard model remove {name}`)"
            )

    def _add_adapter(self, path: Path, name: str, to: str) -> Stored:
        adapter = gguf.read_adapter(path)
        name = checked_name(name, path)
        model = self._fitting(path, adapter, to)
        with staged(self._shelf.folder) as hidden:
            taken = take(path, hidden / f"lora-{name}.gguf", self._tell)
            gguf.read_adapter(hidden / taken.file)
            lora = StoredLora(
                taken.file, taken.size, taken.sha256, name=name, added=_now(), source=str(path)
            )
            with locked(self._shelf.folder):
                model = self._shelf.get(model.name)
                _refuse_adapter(model, name)
                model = msgspec.structs.replace(model, lora=(*model.lora, lora))
                (hidden / taken.file).replace(model.folder / taken.file)
                sync(model.folder)
                write(model.folder / MANIFEST, encode_manifest(model))
        self._remember(model.folder, [(lora.file, lora.sha256)])
        return model

    def _fitting(self, path: Path, adapter: Adapter, to: str) -> Stored:
        if to:
            model = self._shelf.get(to)
            if model.packaged:
                raise BadModel(
                    f"{path}: `{to}` came with the box and takes no files. List the adapter under "
                    "model.lora in the configuration, or add the model under another name first"
                )
            if reason := gguf.misfit(adapter, model.path):
                raise BadModel(f"{path}: it does not fit `{to}`: {reason}")
            return model
        fits = [model for model in self._shelf.list() if _fits(adapter, model)]
        if len(fits) == 1:
            return fits[0]
        if not fits:
            raise BadModel(
                f"{path}: it is a LoRA adapter for {adapter.architecture} models, and fits none "
                "of the store. Add its model first, or list it under model.lora in the "
                "configuration"
            )
        names = ", ".join(f"`{model.name}`" for model in fits)
        raise BadModel(f"{path}: it is a LoRA adapter and fits {names}. Say which: --to NAME")

    def _remember(self, folder: Path, files: Sequence[tuple[str, str]]) -> None:
        """So that the next start need not read it all again."""
        for file, sha256 in files:
            remember(folder / file, sha256, self._shelf.state_dir)


def checked_name(name: str, path: Path) -> str:
    """The name that was asked for, or the file's made fit to be one. Raises BadModel."""
    if not name:
        name = _UNFIT.sub("-", gguf.stem_of(path)).lstrip("._+-")[:100]
    if not NAME.fullmatch(name) or name.lower().endswith(".gguf"):
        raise BadModel(
            f"`{name}` cannot be a model's name: take 1 to 127 letters, digits and ._+- that begin "
            "with a letter or a digit and do not end with .gguf"
        )
    return name


def _fits(adapter: Adapter, model: Stored) -> bool:
    try:
        return not gguf.misfit(adapter, model.path)
    except BadModel:
        return False


def _refuse_adapter(model: Stored, name: str) -> None:
    if any(lora.name == name for lora in model.lora):
        raise BadModel(f"`{model.name}` has a LoRA adapter named `{name}` already: --name")
    if len(model.lora) >= ADAPTERS:
        raise BadModel(f"`{model.name}` has {ADAPTERS} LoRA adapters, and not more are kept")


def _licence_text(path: Path) -> bytes:
    """Of the file beside the model; empty: there is none."""
    try:
        found = sorted(
            entry
            for entry in path.parent.iterdir()
            if LICENCE_FILES.fullmatch(entry.name)
            and entry.is_file()
            and entry.stat().st_size <= LICENCE_BYTES
        )
        return found[0].read_bytes() if found else b""
    except OSError:
        return b""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
