"""Answers of a study as JSONL, so that one that was interrupted goes on where it stopped.

The first line says what is studied; answers of another study are never mixed in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from appliance.study.errors import StudyError

NAME = "answers.jsonl"


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one job."""

    key: str
    tokens: int = 0
    """Generated, the end-of-generation token included."""
    finish_reason: str = ""
    """stop: the model ended it. Everything else censors the length."""
    prompt_tokens: int = 0
    text: str = ""
    token_ids: tuple[int, ...] = ()
    problem: str = ""
    """Why there is no answer; empty where there is one."""

    @property
    def censored(self) -> bool:
        """The model would have gone on."""
        return self.finish_reason != "stop"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is studied. Two studies with equal heads ask the same."""

    experiment: str
    model: str
    sha256: str
    settings: dict[str, Any]


class Store:
    """One study's file, open for more. Answers lie in `done`, by key."""

    def __init__(self, path: Path, head: Head) -> None:
        """Reads what is there, or begins. Raises StudyError for another study's file, or one that
        cannot be used."""
        self.path = path
        self.done: dict[str, Answer] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = self._read(head) if path.exists() else 0
            self._file = path.open("r+b" if kept else "wb")
            self._file.truncate(kept)
            self._file.seek(kept)
            if not kept:
                self._write(head)
        except OSError as error:
            raise StudyError(_unusable(path, error)) from None

    def add(self, answer: Answer) -> None:
        """Keeps it: after a crash of this process, too."""
        try:
            self._write(answer)
        except OSError as error:
            raise StudyError(_unusable(self.path, error)) from None
        self.done[answer.key] = answer

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: Answer | Head) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def _read(self, head: Head) -> int:
        """Fills `done`; returns the bytes worth keeping: a torn last line is not."""
        lines = _whole_lines(self.path.read_bytes())
        first = next(lines, None)
        if first is None:
            return 0
        if _decoded(first, Head, self.path) != _as_read(head):
            raise StudyError(
                f"{self.path} holds answers to another study (other model, prompts or settings): "
                "give another --output, or --fresh to begin again"
            )
        kept = len(first)
        for line in lines:
            answer = _decoded(line, Answer, self.path)
            self.done[answer.key] = answer
            kept += len(line)
        return kept


def _whole_lines(data: bytes) -> Iterator[bytes]:
    return (line for line in data.splitlines(keepends=True) if line.endswith(b"\n"))


def _as_read(head: Head) -> Head:
    """As it comes back from a file: tuples become lists."""
    return msgspec.json.decode(msgspec.json.encode(head), type=Head)


def _decoded(line: bytes, kind: Any, path: Path) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StudyError(
            f"{path} is not a study's file ({error}): give another --output, or --fresh to begin "
            "again"
        ) from None


def _unusable(path: Path, error: OSError) -> str:
    return f"{path} cannot be used: {error.strerror or error}. Give another --output"
