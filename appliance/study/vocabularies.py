"""Vocabularies of model files, without their weights."""

from pathlib import Path

from appliance.engine.vocab import Vocab, VocabError
from appliance.gguf import BadModel
from appliance.gguf.contents import read_contents
from appliance.gguf.reader import Reader
from appliance.study.errors import StudyError


def opened(path: Path) -> Vocab:
    """The file's vocabulary, to be closed; a file that holds nothing else will do. What lies in it
    is checked before llama.cpp reads it. Raises StudyError."""
    if not path.is_file():
        raise StudyError(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            read_contents(Reader(file, size), size)
        return Vocab.open(path)
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror or error}") from None
    except BadModel as error:
        raise StudyError(f"{path}: {error}") from None
    except VocabError as error:
        raise StudyError(f"{error}. Give another model file") from None
