"""How much the scheduler may hand out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    n_cells: int
    max_sequences: int
    cached_sequences: int
    step_tokens: int
    prefill_tokens: int
    """Prompt tokens of a step, at most, while others decode."""
    draft_tokens: int = 0
