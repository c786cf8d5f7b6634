"""The answer with a budget and without a grammar: cruises, then tries endings until one fits.

Rules: up to `fork` it is an `Answer` like any other, except that it cannot end itself. From there
on its tokens are in `sequence.tokens`, so that the engine computes them, but not settled: nothing
of them is told or journaled. `_commit` settles them, `_retry` takes them back.
"""

from collections.abc import Sequence as Row

import numpy as np
from numpy.typing import NDArray

from appliance.engine.answer import Answer
from appliance.engine.landing import (
    CUT_CHANCE,
    CUT_IN_WORD_CHANCE,
    FLOOR,
    Ending,
    Kind,
    Tries,
    Window,
    outcome,
)
from appliance.engine.landing_marks import Chances, Marks
from appliance.engine.landing_text import Prose
from appliance.engine.reports import TokenLogprob
from appliance.engine.sequence import End, Sequence
from appliance.engine.vocab import Vocab

Logits = NDArray[np.float32]

CLOSED_CHANCE = 0.06
"""For a code fence that is closed after a whole line: enough to be taken at once."""
LINE_SHARE = 0.2
"""How much a line that could end here counts beside a sentence that could."""
_MOSTLY = 0.5
"""From this share of what may come next on, a sentence's end is one: no number goes on."""


