"""What one step does: moves in the KV cache first, then the tokens to decode."""

from dataclasses import dataclass

import msgspec

from appliance.engine.sequence import SavedState, Sequence


@dataclass(frozen=True, slots=True)
class Copy:
    """Share the first `length` cells of sequence `source` with `target` before the step."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget what sequence id `seq_id` holds from position `start` on, before the step."""

    seq_id: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget everything and zero the cells before the step: as if the engine had just started."""


@dataclass(frozen=True, slots=True)
class Save:
    """Copy what sequence `seq_id` holds to memory, before a `Remove` that follows."""

    seq_id: int
    state: SavedState


@dataclass(frozen=True, slots=True)
class Restore:
    """Put a saved state back, as sequence `seq_id`, which holds nothing. If the cache has no place
    for it, `state.restored` stays false and the sequence goes on holding nothing."""

    seq_id: int
    state: SavedState


Move = Copy | Remove | Clear | Save | Restore


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one sequence in this step: `start` is the position of the first. (A Struct, like
    the plan: one is made for each sequence in each step.)"""

    sequence: Sequence
    start: int
    tokens: tuple[int, ...]
    outputs: int
    """Logits are wanted for the last `outputs` of them."""
    draft: tuple[int, ...] = ()
    """The last tokens, where they are guesses that the logits must confirm."""


class Plan(msgspec.Struct, frozen=True):
    """One step. `moves` are applied in order before the chunks are decoded."""

    moves: tuple[Move, ...]
    chunks: tuple[Chunk, ...]
    started: tuple[Sequence, ...]
    preempted: int
    evicted: int

    @property
    def n_tokens(self) -> int:
        return sum([len(chunk.tokens) for chunk in self.chunks])


def note_company(chunks: list[Chunk], *, alone: bool) -> None:
    """Remembers with how many others each sequence shares the step, a fact for replays. `alone`:
    nothing else runs, be it in other steps."""
    company = len(chunks)
    for chunk in chunks:
        sequence = chunk.sequence
        if sequence.parallel < company:
            sequence.parallel = company
        if not alone:
            sequence.exclusive = False
