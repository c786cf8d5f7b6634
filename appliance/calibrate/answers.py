"""Answers that were generated, kept line by line so that nothing is generated twice.

A line counts once its line break is on disk. What a crash left of the last line is cut off before
anything is appended.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from appliance.forecast.dataset import Answered, BadDataset, Prompt, read

FILE = "answers.jsonl"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn. Answers drawn otherwise are no answers to this."""

    samples: int
    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One answer that is missing."""

    prompt: Prompt
    sample: int


class NoRoom(Exception):
    """An answer could not be written down. Says why, and what to do."""


def missing(
    prompts: Iterable[Prompt], known: Iterable[Answered], sampling: Sampling
) -> list[Wanted]:
    """The answers that are still to be generated: every prompt's first sample before any second,
    so that stopping early leaves the most prompts."""
    have = {(one.id, one.sample) for one in known if _alike(one, sampling)}
    ordered = list(prompts)
    return [
        Wanted(prompt, sample)
        for sample in range(sampling.samples)
        for prompt in ordered
        if (prompt.id, sample) not in have
    ]


def _alike(one: Answered, sampling: Sampling) -> bool:
    """Whether it was drawn so. A smaller limit only censors earlier, and the fit knows that."""
    return (one.temperature, one.top_p) == (sampling.temperature, sampling.top_p)


def gathered(files: Iterable[Path], prompts: Iterable[Prompt]) -> list[Answered]:
    """The answers of all files to these prompts; where two are the same sample, the first. Raises
    BadDataset."""
    names = {prompt.id for prompt in prompts}
    found: dict[tuple[str, int, float, float], Answered] = {}
    for path in files:
        for one in read(path, Answered):
            if one.completion_tokens < 1:
                raise BadDataset(f"{path}: the answer to {one.id[:80]!r} has no token")
            if one.id in names:
                found.setdefault((one.id, one.sample, one.temperature, one.top_p), one)
    return list(found.values())


class Kept:
    """The file of answers to one model. `with Kept(path) as kept: kept.add(...)`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self.torn = False
        """A crash had left half a line, which was cut off."""

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            self._mend(self._file)
        except OSError as error:
            raise NoRoom(
                f"{self.path} cannot be written: {error.strerror or error}. Check the directory's "
                "owner and that the disk has room"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, answer: Answered) -> None:
        """On disk when this returns. Raises NoRoom; the file then ends with a whole line."""
        assert self._file is not None, "opened by `with`"
        before = self._file.tell()
        try:
            self._file.write(msgspec.json.encode(answer) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._cut(before)
            raise NoRoom(
                f"{self.path} cannot be written: {error.strerror or error}. Make room on the disk "
                "and start the calibration again: it goes on from the answers it has"
            ) from error

    def _cut(self, size: int) -> None:
        """What was not flushed must not be written later, when the file is closed."""
        assert self._file is not None
        descriptor = os.dup(self._file.fileno())
        with contextlib.suppress(OSError):  # the same failure again: said once
            self._file.close()
        os.ftruncate(descriptor, size)
        self._file = os.fdopen(descriptor, "ab")

    def _mend(self, file: IO[bytes]) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            self.torn = True
            os.ftruncate(file.fileno(), whole)
            file.seek(whole)
