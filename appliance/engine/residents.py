"""Who is in the cache with which tokens, and whose prefix a newcomer can have.

One tree of prefixes for each scope and LoRA set: requests of different keys never share anything,
and what other adapters computed would be wrong.
"""

from appliance.engine.commands import LoraSet
from appliance.engine.prefix import PrefixTree
from appliance.engine.sequence import Sequence, State


class Residents:
    """The sequences that hold cells, by sequence id."""

    def __init__(self) -> None:
        self._trees: dict[tuple[str, LoraSet], PrefixTree] = {}
        self._residents: dict[int, Sequence] = {}

    def enter(self, sequence: Sequence) -> None:
        """It holds cells from now on, or will in this step. Twice does no harm."""
        self._residents[sequence.seq_id] = sequence

    def leave(self, sequence: Sequence) -> None:
        """It gave up its cells, or is about to."""
        self.forget(sequence)
        self._residents.pop(sequence.seq_id, None)

    def index(self, sequence: Sequence, tokens: tuple[int, ...]) -> None:
        """These are the tokens that it holds, or will once its prompt is computed."""
        if not shares(sequence):
            return
        self.forget(sequence)
        tree = self._trees.setdefault(_tree_of(sequence), PrefixTree())
        tree.insert(sequence.seq_id, tokens)
        sequence.indexed = tokens

    def forget(self, sequence: Sequence) -> None:
        """Its tokens are not to be found any more."""
        if sequence.indexed:
            key = _tree_of(sequence)
            self._trees[key].remove(sequence.seq_id, sequence.indexed)
            if self._trees[key].empty:
                del self._trees[key]
            sequence.indexed = ()

    def reusable(self, sequence: Sequence) -> tuple[Sequence | None, int, int]:
        """The best resident to copy from, how much it holds now, and how much it will hold once
        its own prompt is computed."""
        tree = self._trees.get(_tree_of(sequence))
        if tree is None or not shares(sequence):
            return None, 0, 0
        holders, matched = tree.match(tuple(sequence.tokens))
        most = min(matched, len(sequence.tokens) - 1)
        residents = [self._residents[holder] for holder in holders]
        if not residents or most == 0:
            return None, 0, 0
        best = max(residents, key=lambda s: (min(s.computed, most), s.state is State.FINISHED))
        return best, min(best.computed, most), most


def shares(sequence: Sequence) -> bool:
    """Whether it may reuse cells of others and leave its own for them."""
    return sequence.request.cache_prompt and not sequence.request.exclusive


def _tree_of(sequence: Sequence) -> tuple[str, LoraSet]:
    return sequence.request.scope, sequence.request.lora
