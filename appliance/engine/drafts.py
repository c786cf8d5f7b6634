"""Drafts by prompt lookup: guess that the text repeats itself, verify the guess in the same step.

After the last few tokens, the tokens that followed their latest earlier occurrence are proposed
(prompt lookup decoding, A. Saxena 2023; LLMA, arXiv:2304.04487). A proposal costs compute whether
it holds or not, so `Drafter` learns how often proposals hold, by the length of the match, and how
long a step takes by its number of tokens, and proposes only what should raise tokens per second.
"""

from dataclasses import dataclass, field

MATCH_LENGTHS = (4, 3, 2)
"""n-grams looked up, longest first."""
BUCKETS = 9
"""Acceptance is learned apart for repeats verified 0, 1, … 8 and more tokens back."""
PRIOR_HITS, PRIOR_TRIES = 3.0, 4.0
"""Optimism of an untried bucket: enough to be tried, forgotten after a dozen proposals."""
FORGET = 0.98
"""Weight of the past at each observation: text changes within an answer."""


@dataclass(slots=True)
class Lookup:
    """The n-grams of one sequence and where each was last continued."""

    tokens: list[int]
    """The sequence's own list: it grows under us."""
    _seen: dict[tuple[int, ...], int] = field(default_factory=dict)
    _indexed: int = 0
    run: int = 0
    """Tokens in a row for which the lookup was right: the strongest sign of a repeat."""

    def propose(self, limit: int) -> list[int]:
        """Up to `limit` tokens that may come next; empty when nothing repeats."""
        self._index()
        tokens = self.tokens
        for length in MATCH_LENGTHS:
            if len(tokens) <= length:
                continue
            at = self._seen.get(tuple(tokens[-length:]))
            if at is not None:
                return self._follow(at, limit)
        return []

    def _follow(self, at: int, limit: int) -> list[int]:
        """Reads on from `at`; past the end the guess repeats itself, as a loop would."""
        known = self.tokens[at : at + limit]
        period = len(self.tokens) - at
        while len(known) < limit:
            known.append(known[len(known) - period])
        return known

    def _index(self) -> None:
        """Notes where each n-gram goes on; the last token's n-grams have no continuation yet."""
        tokens = self.tokens
        for end in range(max(self._indexed, 2), len(tokens)):
            for length in MATCH_LENGTHS:
                if end >= length:
                    self._seen[tuple(tokens[end - length : end])] = end
        self._indexed = len(tokens)


class Drafter:
    """Decides how many tokens of a proposal are worth their compute."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._hits = [PRIOR_HITS] * BUCKETS
        self._tries = [PRIOR_TRIES] * BUCKETS
        self._step_ms: dict[int, float] = {}

    def observe_step(self, n_tokens: int, ms: float) -> None:
        """A step of `n_tokens` decoded tokens took `ms`: the newest weighs one eighth."""
        old = self._step_ms.get(n_tokens)
        self._step_ms[n_tokens] = ms if old is None else old + (ms - old) / 8

    def observe_draft(self, run: int, proposed: int, accepted: int) -> None:
        """Of `proposed` tokens the first `accepted` held; `run` tokens had held before them."""
        for i in range(min(proposed, accepted + 1)):
            bucket = min(run + i, BUCKETS - 1)
            self._hits[bucket] = self._hits[bucket] * FORGET + (i < accepted)
            self._tries[bucket] = self._tries[bucket] * FORGET + 1.0

    def chance(self, run: int) -> float:
        """How likely the next proposed token holds after `run` that did."""
        bucket = min(run, BUCKETS - 1)
        return self._hits[bucket] / self._tries[bucket]

    def step_ms(self, n_tokens: int) -> float:
        """Expected ms of a step, interpolated between what was observed; 0.0 when nothing was."""
        known = sorted(self._step_ms)
        if not known:
            return 0.0
        below = max((n for n in known if n <= n_tokens), default=known[0])
        above = min((n for n in known if n >= n_tokens), default=known[-1])
        if below == above:
            return self._step_ms[below] * (1.0 if below == n_tokens else n_tokens / below)
        share = (n_tokens - below) / (above - below)
        return self._step_ms[below] + share * (self._step_ms[above] - self._step_ms[below])

    def worth(self, run: int, proposed: int, base_tokens: int, yield_tokens: float) -> int:
        """How many of `proposed` tokens to add to a step that has `base_tokens` so far and should
        yield `yield_tokens`: as long as each added one raises the expected tokens per ms."""
        chance = 1.0
        for count in range(proposed):
            chance *= self.chance(run + count)
            now, then = self.step_ms(base_tokens + count), self.step_ms(base_tokens + count + 1)
            if now <= 0.0 or chance * now <= yield_tokens * max(then - now, 0.0):
                return count
            yield_tokens += chance
        return proposed