class LandingAnswer(Answer):
    """Owns its tries."""

    __slots__ = (
        "_fork",
        "_held",
        "_held_back",
        "_logprobs_held",
        "_marks",
        "_over",
        "_path",
        "_pending",
        "_prose",
        "_prose_at_fork",
        "_stops",
        "_tries",
        "_window",
    )

    def __init__(self, sequence: Sequence, vocab: Vocab, marks: Marks) -> None:
        super().__init__(sequence, vocab, None)
        request = sequence.request
        assert request.budget is not None
        self._marks = marks
        self._window = Window.of(request.budget, request.max_tokens)
        self._fork = sequence.n_prompt + self._window.fork
        self._tries = Tries(request.budget.mode == "strict")
        self._held = False
        """A try is under way."""
        self._held_back = False
        """The model would have ended the answer before the window."""
        self._over = False
        """A soft answer beyond its window."""
        self._pending = 0.0
        """The text could end with the newest token, which had this probability; 0: it could not."""
        self._logprobs_held: list[TokenLogprob] = []
        self._path: tuple[int, ...] = ()
        """What closes a code fence, still to come."""
        self._prose = self._prose_at_fork = Prose()
        self._stops = self._text.copy()
        self._bar(1)
        if self._window.fork == 0:
            self._hold()

    @property
    def settled(self) -> int:
        return self._fork if self._held else len(self.sequence.tokens)

    def give_up(self) -> None:
        if self._held:
            self._take_back(self._fork)
            self._held = False

    # -- cruising --------------------------------------------------------------------------------

    def take(self, logits: Logits, n_ctx: int, best: int = -1) -> End | None:
        if self._held:
            return self._try(logits, best)
        if self._path:
            return self._follow_path(logits)
        end = self._end_late(logits) if self._over else None
        if end is not None:
            return end
        self._watch(best)
        end = super().take(logits, n_ctx, best)
        if end is not None:
            return self._gave_way(end)
        self._note(self.sequence.tokens[-1], 1.0)
        if not self._over and self.sequence.generated == self._window.fork:
            self._hold()
        return None

    def _end_late(self, logits: Logits) -> End | None:
        """A soft answer beyond its window ends where it can."""
        self._bar(self.sequence.generated + 1)
        chances = self._marks.chances(logits)
        if self._pending and self._confirmed(chances):
            return self._gave_way(End("stop", "eos"))
        whole = self._prose.whole
        if whole and self._may_close(chances) and chances.of(chances.closer) >= FLOOR:
            logprob = self._sampler.told(logits, chances.closer)
            end = self._commit((chances.closer,), () if logprob is None else (logprob,))
            return self._gave_way(end or End("stop", "eos"))
        if self.sequence.generated < self._window.latest or not whole:
            return None
        self.landing = "forced"
        return End("length", "limit")

    def _gave_way(self, end: End) -> End:
        """An end that the budget has no say in, or that came late."""
        self.landing = outcome(self._window, self.sequence.generated)
        return end

    def _watch(self, best: int) -> None:
        if best in self._vocab.eogs and self.sequence.generated + 1 < self._window.first:
            self._held_back = True

    def _note(self, token: int, chance: float) -> None:
        """The text goes on with this token; whether it could end after it."""
        self._prose.feed(self._piece(token))
        asked = self._held or self._over
        self._pending = chance if asked and self._prose.boundary else 0.0

    def _piece(self, token: int) -> bytes:
        return self._vocab.piece(token, self._special)

    def _bar(self, place: int) -> None:
        """What must not come as the `place`-th token: an end before the window, in a fence or in
        the middle of a character."""
        early = place < self._window.first and not self._over
        within = self._prose.in_fence or not self._prose.whole
        barred = self._marks.ends if early or within else frozenset[int]()
        if early and self._tries.stretches(self._window.first - place):
            barred |= self._marks.sentence_ends
        self._sampler.bar(barred)

    # -- trying ----------------------------------------------------------------------------------

    def _hold(self) -> None:
        """The first try begins."""
        self._held, self.signalled, self._pending = True, False, 0.0
        self._prose_at_fork, self._stops = self._prose.copy(), self._text.copy()

    def _try(self, logits: Logits, best: int) -> End | None:
        """One token more of this try, or the decision if it has them all."""
        place = self.sequence.generated + 1
        chances = self._marks.chances(logits) if place + 8 >= self._window.first else None
        if chances is not None:
            self._look(chances, logits, place)
        if self._tries.settled:
            return self._decide()
        self._bar(place)
        token = self._sampler.choose(logits)
        self._watch(best)
        if token in self._vocab.eogs:
            return self._end_here(logits, token)
        self._append(token, self._sampler.accept(logits, token))
        self._note(token, 1.0 if chances is None else float(chances.of(token)))
        if self._stops.feed(self._piece(token)).stop_word:
            return self._stop()
        return self._decide() if place >= self._window.last else None

    def _append(self, token: int, logprob: TokenLogprob | None) -> None:
        self.sequence.tokens.append(token)
        if logprob is not None:
            self._logprobs_held.append(logprob)

    def _end_here(self, logits: Logits, token: int) -> End | None:
        self._offer("natural", 1.0, (token,), logits, at_once=True)
        return self._decide()

    # -- endings ---------------------------------------------------------------------------------

    def _look(self, chances: Chances, logits: Logits, place: int) -> None:
        """All ways to end before or with the `place`-th token, whose row this is."""
        if self._window.holds(place - 1):
            self._look_before(chances)
        if self._window.holds(place):
            self._look_with(chances, logits)
        self._look_at_fence(place)

    def _look_before(self, chances: Chances) -> None:
        """The text as it stands: a sentence or line that ends here, or a cut."""
        if self._pending and self._confirmed(chances):
            self._offer("steered", max(self._pending, FLOOR), at_once=True)
        if self._prose.whole and not self._prose.in_fence:
            between = chances.gap >= _MOSTLY
            self._offer("cut", CUT_CHANCE if between else CUT_IN_WORD_CHANCE)

    def _confirmed(self, chances: Chances) -> bool:
        """What the model expects next does not go on with the number, name or abbreviation."""
        return self._prose.wide_end or self._prose.line_start or chances.gap >= _MOSTLY

    def _look_with(self, chances: Chances, logits: Logits) -> None:
        """What would best end the sentence here, and the line."""
        if not self._prose.whole:
            return  # a mark would leave half a character before it
        if self._may_close(chances):
            token = chances.closer
            self._offer("steered", chances.of(token), (token,), logits)
        token = chances.breaker
        if self._prose.after(self._piece(token)).boundary == "line":
            chance = LINE_SHARE * chances.line_end
            self._offer("steered", chance, (token,), logits)

    def _may_close(self, chances: Chances) -> bool:
        """Whether the likeliest such mark makes a sentence of what is there."""
        piece = self._piece(chances.closer)
        if self._prose.after_digit and piece[:1] == b".":
            return False
        return self._prose.after(piece).boundary == "sentence"

    def _look_at_fence(self, place: int) -> None:
        """A code fence is closed rather than left open."""
        mark = self._prose.fence_end
        if not mark or not self._prose.whole:
            return
        tokens = tuple(self._vocab.tokenize(mark, add_special=False, parse_special=False))
        if self._window.holds(place - 1 + len(tokens)):
            chance = CLOSED_CHANCE if self._prose.line_start else FLOOR
            self._offer("closed", chance, path=tokens)

    def _offer(
        self,
        kind: Kind,
        chance: float,
        tokens: tuple[int, ...] = (),
        row: Logits | None = None,
        *,
        path: tuple[int, ...] = (),
        at_once: bool = False,
    ) -> None:
        """To end with these tokens after those of the try, the only one of them being of this row,
        or with a path."""
        best = self._tries.best
        if kind == "steered" and chance < FLOOR:
            return
        if best is not None and chance <= best.chance and not at_once:
            return
        told = list(self._logprobs_held)
        if row is not None and (logprob := self._sampler.told(row, tokens[0])) is not None:
            told.append(logprob)
        kept = (*self.sequence.tokens[self._fork :], *tokens)
        self._tries.offer(Ending(kind, chance, kept, tuple(told), path, at_once))

    # -- deciding --------------------------------------------------------------------------------

    def _decide(self) -> End | None:
        """The try is over."""
        if not self._tries.settled and self._window.holds(self.sequence.generated):
            self._look_last()
        if not self._tries.settled and not self._tries.end_try():
            self._retry()
            return None
        chosen = self._tries.chosen
        if chosen is None:
            self._go_on()
            return None
        self.landing = self._tries.landing(chosen, held_back=self._held_back)
        end = self._commit(chosen.tokens, chosen.logprobs)
        if end is not None:
            return self._gave_way(end)
        if chosen.path:
            self._path = chosen.path
            self.undone = len(self.sequence.tokens) if self.undone < 0 else self.undone
            return None
        return End("length", "limit") if chosen.kind == "cut" else End("stop", "eos")

    def _follow_path(self, logits: Logits) -> End | None:
        """The next token of those that close the fence; the answer ends with the last."""
        token, self._path = self._path[0], self._path[1:]
        logprob = self._sampler.told(logits, token)
        end = self._commit((token,), () if logprob is None else (logprob,))
        return end if end is not None or self._path else End("stop", "eos")

    def _look_last(self) -> None:
        """After the window's last token no row tells what would come next."""
        if self._pending and not self._prose.after_digit:
            self._offer("steered", max(self._pending, FLOOR), at_once=True)
        elif self._prose.whole and not self._prose.in_fence:
            self._offer("cut", CUT_IN_WORD_CHANCE)

    def _retry(self) -> None:
        self._take_back(self._fork)
        self._prose, self._pending = self._prose_at_fork.copy(), 0.0
        self._stops = self._text.copy()
        self._sampler.again(self.sequence.tokens, self._tries.made)

    def _take_back(self, length: int) -> None:
        """The sequence keeps its first `length` tokens."""
        tokens = self.sequence.tokens
        self.sequence.dropped += len(tokens) - length
        del tokens[length:]
        self._logprobs_held.clear()
        self.undone = length if self.undone < 0 else min(self.undone, length)

    def _go_on(self) -> None:
        """A soft answer that found no end: what it tried last is settled, and it goes on."""
        self._over = True
        logprobs = tuple(self._logprobs_held)
        self._commit(tuple(self.sequence.tokens[self._fork :]), logprobs)

    def _commit(self, tokens: Row[int], logprobs: Row[TokenLogprob]) -> End | None:
        """Settles these tokens after what is settled. A stop string ends the answer after all."""
        self._replace(tokens)
        self._held = False
        self._untold_logprobs.extend(logprobs)
        for token in tokens:
            if token in self._vocab.eogs:
                self.sequence.hidden += 1
                break
            fed = self._text.feed(self._piece(token))
            self._untold_text.append(fed.text)
            if fed.stop_word:
                self.sequence.hidden += fed.hidden
                return End("stop", "word", fed.stop_word)
        return None

    def _replace(self, tokens: Row[int]) -> None:
        settled = self.settled
        tried = self.sequence.tokens[settled:]
        same = next(
            (i for i, (a, b) in enumerate(zip(tried, tokens, strict=False)) if a != b),
            min(len(tried), len(tokens)),
        )
        if same < len(tried):
            self._take_back(settled + same)
        self.sequence.tokens.extend(tokens[same:])

    def _stop(self) -> End | None:
        """The client's own stop string came in a try: the answer ends with it."""
        end = self._commit(tuple(self.sequence.tokens[self._fork :]), tuple(self._logprobs_held))
        return end if end is None else self._gave_way(end)
