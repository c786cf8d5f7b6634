"""Keeps one sequence inside its grammar: llguidance token masks over the logits.

The prepare process builds a `Constraint` once to prove that a grammar compiles within `LIMITS`;
the engine builds its own from the same string, under the same limits, per choice.
"""

from typing import Self

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,  # about 20 ms
    step_lexer_fuel=200_000,  # about 15 ms a token, at worst
    step_max_items=50_000,
    max_lexer_states=50_000,  # 1-2 kB each
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""What one grammar may cost. Beyond it the matcher fails, and so does the request: never an
unconstrained answer."""


class ConstraintError(ValueError):
    """The grammar does not compile, or outgrew its limits in mid-answer."""


class Constraint:
    """The state of one answer within its grammar. Owned by one thread at a time."""

    def __init__(self, tokenizer: LLTokenizer, grammar: str) -> None:
        """Compiles `grammar`; raises ConstraintError. llguidance drops the GIL meanwhile."""
        self._adopt(LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS))
        self._bits = np.zeros((tokenizer.vocab_size + 31) // 32, dtype=np.int32)
        self._check()

    def _adopt(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(self._matcher.get_error())

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Sets what the grammar forbids to -inf, in place; EOS stays where the grammar accepts.

        `logits` has n_vocab entries. Raises ConstraintError when the grammar outgrew its limits.
        """
        logits[~self.allowed(logits.shape[0])] = -np.inf

    def allowed(self, n_vocab: int) -> NDArray[np.bool_]:
        """One flag per token: may it come next?"""
        bits = self._bits
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        self._check()
        flags = np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)
        if flags.shape[0] >= n_vocab:
            return flags[:n_vocab]
        return np.concatenate((flags, np.zeros(n_vocab - flags.shape[0], dtype=np.bool_)))

    def accept(self, token: int) -> bool:
        """Takes one sampled token. False, and no change, when the grammar forbids it."""
        taken = self._matcher.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def rollback(self, count: int) -> None:
        """Takes back the last `count` accepted tokens."""
        self._matcher.rollback(count)
        self._check()

    @property
    def is_done(self) -> bool:
        """Nothing but EOS may follow: stop now."""
        return self._matcher.is_stopped()

    @property
    def can_end(self) -> bool:
        """The answer so far satisfies the grammar: EOS is allowed."""
        return self._matcher.is_accepting()

    def copy(self) -> Self:
        """An independent constraint in the same state; cheaper than compiling again."""
        twin = object.__new__(type(self))
        twin._adopt(self._matcher.deep_copy())
        twin._bits = np.zeros_like(self._bits)
        return twin
