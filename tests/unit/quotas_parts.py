"""Quotas that are asked at a time of their own."""

from datetime import UTC, datetime

import pytest

from appliance.accounts.limits import NONE, Limits
from appliance.accounts.quotas import Quotas, Visit
from appliance.accounts.tally import Holder, Used
from appliance.errors import ApiError

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC).timestamp()


class Clock:
    """Both clocks, which go on together unless a test sets one of them."""

    def __init__(self, wall: float = NOON) -> None:
        self.now = 1000.0
        self.wall = wall

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


class Asking:
    """One key of one tenant, against quotas of its own."""

    def __init__(self, limits: Limits = NONE, tenant: Limits = NONE) -> None:
        self.quotas = Quotas()
        self.clock = Clock()
        self.limits, self.tenant = limits, tenant

    def holder(self, key_id: str = "k_1") -> Holder:
        return Holder(key_id, f"name of {key_id}", "sales", self.limits, self.tenant)

    def knock(self, key_id: str = "k_1") -> Visit:
        visit = self.quotas.visit(self.holder(key_id))
        self.quotas.knock(visit, self.clock.now)
        return visit

    def admit(self, prompt: int, tier: str | None = None, key_id: str = "k_1") -> Visit:
        visit = self.knock(key_id)
        self.quotas.admit(visit, prompt, tier, self.clock.now, self.clock.wall)
        return visit

    def charge(self, visit: Visit, tokens: int, cost: int = 0) -> None:
        self.quotas.charge(visit, tokens, cost, self.clock.now, self.clock.wall)

    def abandon(self, visit: Visit) -> None:
        """Its prompt never reached the engine."""
        self.quotas.give_back(visit, visit.tokens)
        self.quotas.release(visit)

    def whole(self, prompt: int, answer: int, cost: int = 0) -> None:
        """A request that is answered at once."""
        visit = self.admit(prompt)
        self.charge(visit, answer, cost)
        self.quotas.release(visit)

    def used(self, key_id: str = "k_1") -> Used:
        return self.quotas.key_used(key_id, self.clock.now, self.clock.wall)

    def refused(self, prompt: int = 1, tier: str | None = None) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.admit(prompt, tier)
        return caught.value
