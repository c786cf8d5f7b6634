"""What a request will cost and when it will be done, from its forecast and the box's own pace.

Estimates all of them; where the box has not generated a token yet there is no pace to tell from.
"""

from dataclasses import dataclass
from functools import cache

from appliance.accounts.cost import NANO, Rates, cost_of
from appliance.accounts.pace import Pace
from appliance.api.box import Box
from appliance.api.ports import Ticket
from appliance.config import CostConfig
from appliance.engine.commands import Pool
from appliance.engine.expectations import PROMPT_COST
from appliance.engine.reports import Stats
from appliance.eta import starts_in
from appliance.outlook import Band, Outlook


@cache
def rates_of(config: CostConfig) -> Rates:
    """The box's standard rates."""
    return Rates.of(config)


def cost(rates: Rates, pace: Pace, prompt_tokens: int, tokens: int) -> float | None:
    """Of a request at the standard rates, in the currency, none of its prompt being cached.
    None: no pace is known yet, and prices are set."""
    if not rates.configured:
        return 0.0
    if not pace.known:
        return None
    found = cost_of(
        rates,
        prefill_ns=pace.prefill(prompt_tokens),
        decode_ns=pace.decode(tokens),
        cached_tokens=0,
        prefill_tokens=prompt_tokens,
    )
    return found.total / NANO


def decode_s(stats: Stats) -> float | None:
    """Seconds from one token of an answer to the next, as they were lately on the whole."""
    return stats.predicted_seconds / stats.predicted_tokens if stats.predicted_tokens else None


def prefill_s(stats: Stats, tokens: int) -> float | None:
    """Seconds to compute a prompt."""
    return tokens * stats.prompt_seconds / stats.prompt_tokens if stats.prompt_tokens else None


def takes_s(stats: Stats, prompt_tokens: int, tokens: int) -> float | None:
    """Seconds from the start of an answer to its end."""
    prompt, each = prefill_s(stats, prompt_tokens), decode_s(stats)
    return prompt + each * tokens if prompt is not None and each is not None else None


def left_ms(stats: Stats, outlook: Outlook, ticket: Ticket) -> int | None:
    """Milliseconds until a request that runs has ended, by the longest of its choices."""
    each = decode_s(stats)
    if each is None or ticket.started_at is None:
        return None
    return round(1000 * each * max(outlook.left(choice) for choice in range(outlook.n)))


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A request that might come now."""

    priority: int
    pool: Pool
    cost: float
    """What it is expected to take, in generated tokens: `expected_cost`."""


def expected_cost(prompt_tokens: int, answers: Band) -> float:
    """What the queue goes by, nearly: the engine knows what of a prompt is cached, too."""
    return PROMPT_COST * prompt_tokens + answers.mean


def _before(box: Box, newcomer: Newcomer) -> list[Ticket]:
    """Those that wait and would start before it, in their order: pool A before B, then by priority,
    then whoever costs no more, or came first where there are no forecasts."""
    by_cost = box.steering().order == "expected-cost"

    def first(ticket: Ticket) -> bool:
        submit, outlook = ticket.request, _outlook(box, ticket)
        rank, mine = (submit.pool, submit.priority), (newcomer.pool, newcomer.priority)
        if rank != mine:
            return rank < mine
        if not by_cost or outlook is None:
            return True
        return expected_cost(len(submit.prompt), outlook.first) <= newcomer.cost

    return [ticket for ticket in box.supervisor.waiting() if first(ticket)]


def position(box: Box, newcomer: Newcomer) -> int:
    """Requests that would start before one that came now."""
    queue = box.supervisor.queue
    places = box.config.engine.max_sequences
    if not queue.waiting and queue.running < places and not box.supervisor.snapshot.paused:
        return 0
    return len(_before(box, newcomer))


def wait_s(box: Box, newcomer: Newcomer) -> float | None:
    """Seconds until a request that came now would start; None where that cannot be told."""
    stats = box.supervisor.snapshot.stats
    each = decode_s(stats)
    if box.supervisor.snapshot.paused:
        return None
    running: list[float] = []
    for ticket in box.supervisor.tickets.values():
        if (outlook := _outlook(box, ticket)) is not None and ticket.started_at is not None:
            running += [(each or 0.0) * outlook.left(c) for c in range(outlook.n)]
    ahead: list[float] = []
    for ticket in _before(box, newcomer):
        if (outlook := _outlook(box, ticket)) is not None:
            takes = takes_s(stats, len(ticket.request.prompt), outlook.forecast.p50) or 0.0
            ahead += [takes] * outlook.n
    places = box.config.engine.max_sequences
    if each is None and len(running) + len(ahead) >= places:
        return None
    return starts_in(running, ahead, places)


def _outlook(box: Box, ticket: Ticket) -> Outlook | None:
    aboard = box.aboard.get(ticket.id)
    return aboard.outlook if aboard is not None else None
