"""The growing answer of one choice: tokens in, events out, and the decision to stop."""

import math
from collections.abc import Callable
from typing import Self

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from appliance.engine.detokenize import TextStream
from appliance.engine.reports import (
    SIGNAL_TOKENS,
    Delta,
    Event,
    Finished,
    Landing,
    Signals,
    TokenLogprob,
)
from appliance.engine.rows import Spread
from appliance.engine.sampling import Sampler, make_constraint
from appliance.engine.sequence import End, Sequence
from appliance.engine.vocab import Vocab


class Answer:
    """Owns the sampler and the text of one sequence from submission to its end."""

    # What each token needs is kept here, close together, rather than looked up in the request.
    __slots__ = (
        "_ends",
        "_eos_margin",
        "_follows",
        "_longest",
        "_refused_at",
        "_sampler",
        "_special",
        "_text",
        "_told",
        "_untold_logprobs",
        "_untold_text",
        "_vocab",
        "landing",
        "sequence",
        "signalled",
        "streamed",
        "undone",
    )  # fmt: skip

    def __init__(
        self, sequence: Sequence, vocab: Vocab, lltokenizer: Callable[[], LLTokenizer] | None
    ) -> None:
        """Raises ConstraintError when the request's grammar does not compile."""
        request = sequence.request
        self.sequence = sequence
        self.streamed = request.stream
        self.signalled = request.signals
        self.landing: Landing = ""
        self.undone = -1
        """So many of the sequence's tokens stayed what they were when the others were taken back
        or replaced; -1: all did. Whoever rewinds the cache sets it back."""
        self._vocab = vocab
        self._special = request.special
        self._ends = frozenset[int]() if request.sampling.ignore_eos else vocab.eogs
        self._follows = bool(request.forced)
        self._text = TextStream(() if request.forced else request.stop)
        self._refused_at = 0
        """Position of the first forced token that the grammar forbids; 0: none."""
        constraint = None
        if request.grammar is not None and lltokenizer is not None:
            constraint = make_constraint(lltokenizer(), request.grammar)
        self._sampler = Sampler(request, sequence.choice, vocab.n_tokens, vocab.eogs, constraint)
        self._longest = sequence.n_prompt + request.max_tokens
        self._told = sequence.n_prompt
        """So many of the sequence's tokens need not be told (any more)."""
        self._untold_text: list[str] = []
        self._untold_logprobs: list[TokenLogprob] = []
        self._eos_margin = -math.inf

    @classmethod
    def unstarted(cls, sequence: Sequence, vocab: Vocab) -> Self:
        """For a request that ends before its grammar could be used."""
        return cls(sequence, vocab, None)

    def take(self, logits: NDArray[np.float32], n_ctx: int, best: int = -1) -> End | None:
        """Samples one token, appends it, and says whether the choice ends with it. `best` is as
        for `Sampler.pick`."""
        sequence = self.sequence
        if self._follows:
            return self._follow(logits, n_ctx)
        token, logprob = self._sampler.pick(logits, best)
        sequence.tokens.append(token)
        if logprob is not None:
            self._untold_logprobs.append(logprob)
        if token in self._ends:
            sequence.hidden += 1
            return End("stop", "eos")
        fed = self._text.feed(self._vocab.piece(token, self._special))
        self._untold_text.append(fed.text)
        if fed.stop_word:
            sequence.hidden += fed.hidden
            return End("stop", "word", fed.stop_word)
        if self._sampler.constrained and self._sampler.complete:
            return End("stop", "eos")
        length = len(sequence.tokens)
        if length >= self._longest or length >= n_ctx:
            return End("length", "limit")
        return None

    def _follow(self, logits: NDArray[np.float32], n_ctx: int) -> End | None:
        """Appends the next forced token, whatever is picked; ends with the last one."""
        sequence, forced = self.sequence, self.sequence.request.forced
        token = forced[sequence.generated]
        logprob, refused = self._sampler.follow(logits, token)
        sequence.tokens.append(token)
        if logprob is not None:
            self._untold_logprobs.append(logprob)
        if refused and not self._refused_at:
            self._refused_at = sequence.generated
        last = sequence.generated == len(forced)
        if last and token in self._vocab.eogs:
            sequence.hidden += 1
            return End("stop", "eos")
        self._untold_text.append(self._text.feed(self._vocab.piece(token, self._special)).text)
        return End("length", "limit") if last or len(sequence.tokens) >= n_ctx else None

    def bar(self, tokens: frozenset[int]) -> None:
        """These cannot be picked: for the replay of an answer that could not."""
        self._sampler.bar(tokens)

    @property
    def settled(self) -> int:
        """So many of the sequence's tokens, prompt included, will stay."""
        return len(self.sequence.tokens)

    def give_up(self) -> None:
        """It ends from outside: what was not settled is dropped, see `undone`."""

    def delta(self) -> Delta | None:
        """What is new since the last delta, if anything is."""
        sequence, text = self.sequence, "".join(self._untold_text)
        ids = tuple(sequence.tokens[self._told : self.settled])
        if not ids and not text:
            return None
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._untold_logprobs:
            logprobs = tuple(self._untold_logprobs)
            self._untold_logprobs.clear()
        self._told += len(ids)
        self._untold_text.clear()
        return Delta(sequence.request.id, sequence.choice, text, ids, logprobs)

    def near_end(self, margin: float) -> bool:
        """By how much the likeliest end-of-generation token was below the likeliest of all, in the
        row of the latest token. Whether `signals` are due."""
        if margin > self._eos_margin:
            self._eos_margin = margin
        sequence = self.sequence
        return (len(sequence.tokens) - sequence.n_prompt) % SIGNAL_TOKENS == 0

    def signals(self, row: NDArray[np.float32], spread: Spread) -> Signals:
        """What the model told since the last signals; `row` is the latest token's."""
        sequence, margin = self.sequence, self._eos_margin
        self._eos_margin = -math.inf
        return Signals(
            sequence.request.id,
            sequence.choice,
            sequence.generated,
            margin,
            spread.entropy,
            float(row[sequence.tokens[-1]]) - spread.log_sum,
        )

    def finish(self, end: End, now: float) -> list[Event]:
        """The rest of the text and the account."""
        if end.stop_type != "word":
            self._untold_text.append(self._text.flush())
        delta = self.delta()
        self._sampler.close()
        sequence = self.sequence
        finished = Finished(
            sequence.request.id,
            sequence.choice,
            end.reason,
            end.stop_type,
            end.stop_word,
            sequence.counts(now),
            end.message or self._refusal(),
            self.landing,
        )
        return [finished] if delta is None else [delta, finished]

    def _refusal(self) -> str:
        """What a replay has to say of its grammar."""
        if not self._refused_at:
            return ""
        return (
            f"the grammar forbids the forced token at position {self._refused_at} of the answer; "
            "from there on it was not applied"
        )
