"""How likely an answer is right, told once it has ended: the quality head at run time.

It reads what the model's signals came to (quality.Tally) and the vectors of prompt and answer,
which are sums of the model's own token rows. Nothing waits for it: the ledger's thread asks when it
packs a final row, the event loop only for a client that wants to know. Hence the lock, and rows
and a file of its own.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.quality import BadQuality, Head
from appliance.forecast.question import Question
from appliance.forecast.told import Claim

log = logging.getLogger(__name__)

DIGITS = 4
"""Of what is told."""


class Reader(Protocol):
    """Makes the vectors of prompt and answer: an `embedders.TokenMean` that is nobody else's."""

    @property
    def dimensions(self) -> int: ...

    def embed(self, question: Question, /) -> NDArray[np.float32]: ...

    def close(self) -> None: ...


class Judge:
    """One forecaster's head and what it reads with. Any thread."""

    def __init__(self, head: Head, reader: Reader) -> None:
        self.claim: Claim = head.claim
        self.failed = 0
        """Answers of which nothing was told, by a fault of ours or of the model's file."""
        self.heard: Callable[[float], None] = lambda value: None
        """Told of each number; on whatever thread asked for it."""
        self._head, self._reader = head, reader
        self._one = threading.Lock()

    def told(
        self, features: Sequence[float], prompt: Sequence[int], answer: Sequence[int]
    ) -> float | None:
        """0 to 1; None where it cannot be told. `features`: of a Tally. `prompt`, `answer`: token
        ids. Never raises."""
        try:
            with self._one:
                vectors = [self._reader.embed(Question((), tuple(ids))) for ids in (prompt, answer)]
                value = round(self._head.told(list(features), *vectors), DIGITS)
            if not 0 <= value <= 1:
                raise ArithmeticError("the quality head gave what is not a number")
            self.heard(value)
        except Exception:  # whatever it is, an answer that was given must not suffer from it
            self.failed += 1
            if self.failed == 1:
                log.exception("an answer was not judged; further ones are counted only")
            return None
        return value

    def close(self) -> None:
        """Who asks later is told nothing."""
        with self._one:
            self._reader.close()


def judge_of(arrays: Mapping[str, Any] | None, reader: Callable[[], Reader | None]) -> Judge | None:
    """Of a forecaster's arrays; None where it has no head, or one that does not fit this program,
    or where its vectors are not made of token rows alone (`reader` gives None)."""
    try:
        head = Head.from_arrays(arrays) if arrays is not None else None
        found = reader() if head is not None else None
        if head is None or found is None:
            return None
        if 2 * found.dimensions != len(head.mean):
            found.close()
            raise BadQuality("the quality head was made for vectors of another width")
    except (BadQuality, OSError) as error:
        log.warning("answers are not judged when they have ended: %s", error)
        return None
    return Judge(head, found)
