"""What each key and each tenant has used, and whether one more request fits. Pure: `now` (monotonic
seconds) and `wall` (since 1970) are arguments. Belongs to the event loop.

Rules:
1. Counts are exact, never estimates. A prompt counts when its request is let in, its answer as it
   comes to be.
2. A request is let in while what was used and its own prompt fit. What runs is never cut, so the
   last one may go over by its answer; that counts against what comes next.
3. Limits hold for whatever is let in after they were set.
4. Days and months are UTC's. A clock that is set back opens no new one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from appliance.accounts.fitting import allowed_tier, check_prompt, check_request
from appliance.accounts.limits import Tier
from appliance.accounts.tally import Held, Holder, Tally, Used
from appliance.errors import ApiError

DAY_S = 86_400
MONTH_S = 31 * DAY_S


@dataclass(frozen=True, slots=True)
class Past:
    """What the ledger says a key used on a day."""

    key_id: str
    tenant: str
    day: int
    """Since 1970, UTC."""
    tokens: int
    cost: int


class Period:
    """A day or a month. Goes on at a clock that was set back: until the clock has caught up, or
    as much time as the longest period has has really passed."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._since = -math.inf
        self.number = -1

    def turn(self, number: int, now: float) -> bool:
        """Whether another period began."""
        stale = number != self.number and now - self._since >= self._longest_s
        if number <= self.number and not stale:
            return False
        self.number, self._since = number, now
        return True


@dataclass(slots=True)
class Visit:
    """One HTTP request, from its arrival to its end."""

    holder: Holder
    tallies: tuple[Held, ...]
    """The key's, then the tenant's."""
    knocked: tuple[int, ...] = ()
    """The ticks under which it counts as a request."""
    tier: Tier = "default"
    inside: bool = False
    tokens: int = 0
    """Charged so far, prompt included."""
    entered: tuple[int, ...] = ()
    """The ticks under which its prompt counts."""
    day: int = -1
    """The day under which `tokens` are counted."""


