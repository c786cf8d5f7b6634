"""Adds drafts to the tokens that a step decodes: one lookup per running sequence, one drafter."""

from appliance.engine.drafts import Drafter, Lookup
from appliance.engine.kv import KvPool
from appliance.engine.landing import LEAD
from appliance.engine.plan import Chunk
from appliance.engine.sequence import Sequence


class Drafting:
    """Takes from `pool` the cells of what it adds."""

    def __init__(self, drafter: Drafter, pool: KvPool) -> None:
        self._drafter = drafter
        self._pool = pool
        self._lookups: dict[int, Lookup] = {}

    def add(self, chunks: list[Chunk], most: int) -> None:
        """Replaces chunks by such with drafts, as long as that should pay, cells are free and the
        step has fewer than `most` tokens."""
        drafter = self._drafter
        total, expected = len(chunks), float(len(chunks))
        needed = drafter.needed(total, expected)
        for i, chunk in enumerate(chunks):
            lookup = self._lookups.get(chunk.sequence.seq_id) or self._begin(chunk.sequence)
            if drafter.chance(lookup.run) <= needed:
                continue  # whatever it would propose
            limit = min(self._limit(chunk.sequence), most - total)
            proposal = lookup.propose(limit) if limit > 0 else []
            draft = tuple(proposal[: drafter.worth(lookup.run, len(proposal), total, expected)])
            if draft:
                chunks[i] = self._drafted(chunk, draft)
                total, expected = (
                    total + len(draft),
                    expected + drafter.gain(lookup.run, len(draft)),
                )
                needed = drafter.needed(total, expected)

    def observe(self, sequence: Sequence, proposed: int, accepted: int) -> None:
        """How a proposal fared; feeds what is proposed next."""
        lookup = self._lookups.get(sequence.seq_id)
        if lookup is None:
            return
        self._drafter.observe_draft(lookup.run, proposed, accepted)
        lookup.run = lookup.run + accepted if accepted == proposed else 0

    def forget(self, sequence: Sequence) -> None:
        """It no longer runs."""
        self._lookups.pop(sequence.seq_id, None)

    def _begin(self, sequence: Sequence) -> Lookup:
        lookup = self._lookups[sequence.seq_id] = Lookup(sequence.tokens)
        return lookup

    def _limit(self, sequence: Sequence) -> int:
        """The most tokens that may be guessed for it."""
        request = sequence.request
        if request.exclusive or request.forced:
            return 0
        straight = request.max_tokens
        if request.budget is not None:  # what is tried and taken back is never drafted
            straight = min(straight, request.budget.tokens - LEAD)
        return min(
            self._drafter.limit,
            straight - sequence.generated - 1,
            self._pool.free,
            self._pool.total - len(sequence.tokens),
        )

    def _drafted(self, chunk: Chunk, draft: tuple[int, ...]) -> Chunk:
        sequence, tokens = chunk.sequence, chunk.tokens + draft
        sequence.cells += self._pool.take(len(draft), batch=sequence.batch)
        sequence.exclusive = False
        return Chunk(sequence, chunk.start, tokens, len(tokens), draft)
