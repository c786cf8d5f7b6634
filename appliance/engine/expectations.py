"""What each sequence is expected to generate: by its own table, else by that for all, else as much
as it may."""

from appliance.engine.commands import Steer
from appliance.engine.expectation import Expectation, read
from appliance.engine.sequence import Sequence

PROMPT_COST = 0.5
"""What computing a prompt token costs, in generated tokens: 0.35 ms on two cores, where a generated
one costs 0.5 ms in a step of sixteen and 3 ms alone."""
RISK = 0.1
"""Weight, in the cost of a request, of how long it becomes in its worst tenth."""
BUDGET_SLACK = 3
"""Tokens by which an answer may miss its budget (docs/contract.md)."""
EVERY = 8
"""Tokens for which a quantile is kept: tables are no finer."""


class Expectations:
    """Reads the tables of sequences as the daemon steers it to."""

    def __init__(self) -> None:
        self._of_all: Expectation | None = None
        self._read = Steer().expected
        self._own = False
        self._tau = Steer().tau
        self._version = 0

    def steer(self, steer: Steer) -> None:
        """`steer` is sane (`pools.sane`)."""
        if steer.expected != self._read:
            self._read, self._of_all = steer.expected, read(steer.expected)
        self._own = steer.forecast
        self._tau = steer.tau
        self._version += 1

    def remaining(self, sequence: Sequence) -> int:
        """The quantile of the tokens that it still generates; 1 at least."""
        version, until, length = sequence.reach
        generated = sequence.generated
        if version != self._version or generated >= until:
            length = generated + self._quantile(sequence, generated)
            sequence.reach = (self._version, generated + EVERY, length)
        return max(length - generated, 1)

    def cost(self, sequence: Sequence) -> float:
        """What it still takes, in generated tokens, prompt and tokens to compute again included."""
        generated, cap = sequence.generated, _cap(sequence)
        table = self._table(sequence, generated)
        compute = PROMPT_COST * sequence.pending
        if table is None:
            return compute + cap - generated
        worst = table.remaining_worst(generated, cap)
        return compute + table.remaining(generated, cap) + RISK * worst

    def _quantile(self, sequence: Sequence, generated: int) -> int:
        cap = _cap(sequence)
        table = self._table(sequence, generated)
        if table is None:
            return max(cap - generated, 1)
        return table.remaining_quantile(generated, self._tau, cap)

    def _table(self, sequence: Sequence, generated: int) -> Expectation | None:
        """One that the sequence has not outlived; none where its length is given."""
        if sequence.request.forced or sequence.request.sampling.ignore_eos:
            return None
        if sequence.told is not None:
            sequence.table, sequence.told = read(sequence.told), None
        for table in (sequence.table if self._own else None, self._of_all):
            if table is not None and table.knows(generated):
                return table
        return None


def _cap(sequence: Sequence) -> int:
    """The most tokens that it can have in all."""
    request = sequence.request
    if request.budget is None or request.budget.mode == "soft":
        return request.max_tokens
    return min(request.max_tokens, request.budget.tokens + BUDGET_SLACK)


def served(sequence: Sequence) -> float:
    """What it has cost so far, in generated tokens."""
    return PROMPT_COST * (sequence.n_prompt - sequence.cached_tokens) + sequence.generated