class Quotas:
    """All keys and tenants of the box."""

    def __init__(self) -> None:
        self._keys: dict[str, Tally] = {}
        self._tenants: dict[str, Tally] = {}
        self._day = Period(DAY_S)
        self._month = Period(MONTH_S)
        self._ahead: list[Past] = []
        """Of days that a clock set back since has yet to reach again."""

    def load(self, past: Iterable[Past], now: float, wall: float) -> None:
        """Goes on from what the ledger says of this month and later, before the first request.
        `wall`: the clock, or the end of the ledger's last request where that is later."""
        self._turn(now, wall)
        for entry in past:
            for tally in self._both(entry.key_id, "", entry.tenant):
                if entry.day == self._day.number:
                    tally.day_tokens += entry.tokens
                if month_of(entry.day) == self._month.number:
                    tally.month_cost += entry.cost
            if entry.day > self._day.number:
                self._ahead.append(entry)

    def visit(self, holder: Holder) -> Visit:
        """A request that has come and does not count yet."""
        key, tenant = self._both(holder.key_id, holder.key_name, holder.tenant)
        return Visit(holder, ((key, holder.key_limits), (tenant, holder.tenant_limits)))

    def knock(self, visit: Visit, now: float) -> None:
        """Counts an HTTP request, whatever becomes of it. Raises Overloaded, and counts nothing,
        when it is one too many."""
        check_request(visit.tallies, now)
        visit.knocked = tuple(tally.requests.add(1, now) for tally, _ in visit.tallies)

    def admit(
        self, visit: Visit, prompt_tokens: int, asked: str | None, now: float, wall: float
    ) -> None:
        """Lets the request in with its prompt, under the tier it gets. Raises Forbidden for a tier
        above its limit; Overloaded, Exhausted and TooLargeForMinute, after which it does not count
        as a request either."""
        assert not visit.inside, "a request is let in once"
        self._turn(now, wall)
        visit.tier = allowed_tier(visit.holder, asked)
        try:
            check_prompt(visit.tallies, prompt_tokens, self._day.number, now)
        except ApiError:
            for (tally, _), tick in zip(visit.tallies, visit.knocked, strict=False):
                tally.requests.take_back(1, tick)
            raise
        self._enter(visit, prompt_tokens, now)

    def _enter(self, visit: Visit, prompt_tokens: int, now: float) -> None:
        visit.inside, visit.tokens, visit.day = True, prompt_tokens, self._day.number
        for tally, _ in visit.tallies:
            tally.running += 1
            tally.day_tokens += prompt_tokens
        visit.entered = tuple(tally.tokens.add(prompt_tokens, now) for tally, _ in visit.tallies)

    def give_back(self, visit: Visit, prompt_tokens: int) -> None:
        """So much of its prompt never reached the engine."""
        for (tally, _), tick in zip(visit.tallies, visit.entered, strict=True):
            tally.tokens.take_back(prompt_tokens, tick)
            if visit.day == self._day.number:
                tally.day_tokens -= prompt_tokens
        visit.tokens -= prompt_tokens

    def charge(self, visit: Visit, tokens: int, cost: int, now: float, wall: float) -> None:
        """Tokens that came to be for a request that was let in, and what they cost."""
        self._turn(now, wall)
        self._carry(visit)
        visit.tokens += tokens
        for tally, _ in visit.tallies:
            tally.day_tokens += tokens
            tally.month_cost += cost
            tally.tokens.add(tokens, now)

    def release(self, visit: Visit) -> None:
        """The request has ended. Once; again does nothing."""
        if visit.inside:
            visit.inside = False
            for tally, _ in visit.tallies:
                tally.running -= 1

    def _carry(self, visit: Visit) -> None:
        """The ledger counts a request wholly on the day on which it ends."""
        if visit.day == self._day.number:
            return
        visit.day = self._day.number
        for tally, _ in visit.tallies:
            tally.day_tokens += visit.tokens

    def key_used(self, key_id: str, now: float, wall: float) -> Used:
        self._turn(now, wall)
        found = self._keys.get(key_id)
        return found.used(now) if found is not None else Used()

    def keys_used(self, now: float, wall: float) -> dict[str, Used]:
        """All keys that used anything since the box started, by id."""
        self._turn(now, wall)
        return {key_id: tally.used(now) for key_id, tally in self._keys.items()}

    def tenant_used(self, tenant: str, now: float, wall: float) -> Used:
        self._turn(now, wall)
        found = self._tenants.get(tenant)
        return found.used(now) if found is not None else Used()

    def _turn(self, now: float, wall: float) -> None:
        day = int(wall // DAY_S)
        if not self._day.turn(day, now):
            return
        new_month = self._month.turn(month_of(day), now)
        for tally in (*self._keys.values(), *self._tenants.values()):
            tally.day_tokens = 0
            if new_month:
                tally.month_cost = 0
        for entry in self._ahead:
            for tally in (self._keys[entry.key_id], self._tenants[entry.tenant]):
                if entry.day == day:
                    tally.day_tokens += entry.tokens
                if new_month and month_of(entry.day) == month_of(day):
                    tally.month_cost += entry.cost

    def _both(self, key_id: str, key_name: str, tenant: str) -> tuple[Tally, Tally]:
        key = self._keys.get(key_id)
        if key is None:
            key = self._keys[key_id] = Tally("")
        if key_name:
            key.title = f"the key {key_name!r}"
        of_tenant = self._tenants.get(tenant)
        if of_tenant is None:
            of_tenant = self._tenants[tenant] = Tally(f"the tenant {tenant!r}")
        return key, of_tenant


def month_of(day: int) -> int:
    """The month of a day since 1970, as a number that rises by one each month."""
    found = date(1970, 1, 1) + timedelta(days=day)
    return found.year * 12 + found.month
