"""When pool B computes in a step that pool A computes in too, and what it leaves free for A.

Rules:
1. While A needs the steps for itself B computes nothing, but in every `HELD_STEPS`-th of them.
2. Else what B's tokens add to a step of A is a debt that A's steps pay off with `SHARE` of their
   time; B computes whenever it owes nothing. So A decodes slower by `SHARE` on average, B
   always gets on, and its tokens go through together, which is cheaper than one by one.
3. As long as somebody of A was here lately, whoever comes next should find the box as if B were not
   there: B's prompts are read in pieces of `PIECE` tokens, and it leaves one place in `SPARE` free.
"""

from appliance.engine.drafts import Drafter

SHARE = 0.1
HELD_STEPS = 16
PIECE = 16
SPARE = 8
QUIET_S = 10.0
"""Without a request of A for so long, it counts as not there."""


class Turns:
    """Keeps account of what B owes."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._owed_ms = 0.0
        self._held = 0
        self._seen = -QUIET_S

    def seen(self, now: float) -> None:
        """A request of A is here."""
        self._seen = now

    def quiet(self, now: float) -> bool:
        """Nobody of A was here lately."""
        return now - self._seen >= QUIET_S

    def piece(self, room: int, now: float) -> int:
        """How many prompt tokens of B a step takes that has `room` for them."""
        return room if self.quiet(now) else min(room, PIECE)

    def places(self, most: int, now: float) -> int:
        """How many of all places B may take."""
        return most if self.quiet(now) or most == 1 else most - -(-most // SPARE)

    @property
    def due(self) -> bool:
        """B computes in this step even if A needs it for itself."""
        return self._held == HELD_STEPS - 1

    def held(self) -> None:
        """A needed the step for itself."""
        self._held = (self._held + 1) % HELD_STEPS

    def allows(self, tokens_of_a: int, pressed: bool) -> bool:
        """Whether B may add its tokens to a step with these of A; `pressed`: A needs it for
        itself."""
        if pressed and tokens_of_a:
            self.held()
            return self._held == 0
        if not tokens_of_a:
            return True
        self._held = 0
        paid = SHARE * self._drafter.step_ms(tokens_of_a)
        self._owed_ms = max(self._owed_ms - paid, -paid)
        return self._owed_ms <= 0.0

    def took(self, tokens_of_a: int, tokens_of_b: int) -> None:
        """B added so many tokens to that step."""
        alone = self._drafter.step_ms(tokens_of_a)
        self._owed_ms += max(self._drafter.step_ms(tokens_of_a + tokens_of_b) - alone, 0.0)
