"""Drafts by prompt lookup: guess that the text repeats itself, verify the guess in the same step.

After the last few tokens, the tokens that followed their latest earlier occurrence are proposed
(prompt lookup decoding, A. Saxena 2023; LLMA, arXiv:2304.04487). A proposal costs compute whether
it holds or not, so `Drafter` learns how often proposals hold, by the length of the match, and how
long a step takes by its number of tokens, and proposes only what should raise tokens per second.
"""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field

PAIR, LONGEST = 2, 4
"""Tokens that must match before a proposal, and from which on a match is as good as any."""
MATCHES = 16
"""Places where a pair was continued that are compared, latest first."""
BUCKETS = 9
"""Acceptance is learned apart for repeats verified 0, 1, … 8 and more tokens back."""
PRIOR_HITS, PRIOR_TRIES = 3.0, 4.0
"""Optimism of an untried bucket: enough to be tried, forgotten after a dozen proposals."""
FORGET = 0.98
"""Weight of the past at each observation: text changes within an answer."""


@dataclass(slots=True)
class Lookup:
    """The pairs of one sequence's tokens and where each was continued."""

    tokens: list[int]
    """The sequence's own list: it grows under us."""
    _last: dict[tuple[int, int], int] = field(default_factory=dict)
    """Where each pair was last continued."""
    _earlier: list[int] = field(default_factory=lambda: [0, 0])
    """For each position that continues a pair, the one before it; 0: none."""
    run: int = 0
    """Tokens in a row for which the lookup was right: the strongest sign of a repeat."""

    def propose(self, limit: int) -> list[int]:
        """Up to `limit` tokens that may come next; empty when nothing repeats."""
        self._index()
        at = self._longest_match() if len(self.tokens) > 2 else 0
        return self._follow(at, limit) if at else []

    def _longest_match(self) -> int:
        """Where that continued which is most like the end of the text, the latest of equals."""
        tokens, earlier = self.tokens, self._earlier
        at = best = self._last.get((tokens[-2], tokens[-1]), 0)
        longest = PAIR
        for _ in range(MATCHES):
            if not at:
                break
            length = self._match(at)
            if length > longest:
                best, longest = at, length
            if length == LONGEST:
                break
            at = earlier[at]
        return best

    def _match(self, at: int) -> int:
        """How many tokens before `at` are those at the end of the text."""
        tokens, length = self.tokens, PAIR
        while length < min(LONGEST, at) and tokens[at - length - 1] == tokens[-length - 1]:
            length += 1
        return length

    def _follow(self, at: int, limit: int) -> list[int]:
        """Reads on from `at`; past the end the guess repeats itself, as a loop would."""
        known = self.tokens[at : at + limit]
        period = len(self.tokens) - at
        while len(known) < limit:
            known.append(known[len(known) - period])
        return known

    def _index(self) -> None:
        """Notes where each pair goes on; the last one has no continuation yet."""
        tokens, last, earlier = self.tokens, self._last, self._earlier
        for end in range(len(earlier), len(tokens)):
            pair = (tokens[end - 2], tokens[end - 1])
            earlier.append(last.get(pair, 0))
            last[pair] = end


class Drafter:
    """Decides how many tokens of a proposal are worth their compute."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._hits = [PRIOR_HITS] * BUCKETS
        self._tries = [PRIOR_TRIES] * BUCKETS
        self._step_ms: dict[int, float] = {}
        self._sizes: list[int] = []
        """Of the steps that were observed, smallest first."""

    def observe_step(self, n_tokens: int, ms: float) -> None:
        """A step of `n_tokens` decoded tokens took `ms`: the newest weighs one eighth."""
        old = self._step_ms.get(n_tokens)
        if old is None:
            insort(self._sizes, n_tokens)
            old = ms
        self._step_ms[n_tokens] = old + (ms - old) / 8

    def observe_draft(self, run: int, proposed: int, accepted: int) -> None:
        """Of `proposed` tokens the first `accepted` held; `run` tokens had held before them."""
        for i in range(min(proposed, accepted + 1)):
            bucket = min(run + i, BUCKETS - 1)
            self._hits[bucket] = self._hits[bucket] * FORGET + (i < accepted)
            self._tries[bucket] = self._tries[bucket] * FORGET + 1.0

    def chance(self, run: int) -> float:
        """How likely the next proposed token holds after `run` that did."""
        bucket = run if run < BUCKETS else BUCKETS - 1
        return self._hits[bucket] / self._tries[bucket]

    def gain(self, run: int, count: int) -> float:
        """Tokens that `count` proposed ones should yield."""
        gain, chance = 0.0, 1.0
        for i in range(count):
            chance *= self.chance(run + i)
            gain += chance
        return gain

    def step_ms(self, n_tokens: int) -> float:
        """Expected ms of a step, interpolated between what was observed; 0.0 when nothing was."""
        observed = self._step_ms.get(n_tokens)
        return self._between(n_tokens) if observed is None else observed

    def _between(self, n_tokens: int) -> float:
        sizes = self._sizes
        if not sizes:
            return 0.0
        place = bisect_left(sizes, n_tokens)
        below, above = sizes[max(place - 1, 0)], sizes[min(place, len(sizes) - 1)]
        if below == above:
            return self._step_ms[below] * n_tokens / below
        share = (n_tokens - below) / (above - below)
        return self._step_ms[below] + share * (self._step_ms[above] - self._step_ms[below])

    def needed(self, base_tokens: int, yield_tokens: float) -> float:
        """How likely a token must hold to be worth a place in a step that has `base_tokens` so far
        and should yield `yield_tokens`: if likelier, it raises the expected tokens per ms."""
        now, then = self.step_ms(base_tokens), self.step_ms(base_tokens + 1)
        return yield_tokens * max(then - now, 0.0) / now if now > 0.0 else math.inf

    def worth(self, run: int, proposed: int, base_tokens: int, yield_tokens: float) -> int:
        """How many of `proposed` tokens to add to such a step: as long as each is worth it."""
        chance = 1.0
        for count in range(proposed):
            chance *= self.chance(run + count)
            if chance <= self.needed(base_tokens + count, yield_tokens):
                return count
            yield_tokens += chance
        return proposed
