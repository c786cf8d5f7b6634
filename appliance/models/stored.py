"""What the store knows of a model: its manifest, a small JSON file beside the model's own."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from appliance.gguf import BadModel

MANIFEST = "manifest.json"
MANIFEST_BYTES = 1024 * 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,126}")
PARTS = 1024
ADAPTERS = 64


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a model, as it was when it was added."""

    file: str
    """Its name in the model's folder."""
    size: int
    """Bytes."""
    sha256: str


class StoredLora(StoredFile, frozen=True, kw_only=True):
    """A LoRA adapter that was added beside its model."""

    name: str
    added: str = ""
    source: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    name: str
    files: tuple[StoredFile, ...]
    """The parts of the model in order; llama.cpp opens the first."""
    architecture: str
    parameters: int
    quantisation: str
    licence: str
    """What the file or the operator calls it; empty: nobody says."""
    added: str
    """UTC, ISO 8601."""
    source: str
    """Where the file was when it was added."""
    lora: tuple[StoredLora, ...] = ()
    licence_link: str = ""
    licence_file: str = ""
    """In the model's folder; empty: no text came with it."""


class Stored(Manifest, frozen=True, kw_only=True):
    """A model that the box holds."""

    folder: Path
    """Where it lies."""
    packaged: bool = False
    """It came with the box: not in the store, and cannot be removed."""

    @property
    def path(self) -> Path:
        """The file to open."""
        return self.folder / self.files[0].file

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.files)

    @property
    def sha256(self) -> str:
        """What names the model everywhere."""
        return joint_sha256([part.sha256 for part in self.files])

    @property
    def adapters(self) -> tuple[tuple[str, Path], ...]:
        """Name and file of each LoRA adapter beside it."""
        return tuple((lora.name, self.folder / lora.file) for lora in self.lora)


def joint_sha256(parts: Sequence[str]) -> str:
    """What names a model whose parts have these: of one part its own; of several, that of their
    digests one after the other.
    """
    if len(parts) == 1:
        return parts[0]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def read_manifest(folder: Path) -> Stored:
    """Of a model's folder. Raises BadModel."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            raw = file.read(MANIFEST_BYTES + 1)
        if len(raw) > MANIFEST_BYTES:
            raise BadModel(f"{path}: it is larger than {MANIFEST_BYTES >> 10} KiB")
        found = msgspec.json.decode(raw, type=Manifest)
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadModel(
            f"{path}: it is damaged ({error}). Remove the model, add it again"
        ) from error
    _check(found, folder, path)
    return placed(found, folder)


def placed(manifest: Manifest, folder: Path, *, packaged: bool = False) -> Stored:
    """The model as it lies there."""
    return Stored(**msgspec.structs.asdict(manifest), folder=folder, packaged=packaged)


def encode_manifest(stored: Stored) -> bytes:
    """What `read_manifest` reads."""
    fields = {name: getattr(stored, name) for name in Manifest.__struct_fields__}
    return msgspec.json.format(msgspec.json.encode(Manifest(**fields)), indent=1) + b"\n"


def _check(found: Manifest, folder: Path, path: Path) -> None:
    names = [file.file for file in found.files] + [lora.file for lora in found.lora]
    names += [found.licence_file] if found.licence_file else []
    sound = (
        found.name == folder.name
        and 0 < len(found.files) <= PARTS
        and len(found.lora) <= ADAPTERS
        and all(NAME.fullmatch(name) for name in names)
        and len(set(names)) == len(names)
    )
    if not sound:
        raise BadModel(f"{path}: it is damaged. Remove the model, add it again")
