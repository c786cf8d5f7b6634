"""Rows of logits from the engine's own runner, in this process: exact, and without a daemon."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.engine.commands import Load, Submit
from appliance.engine.plan import Chunk, Clear
from appliance.engine.runner import EngineError, Runner
from appliance.engine.sequence import Sequence as Written
from appliance.forecast.bytelengths import Grouping
from appliance.study.errors import StudyError

CONTEXT = 1024
"""Tokens: beginnings and what is written to them are short."""


class EngineRows:
    """One text at a time. Must be closed."""

    def __init__(self, load: Load) -> None:
        """Opens the model as the engine would, for one sequence, with half of its threads: what
        serves beside this goes first. Raises StudyError."""
        alone = msgspec.structs.replace(
            load,
            n_ctx=min(load.n_ctx, CONTEXT),
            max_sequences=1,
            cached_sequences=0,
            draft_tokens=0,
            threads=(load.threads + 1) // 2,
            threads_batch=(load.threads + 1) // 2,
            journal_dir="",
        )
        try:
            self._runner = Runner(alone)
        except EngineError as error:
            raise StudyError(f"{Path(load.model_path).name}: {error}") from None
        vocab = self._runner.vocab
        self.grouping = Grouping.of(vocab)
        self.sizes = tuple(len(vocab.piece(token)) for token in range(vocab.n_tokens))
        self.ends = vocab.eogs
        self._most = min(self._runner.n_ctx, alone.n_batch)
        self._sequence = _sequence(())

    def begin(self, text: str) -> NDArray[np.float32]:
        """The row after a new text. Raises StudyError where it is too long."""
        prompt = self._runner.vocab.tokenize(text, add_special=True, parse_special=False)
        if not 0 < len(prompt) <= self._most // 2:
            raise StudyError(
                f"a beginning has {len(prompt)} tokens; this study takes 1 to {self._most // 2}: "
                "break the line"
            )
        self._sequence = _sequence(prompt)
        self._runner.move([Clear()])
        return self._run(prompt)

    def go_on(self, token: int) -> NDArray[np.float32]:
        """The row after one token more. The array is valid until the next call."""
        return self._run([token])

    def _run(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        start = self._sequence.computed
        self._sequence.computed += len(tokens)
        rows = self._runner.run([Chunk(self._sequence, start, tuple(tokens), 1)])
        return rows.reshape(-1)

    def close(self) -> None:
        self._runner.close()


def _sequence(prompt: Sequence[int]) -> Written:
    request = Submit(id="study", prompt=tuple(prompt), max_tokens=1)
    return Written(request, 0, 0, list(prompt), seq_id=0)
