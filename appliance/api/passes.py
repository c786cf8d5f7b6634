"""One HTTP request before the quotas: counted when it knocks, let in with its prompts, charged as
tokens arrive, and out when the last of its final rows is made."""

import time
from collections.abc import Sequence

from appliance.accounts.fitting import rate_headers
from appliance.accounts.limits import Tier
from appliance.accounts.quotas import Quotas
from appliance.accounts.tally import Holder
from appliance.engine.reports import Delta, Event
from appliance.ledger.rows import RequestRow
from appliance.ticket import Account, Relay


class Pass:
    """Belongs to the event loop, as the quotas do."""

    __slots__ = ("_charged", "_open", "_prompts", "_quotas", "_visit")

    def __init__(self, quotas: Quotas, holder: Holder) -> None:
        self._quotas = quotas
        self._visit = quotas.visit(holder)
        self._prompts: Sequence[int] = ()
        self._open = 0
        self._charged: list[int] = []
        """Of the tokens of each prompt's answers."""

    @property
    def tier(self) -> Tier:
        """What it gets, once it was let in."""
        return self._visit.tier

    def knock(self) -> None:
        """Counts as a request. Raises Overloaded."""
        self._quotas.knock(self._visit, time.monotonic())

    def enter(self, prompts: Sequence[int], tier: str | None) -> None:
        """Lets it in with prompts of so many tokens, as one request. `closed` must follow for each
        of them that is submitted, and `cut` when not all are. Raises Forbidden, Overloaded,
        Exhausted, TooLargeForMinute."""
        self._quotas.admit(self._visit, sum(prompts), tier, time.monotonic(), time.time())
        self._prompts, self._open = prompts, len(prompts)
        self._charged = [0] * len(prompts)

    def metered(self, account: Account, part: int) -> Account:
        """`account`, with the tokens of prompt `part` charged as they arrive."""
        return _Metered(account, self, part)

    def arrived(self, tokens: int, part: int) -> None:
        self._charged[part] += tokens
        self.charge(tokens)

    def closed(self, row: RequestRow) -> None:
        """The final row of one of its prompts, which has the last word on its tokens."""
        cost = row.costs.total if row.costs is not None else 0
        self.charge(row.completion_tokens - self._charged[row.part], cost)
        self._leave(1)

    def charge(self, tokens: int, cost: int = 0) -> None:
        """Tokens beside those of the prompts it was let in with."""
        self._quotas.charge(self._visit, tokens, cost, time.monotonic(), time.time())

    def cut(self, submitted: int) -> None:
        """No more than so many of its prompts were submitted: the others were not used."""
        never = self._prompts[submitted:]
        self._quotas.give_back(self._visit, sum(never))
        self._leave(len(never))

    def _leave(self, prompts: int) -> None:
        self._open -= prompts
        if self._open <= 0:
            self._quotas.release(self._visit)

    def headers(self) -> dict[str, str]:
        """x-ratelimit-*, as things stand."""
        return rate_headers(self._visit.tallies, time.monotonic())


class _Metered(Relay):
    """A `ticket.Account` on the way to its quotas."""

    __slots__ = ("_part", "_pass")

    def __init__(self, account: Account, of: Pass, part: int) -> None:
        super().__init__(account)
        self._pass = of
        self._part = part

    def event(self, event: Event) -> None:
        if isinstance(event, Delta) and event.token_ids:
            self._pass.arrived(len(event.token_ids), self._part)
        self._account.event(event)
