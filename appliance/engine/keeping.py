"""States of sequences kept in memory while they wait, where that is cheaper than computing."""

from dataclasses import dataclass

from appliance.engine.plan import Restore, Save
from appliance.engine.sequence import SavedState, Sequence

LEAST = 32
"""Tokens below which a state is not worth the calls."""
MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Costs:
    """As measured when the model was opened."""

    bytes_per_token: int
    copy_ms: float
    """To take a token's state out and to put it back."""
    compute_ms: float
    """To compute it again."""


class Keeping:
    """Bounds the memory that saved states take, and knows who has one."""

    def __init__(self) -> None:
        self.costs: Costs | None = None
        """None: nothing is ever saved."""
        self.saved = 0
        self.restored = 0
        self.reserved = 0
        """Bytes."""

    @property
    def cheap(self) -> bool:
        """Whether a state is sooner copied than computed again."""
        return self.costs is not None and self.costs.copy_ms < self.costs.compute_ms

    def save(self, sequence: Sequence) -> Save | None:
        """What to do before the sequence gives up its cells, if anything."""
        if sequence.saved is not None:  # just restored, and out again
            return None
        costs, tokens = self.costs, sequence.computed
        if costs is None or not self.cheap or tokens < LEAST:
            return None
        size = tokens * costs.bytes_per_token
        if self.reserved + size > MOST_BYTES:
            return None
        self.reserved += size
        self.saved += 1
        sequence.saved = SavedState(tokens, size)
        return Save(sequence.seq_id, sequence.saved)

    def restore(self, sequence: Sequence) -> Restore | None:
        """How it gets back what it had; None if nothing was saved of it."""
        state = sequence.saved
        if state is None or state.data is None:
            self.drop(sequence)
            return None
        state.restored = False
        return Restore(sequence.seq_id, state)

    def settle(self, sequence: Sequence) -> bool:
        """The step ran: whether the cache holds the sequence again."""
        worked = sequence.saved is not None and sequence.saved.restored
        self.restored += worked
        self.drop(sequence)
        return worked

    def drop(self, sequence: Sequence) -> None:
        """Nothing of it needs to be kept any more."""
        if sequence.saved is not None:
            self.reserved -= sequence.saved.reserved
            sequence.saved = None
