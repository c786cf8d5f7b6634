"""In which order those that wait are tried.

Rules, the first one first:
1. The one that was promoted: whoever has waited longest, if that is longer than `max_wait_s`; of
   pool B only while none of it runs, and the last one that was is as long ago. One at a time is:
   this helps those whom the other rules would starve and changes little else.
2. Pool A before pool B.
3. Priority.
4. A key that was served more than another one that waits goes after it (`fair`).
5. Within all that: whoever waits longer than `max_wait_s`, in order of arrival; then the smallest
   expected cost, less the ageing for each step waited; or the order of arrival, if the policy says
   so or no forecast can be relied on.
6. The ageing is `ageing` tokens a step, but all that wait in a pool are together forgiven no more
   than all that run in it generate. In a long queue everybody waits long: what is forgiven for that
   would outweigh every cost soon, and leave the order of arrival.

The ageing is the same for all that wait in a pool, so the queue can be kept sorted. What changes
with time is looked at every `ARRANGE_S`.
"""

from collections import deque
from math import inf
from operator import attrgetter
from random import Random

from appliance.engine.commands import Pool, Steer
from appliance.engine.expectations import Expectations, served
from appliance.engine.fair import Fairness, Key
from appliance.engine.sequence import Rank, Sequence, State

ARRANGE_S = 0.05
MANY = 256
"""With so many more that wait the queue is sorted that much more seldom."""
PLACEBO_COSTS = 64
"""Costs of others among which `shuffled` draws."""

rank_of = attrgetter("rank")


class Order:
    """Gives each waiting sequence its rank."""

    def __init__(self, expectations: Expectations) -> None:
        self.turns = 0
        """Steps planned so far: a running sequence makes a token in each."""
        self._expectations = expectations
        self._fair = Fairness()
        self._steer: Steer | None = None
        self._promoted: Sequence | None = None
        self._batch_promoted = -inf
        """When one of pool B was, last."""
        self._ahead: frozenset[Key] = frozenset()
        self._costs: deque[float] = deque(maxlen=PLACEBO_COSTS)
        self._ageing = {False: 0.0, True: 0.0}
        """Tokens a step; of pool A, and of pool B."""
        self._due = 0.0

    def steer(self, steer: Steer, waiting: list[Sequence]) -> None:
        """`steer` is sane (`pools.sane`)."""
        former, self._steer, self._due = self._steer, steer, 0.0
        self._ageing = dict.fromkeys(self._ageing, steer.ageing)
        if former is None or _scoring(former) != _scoring(steer):
            for sequence in waiting:
                sequence.score = None

    # -- the life of a sequence ------------------------------------------------------------------

    def arrives(self, sequence: Sequence) -> None:
        sequence.arrived_turn = self.turns
        self._fair.arrive(_key(sequence))

    def place(self, sequence: Sequence, now: float) -> None:
        """Ranks it by what is known of it now."""
        sequence.score = None
        sequence.rank = self._rank(sequence, now)

    def starts(self, sequence: Sequence) -> None:
        """Its key is charged what it is expected to cost, once."""
        if self._steer is not None and not sequence.charged:
            sequence.charged = self._expectations.cost(sequence)
            self._fair.charge(_key(sequence), sequence.charged)

    def moves(self, sequence: Sequence, priority: int, pool: Pool) -> None:
        """To another priority and pool; the one that was promoted counts as A's while it lives."""
        self._fair.charge(_key(sequence), -sequence.charged)
        self._fair.leave(_key(sequence))
        sequence.assign(priority, pool)
        if sequence is self._promoted:
            sequence.batch = False
        self._fair.arrive(_key(sequence))
        self._fair.charge(_key(sequence), sequence.charged)

    def leaves(self, sequence: Sequence) -> None:
        """It has ended, and cost what it did."""
        if sequence.charged:
            self._fair.charge(_key(sequence), served(sequence) - sequence.charged)
        self._fair.leave(_key(sequence))

    # -- the queue -------------------------------------------------------------------------------

    def arrange(self, waiting: list[Sequence], running: list[Sequence], now: float) -> None:
        """Sorts the queue anew, if it is time to."""
        steer = self._steer
        if steer is None or now < self._due:
            return
        self._due = now + ARRANGE_S * (1 + len(waiting) // MANY)
        self._ahead = self._fair.ahead(map(_key, waiting)) if steer.fairness else frozenset()
        self._promote(waiting, running, now, now - steer.max_wait_s)
        self._ageing = ageings(steer.ageing, waiting, running)
        for sequence in waiting:
            sequence.rank = self._rank(sequence, now)
        waiting.sort(key=rank_of)

    def _promote(
        self, waiting: list[Sequence], running: list[Sequence], now: float, before: float
    ) -> None:
        """One that has waited since `before`, if there is none that was promoted."""
        if self._promoted is not None and self._promoted.state is not State.FINISHED:
            return
        self._promoted = None
        served = self._batch_promoted > before or any(sequence.batch for sequence in running)
        starving = (s for s in waiting if not (s.batch and served))
        oldest = min(starving, key=attrgetter("order"), default=None)
        if oldest is not None and oldest.times.arrived < before:
            self._promoted = oldest
            if oldest.batch:
                self._batch_promoted = now
            self.moves(oldest, oldest.priority, oldest.pool)

    def _rank(self, sequence: Sequence, now: float) -> Rank:
        late = self._steer is not None and (now - sequence.times.arrived > self._steer.max_wait_s)
        return (
            sequence is not self._promoted,
            sequence.batch,
            sequence.priority,
            _key(sequence) in self._ahead,
            not late,
            0.0 if late else self._score(sequence),
            sequence.order,
        )

    def _score(self, sequence: Sequence) -> float:
        if sequence.score is None:
            sequence.score = self._cost(sequence)
        return sequence.score + self._ageing[sequence.batch] * sequence.arrived_turn

    def _cost(self, sequence: Sequence) -> float:
        steer = self._steer
        if steer is None or steer.policy == "fcfs" or not steer.forecast:
            return 0.0
        cost = self._expectations.cost(sequence)
        if steer.policy == "shuffled":
            self._costs.append(cost)
            cost = Random(sequence.order).choice(self._costs)
        return cost


def ageing(most: float, queued: int, served: int) -> float:
    """Tokens of cost that each of `queued` that wait is forgiven in a step, where `served` run."""
    return min(most, max(served, 1) / max(queued, 1))


def ageings(most: float, waiting: list[Sequence], running: list[Sequence]) -> dict[bool, float]:
    """Of pool A (False) and of pool B (True)."""
    queued, run = (sum([sequence.batch for sequence in each]) for each in (waiting, running))
    return {
        False: ageing(most, len(waiting) - queued, len(running) - run),
        True: ageing(most, queued, run),
    }


def _scoring(steer: Steer) -> tuple[object, ...]:
    """What of it a score depends on."""
    return steer.policy, steer.forecast, steer.expected


def _key(sequence: Sequence) -> Key:
    return sequence.batch, sequence.request.scope
