"""The growing answer of one choice: tokens in, events out, and the decision to stop."""

from collections.abc import Callable
from typing import Self

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from appliance.engine.detokenize import TextStream
from appliance.engine.messages import Delta, Event, Finished, TokenLogprob
from appliance.engine.sampling import Sampler, make_constraint
from appliance.engine.sequence import End, Sequence
from appliance.engine.vocab import Vocab


class Answer:
    """Owns the sampler and the text of one sequence from submission to its end."""

    def __init__(
        self, sequence: Sequence, vocab: Vocab, lltokenizer: Callable[[], LLTokenizer] | None
    ) -> None:
        """Raises ConstraintError when the request's grammar does not compile."""
        request = sequence.request
        self._sequence = sequence
        self._vocab = vocab
        self._special = request.special
        self._text = TextStream(() if request.forced else request.stop)
        self._refused_at = 0
        """Position of the first forced token that the grammar forbids; 0: none."""
        constraint = None
        if request.grammar is not None and lltokenizer is not None:
            constraint = make_constraint(lltokenizer(), request.grammar)
        self._sampler = Sampler(request, sequence.choice, vocab.n_tokens, vocab.eogs, constraint)
        self._pending_text: list[str] = []
        self._pending_ids: list[int] = []
        self._pending_logprobs: list[TokenLogprob] = []

    @classmethod
    def unstarted(cls, sequence: Sequence, vocab: Vocab) -> Self:
        """For a request that ends before its grammar could be used."""
        return cls(sequence, vocab, None)

    def take(self, logits: NDArray[np.float32], n_ctx: int) -> End | None:
        """Samples one token, appends it, and says whether the choice ends with it."""
        if self._sequence.request.forced:
            return self._follow(logits, n_ctx)
        sequence = self._sequence
        token, logprob = self._sampler.pick(logits)
        self._append(token, logprob)
        if token in self._vocab.eogs and not sequence.request.sampling.ignore_eos:
            sequence.hidden += 1
            return End("stop", "eos")
        fed = self._text.feed(self._vocab.piece(token, self._special))
        self._pending_text.append(fed.text)
        if fed.stop_word:
            sequence.hidden += fed.hidden
            return End("stop", "word", fed.stop_word)
        if self._sampler.complete:
            return End("stop", "eos")
        if sequence.generated >= sequence.request.max_tokens or len(sequence.tokens) >= n_ctx:
            return End("length", "limit")
        return None

    def _follow(self, logits: NDArray[np.float32], n_ctx: int) -> End | None:
        """Appends the next forced token, whatever is picked; ends with the last one."""
        sequence, forced = self._sequence, self._sequence.request.forced
        token = forced[sequence.generated]
        logprob, refused = self._sampler.follow(logits, token)
        self._append(token, logprob)
        if refused and not self._refused_at:
            self._refused_at = sequence.generated
        last = sequence.generated == len(forced)
        if last and token in self._vocab.eogs:
            sequence.hidden += 1
            return End("stop", "eos")
        self._pending_text.append(self._text.feed(self._vocab.piece(token, self._special)).text)
        return End("length", "limit") if last or len(sequence.tokens) >= n_ctx else None

    def _append(self, token: int, logprob: TokenLogprob | None) -> None:
        self._sequence.tokens.append(token)
        self._pending_ids.append(token)
        if logprob is not None:
            self._pending_logprobs.append(logprob)

    def delta(self) -> list[Event]:
        """What is new since the last delta, if anything is."""
        if not self._pending_ids and not any(self._pending_text):
            return []
        delta = Delta(
            self._sequence.request.id,
            self._sequence.choice,
            "".join(self._pending_text),
            tuple(self._pending_ids),
            tuple(self._pending_logprobs),
        )
        self._pending_text, self._pending_ids, self._pending_logprobs = [], [], []
        return [delta]

    def finish(self, end: End, now: float) -> list[Event]:
        """The rest of the text and the account."""
        if end.stop_type != "word":
            self._pending_text.append(self._text.flush())
        events = self.delta()
        self._sampler.close()
        sequence = self._sequence
        finished = Finished(
            sequence.request.id,
            sequence.choice,
            end.reason,
            end.stop_type,
            end.stop_word,
            sequence.counts(now),
            end.message or self._refusal(),
        )
        return [*events, finished]

    def _refusal(self) -> str:
        """What a replay has to say of its grammar."""
        if not self._refused_at:
            return ""
        return (
            f"the grammar forbids the forced token at position {self._refused_at} of the answer; "
            "from there on it was not applied"
        )
