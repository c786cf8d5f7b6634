"""What a step of the engine needs of others."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from appliance.engine.journal import Kind
from appliance.engine.plan import Chunk, Move
from appliance.engine.vocab import Vocab


class Decoder(Protocol):
    """What a step needs of the model; `runner.Runner` is the real one."""

    vocab: Vocab
    n_ctx: int

    def move(self, moves: tuple[Move, ...]) -> None: ...

    def run(self, chunks: tuple[Chunk, ...]) -> NDArray[np.float32]: ...


class TokenJournal(Protocol):
    """Where a step writes down what it computed; `journal.Journal` is the real one."""

    @property
    def records(self) -> int: ...

    @property
    def room(self) -> int: ...

    def write(self, kind: Kind, number: int, choice: int, a: int, b: int) -> None: ...

    def flush(self) -> None: ...
