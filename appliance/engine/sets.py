"""Which LoRA set a step computes with. Pure.

llama.cpp applies adapters to all tokens of a step alike, and taking others costs it some
milliseconds. Rules:
1. A step computes sequences of one set. As long as all have the same there is nothing to decide.
2. A set keeps its turn for `TURN` steps; then come the others, whoever had none for longest first.
   As a step takes every sequence of its set further, all of them get on alike.
3. A set of which only pool B has work computes in every `HELD_STEPS`-th step while A has work; and
   in those in which A could compute nothing.
4. What waits first of either pool counts as work of its set: so the queue goes on in its order. One
   that waits behind another set's may start before it, with what is left when that one has its
   place (`gate`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter

from appliance.engine.commands import LoraSet
from appliance.engine.sequence import Sequence, State
from appliance.engine.turns import HELD_STEPS

TURN = 8
"""Steps. Longer: fewer changes. Shorter: streams flow more evenly, and newcomers start sooner."""


class Sets:
    """The sets of all sequences that wait or run, and whose turn it is."""

    def __init__(self) -> None:
        self.turn: LoraSet = ()
        self._line: dict[LoraSet, int] = {}
        """How many sequences have it; whoever has the turn, or had it last, comes last."""
        self._left = 0
        self._held = 0

    def arrives(self, sequence: Sequence) -> None:
        """It waits from now on."""
        lora = sequence.request.lora
        self._line[lora] = self._line.get(lora, 0) + 1

    def leaves(self, sequence: Sequence) -> None:
        """It has ended."""
        lora = sequence.request.lora
        self._line[lora] -= 1
        if not self._line[lora]:
            del self._line[lora]

    @property
    def mixed(self) -> bool:
        return len(self._line) > 1

    def apart(self, sequence: Sequence) -> bool:
        """It is not one of those whose turn it is."""
        return len(self._line) > 1 and sequence.request.lora != self.turn

    def of(self, running: list[Sequence]) -> list[Sequence]:
        """Those whose turn it is, in the same order."""
        if len(self._line) <= 1:
            return running
        return [sequence for sequence in running if sequence.request.lora == self.turn]

    def others_decode(self, running: list[Sequence]) -> bool:
        """Whether some of pool A decode whose turn it is not: they are not to wait for long."""
        return len(self._line) > 1 and any(
            s.state is State.DECODE and not s.batch and self.apart(s) for s in running
        )

    def turns(self, running: list[Sequence], waiting: list[Sequence]) -> Iterator[None]:
        """Gives the turn to one set after the other, for the caller to stop at the first that has
        something to compute; `waiting` holds A's in front of B's."""
        if not self.mixed:
            yield
            return
        for lora in self._candidates(running, waiting):
            self._give(lora)
            yield

    def _candidates(self, running: list[Sequence], waiting: list[Sequence]) -> list[LoraSet]:
        at = bisect_left(waiting, True, key=attrgetter("batch"))
        a = {s.request.lora for s in (*running, *waiting[: min(at, 1)]) if not s.batch}
        b = {s.request.lora for s in (*running, *waiting[at : at + 1]) if s.batch} - a
        if not a or not b:
            return self._in_turn(a or b)
        self._held = (self._held + 1) % HELD_STEPS
        first, last = self._in_turn(a), self._in_turn(b)
        return last + first if self._held == 0 else first + last

    def _in_turn(self, sets: Iterable[LoraSet]) -> list[LoraSet]:
        """Whoever has the turn keeps it as long as it may."""
        found = [lora for lora in self._line if lora in sets]
        if self._left > 0 and self.turn in found:
            found.remove(self.turn)
            found.insert(0, self.turn)
        return found

    def _give(self, lora: LoraSet) -> None:
        if lora == self.turn and self._left > 0:
            self._left -= 1
            return
        self._line[lora] = self._line.pop(lora)
        self.turn, self._left = lora, TURN - 1
