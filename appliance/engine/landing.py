"""When an answer with a budget ends: the decisions. Pure; the tokens come from `landing_answer`.

An answer cruises to `fork`, `LEAD` tokens before its budget, as any other does, but may not end
itself. What comes then is a try: it is kept back until it is decided. Every place in the window
where the text could end is an `Ending`, with the model's own probability of ending there; one less
likely than `FLOOR` is none. The first that is likely enough for the try is taken; where a try
brings none, the answer goes back to `fork` and tries again with other random numbers, `TRIES` times
at most. Then the likeliest of all is taken. Without one, a strict answer is cut inside the window,
and a soft one goes on to the next boundary, `OVER` tokens at most.
"""

from dataclasses import dataclass
from typing import Literal, Self

from appliance.engine.commands import Budget
from appliance.engine.reports import Landing, TokenLogprob

SLACK = 3
"""Tokens that an answer may be shorter or longer than its budget."""
LEAD = 24
"""Tokens before the budget from which on the text is tried, not yet told."""
OVER = 64
"""Tokens that a soft answer may go beyond its budget to find an end."""
TRIES = 12
ENOUGH = (0.05, 0.05, 0.05, 0.05, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01)
"""Try by try, how likely an ending must be to be taken at once."""
STRETCHED = 2
"""The first try in which sentences may be made longer."""
SHORT_SENTENCE = 8
FLOOR = 0.01
"""Less likely than this it is no natural boundary."""

Kind = Literal["natural", "steered", "closed", "cut"]
CUT_CHANCE, CUT_IN_WORD_CHANCE = 1e-6, 1e-9
"""A cut is the last choice; between words it is better than within one."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where the answer may end, in tokens of the answer."""

    first: int
    last: int
    fork: int
    """Where tries begin."""
    latest: int
    """Where a soft answer is cut that found no end until then."""

    @classmethod
    def of(cls, budget: Budget, max_tokens: int) -> Self:
        first = max(1, budget.tokens - SLACK)
        last = min(budget.tokens + SLACK, max_tokens)
        fork, latest = max(0, budget.tokens - LEAD), min(budget.tokens + OVER, max_tokens)
        return cls(first, last, fork, latest)

    def holds(self, tokens: int) -> bool:
        return self.first <= tokens <= self.last


@dataclass(frozen=True, slots=True)
class Ending:
    """One way to end: the tokens after `Window.fork`, and how likely the model finds the last."""

    kind: Kind
    chance: float
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    path: tuple[int, ...] = ()
    """Tokens that are to come after them, whatever the model says: they close a code fence."""
    at_once: bool = False
    """The model ended there itself: nothing better is to come."""


@dataclass(slots=True)
class Tries:
    """What was found so far, over all tries."""

    strict: bool
    made: int = 0
    """Complete ones."""
    best: Ending | None = None

    def offer(self, ending: Ending) -> None:
        if self.best is None or ending.at_once or ending.chance > self.best.chance:
            self.best = ending

    def stretches(self, before: int) -> bool:
        """Whether no sentence may end so many tokens before the window: every other of the later
        tries lets none end where the next one would have to be too short."""
        return self.made >= STRETCHED and self.made % 2 == 0 and before <= SHORT_SENTENCE

    @property
    def settled(self) -> bool:
        """Within a try: the best will not be bettered by waiting for more of it."""
        return self.best is not None and self.best.at_once

    def end_try(self) -> bool:
        """Whether that was the last: the best is good enough, or there were enough of them."""
        self.made += 1
        if self.made >= TRIES:
            return True
        return self.best is not None and self.best.chance >= ENOUGH[self.made - 1]

    @property
    def chosen(self) -> Ending | None:
        """What to end with; None: a soft answer goes on."""
        best = self.best
        if best is not None and best.chance < FLOOR and not self.strict:
            return None
        return best

    def landing(self, ending: Ending, *, held_back: bool) -> Landing:
        """How to call it. `held_back`: the model would have ended before the window."""
        if ending.kind == "natural":
            return "steered" if held_back or self.made else "natural"
        return "forced" if ending.kind == "cut" else ending.kind


def outcome(window: Window, tokens: int) -> Landing:
    """Of an answer that ended by a rule that goes before its budget: a stop string, its grammar."""
    return "natural" if window.holds(tokens) else "gave_way"
