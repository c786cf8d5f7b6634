"""The answer with a budget and a grammar: closes its structure in time.

Valid output goes before the budget: a structure that is complete early ends early, and is never
made longer than the model wrote it; one that cannot be closed in the window any more is closed as
soon as it can be. Nothing is taken back here, so nothing is kept back. Where a way out takes too
long to find, the one that is known is taken: nobody's grammar may hold up others' steps.
"""

import time
from collections.abc import Callable

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from appliance.engine.answer import Answer
from appliance.engine.closing import Closing, Orders
from appliance.engine.landing import Window, outcome
from appliance.engine.landing_text import Prose
from appliance.engine.sequence import End, Sequence
from appliance.engine.vocab import Vocab

Logits = NDArray[np.float32]
_OTHERS = 8
"""Tokens that are tried in place of one which opens more than can be closed."""
PATIENCE_S, MORE_S = 2.0, 0.02
"""What an answer may spend on finding its way out, and how much more with each token. A way through
hundreds of values takes some ten milliseconds, few tokens need another one."""
_NEW = b" ,\n"
"""A token that begins so begins a word or a member: before it is a good place to close."""


class ClosingAnswer(Answer):
    """Owns the way out."""

    __slots__ = ("_clock", "_closed", "_closing", "_patience", "_prose", "_window")

    def __init__(
        self,
        sequence: Sequence,
        vocab: Vocab,
        lltokenizer: Callable[[], LLTokenizer],
        orders: Orders,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConstraintError when the request's grammar does not compile."""
        super().__init__(sequence, vocab, lltokenizer)
        request = sequence.request
        assert request.budget is not None
        self._window = Window.of(request.budget, request.max_tokens)
        self._prose = Prose()
        constraint = self._sampler.constraint
        assert constraint is not None
        self._clock = clock
        self._patience = PATIENCE_S
        self._closing = Closing(orders, vocab, constraint, clock=clock)
        self._closed = False
        """It is being closed: the path is followed to its end."""

    def take(self, logits: Logits, n_ctx: int, best: int = -1) -> End | None:
        token, path = self._next(logits)
        if token < 0:
            return self._land(End("stop", "eos"))
        sampler, sequence = self._sampler, self.sequence
        logprob = sampler.accept(logits, token)
        self._closing.take(token, path)
        sequence.tokens.append(token)
        if logprob is not None:
            self._untold_logprobs.append(logprob)
        end = self._show(token)
        if end is None and self._closed and not path:
            end = End("stop", "eos")
        if end is None and (len(sequence.tokens) >= self._longest or len(sequence.tokens) >= n_ctx):
            end = End("length", "limit")
        return end if end is None else self._land(end)

    def _show(self, token: int) -> End | None:
        """The text that the token adds, and whether it ends the answer by itself."""
        sequence = self.sequence
        if token in self._ends:
            sequence.hidden += 1
            return End("stop", "eos")
        piece = self._vocab.piece(token, self._special)
        self._prose.feed(piece)
        fed = self._text.feed(piece)
        self._untold_text.append(fed.text)
        if fed.stop_word:
            sequence.hidden += fed.hidden
            return End("stop", "word", fed.stop_word)
        return End("stop", "eos") if self._sampler.complete else None

    # -- deciding --------------------------------------------------------------------------------

    def _next(self, logits: Logits) -> tuple[int, tuple[int, ...] | None]:
        """The token to take, and the path that is left after it; -1: end here."""
        path, spent = self._closing.path, self.sequence.generated
        if not self._closed:
            token = self._sampler.choose(logits)
            if path is None or token in self._ends:
                return token, None
            token, left = self._fitting(logits, token, spent)
            late = token < 0
            if not late and not (self._window.holds(spent + len(path)) and self._good_place(token)):
                return token, left
            self._closed = True
        assert path is not None
        return (path[0], path[1:]) if path else (-1, None)

    def _fitting(
        self, logits: Logits, token: int, spent: int
    ) -> tuple[int, tuple[int, ...] | None]:
        """The model's token, or before the window its next best, that leaves room to close, and the
        path left after it; -1: none."""
        barred = frozenset[int]()
        path = self._closing.path or ()
        began = self._clock()
        until = began + self._patience
        while True:
            left = self._closing.after(token, until)
            if left is not None and spent + 1 + len(left) <= self._window.last:
                break
            late = spent + len(path) >= self._window.first or self._clock() > until
            if late or len(barred) >= _OTHERS:
                token = -1
                break
            barred |= {token}
            self._sampler.bar(barred)
            token = self._sampler.choose(logits)
        if barred:
            self._sampler.bar(frozenset())
        self._patience = min(PATIENCE_S, self._patience + MORE_S - (self._clock() - began))
        return token, left

    def _good_place(self, token: int) -> bool:
        if self._closing.path:
            return self._vocab.piece(token)[:1] in _NEW
        return bool(self._prose.boundary)

    def _land(self, end: End) -> End:
        tokens = self.sequence.generated
        cut = end.reason == "length"
        if self._closed and self._window.holds(tokens):
            self.landing = "closed" if not cut else "forced"
        else:
            self.landing = "gave_way" if cut else outcome(self._window, tokens)
        return end
