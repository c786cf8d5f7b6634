"""What is told of one request's answers once they have ended: how likely each is right.

Signals and ends are only kept on the event loop. A verdict is made when somebody asks: the
ledger's thread, which packs the final row, or the event loop, for a client that wants it in the
answer.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from appliance.engine.reports import Finished, StopType
from appliance.forecast.dataset import Signal
from appliance.forecast.quality import Tally
from appliance.forecast.told import Claim

WHOLE: frozenset[StopType] = frozenset({"eos", "limit", "word"})
"""Ends of an answer that somebody may use; of one that was cancelled nothing is told."""


class Judging(Protocol):
    """`forecast.judge.Judge` is the real one."""

    @property
    def claim(self) -> Claim: ...

    def told(
        self, features: Sequence[float], prompt: Sequence[int], answer: Sequence[int], /
    ) -> float | None: ...


class Verdicts:
    """Of one request. A choice that has not ended, or not as an answer does, has none."""

    def __init__(self, judge: Judging, prompt: Sequence[int], n: int) -> None:
        """`prompt`: its token ids."""
        self.claim: Claim = judge.claim
        self.answers: Sequence[Sequence[int]] = ()
        """Token ids of each choice, complete when it has ended: the account keeps them."""
        self._judge, self._prompt = judge, prompt
        self._signals: list[list[Signal]] = [[] for _ in range(n)]
        self._ends: dict[int, tuple[int, bool]] = {}
        """Tokens of each choice that has ended, and whether the model ended it."""
        self._told: dict[int, float | None] = {}
        self._one = threading.Lock()

    def signal(self, choice: int, signal: Signal) -> None:
        self._signals[choice].append(signal)

    def ended(self, end: Finished) -> None:
        tokens = end.counts.completion_tokens
        if end.stop_type in WHOLE and tokens:
            self._ends[end.choice] = tokens, end.stop_type == "eos"

    def of(self, choice: int) -> float | None:
        """0 to 1, of one choice; made once. Any thread."""
        if choice not in self._ends or choice >= len(self.answers):
            return None
        with self._one:
            if choice not in self._told:
                self._told[choice] = self._judge.told(
                    self._features(choice), self._prompt, self.answers[choice]
                )
            return self._told[choice]

    def _features(self, choice: int) -> list[float]:
        tally = Tally()
        for signal in self._signals[choice]:
            tally.add(signal)
        return tally.features(*self._ends[choice])

    def row(self) -> Mapping[str, Any]:
        """For the request's final row: one number a choice. Nothing where there are none."""
        found = [self.of(choice) for choice in range(len(self._signals))]
        if all(one is None for one in found):
            return {}
        return {"confidence_after": found, "claim_after": self.claim}
