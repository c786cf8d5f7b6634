"""The frame `rows`: live requests, running ones first, and what each key does."""

from collections import Counter
from collections.abc import Mapping, Sequence

from appliance.accounts.keys import Key
from appliance.api import prospects
from appliance.api.box import Aboard, Box
from appliance.api.ports import Ticket
from appliance.engine.commands import Submit
from appliance.engine.reports import SlotState
from appliance.frames import KeyRow, RequestRow, Rows
from appliance.outlook import Band, Outlook

MOST_REQUESTS, MOST_KEYS = 200, 20
LOOPBACK = "-"
"""In place of a key's name: an open request from this machine."""
_NOBODY = Aboard("", "", "", "")


def rows_of(box: Box, keys: Sequence[Key], now: float, wall: float) -> Rows:
    """The frame of this moment. `keys`: names and limits, which may be some seconds old."""
    tickets = list(box.supervisor.tickets.values())
    running = [ticket for ticket in tickets if ticket.started_at is not None]
    waiting = list(box.supervisor.waiting())
    running.sort(key=lambda ticket: ticket.submitted_at)
    slots = _slots(box)
    shown = [_row(box, ticket, slots.get(ticket.id, []), 0, now) for ticket in running]
    left = max(0, MOST_REQUESTS - len(shown))
    shown += [_row(box, ticket, [], place, now) for place, ticket in enumerate(waiting[:left])]
    return Rows(
        total=len(tickets),
        requests=tuple(shown[:MOST_REQUESTS]),
        keys=key_rows(box, keys, running, waiting, now, wall),
    )


def _slots(box: Box) -> Mapping[str, list[SlotState]]:
    found: dict[str, list[SlotState]] = {}
    for slot in box.supervisor.snapshot.slots:
        found.setdefault(slot.request, []).append(slot)
    return found


def _row(box: Box, ticket: Ticket, slots: list[SlotState], place: int, now: float) -> RequestRow:
    submit, who = ticket.request, box.aboard.get(ticket.id, _NOBODY)
    outlook = who.outlook
    band = outlook.now if outlook is not None else None
    started, first = ticket.started_at, ticket.first_at if ticket.request.stream else None
    return RequestRow(
        id=ticket.id,
        key=who.key_name or LOOPBACK,
        tenant=who.tenant,
        scenario=who.scenario,
        state=_state(ticket, slots),
        pool=submit.pool.upper(),
        tier=who.tier,
        pos=place,
        flags=_flags(submit),
        prompt_tok=len(submit.prompt),
        cached_tok=slots[0].cached_tokens if slots else None,
        gen_tok=max(ticket.generated, sum(slot.generated for slot in slots)),
        limit_tok=submit.max_tokens * submit.n,
        wait_ms=_ms((started if started is not None else now) - ticket.submitted_at),
        prefill_ms=_ms(first - started) if first is not None and started is not None else None,
        run_ms=_ms(now - started) if started is not None else None,
        fc=outlook.kind if outlook is not None else "",
        p10_tok=band.p10 if band is not None else None,
        p50_tok=band.p50 if band is not None else None,
        p90_tok=band.p90 if band is not None else None,
        first_p50_tok=outlook.first.p50 if outlook is not None else None,
        cost=_cost(box, submit, band),
        eta_ms=_eta_ms(box, ticket, outlook),
    )


def _cost(box: Box, submit: Submit, band: Band | None) -> float | None:
    """At the median; None where nothing is known, or no prices are set."""
    rates = prospects.rates_of(box.config.cost)
    if band is None or not rates.configured:
        return None
    return prospects.cost(rates, box.forecasts.pace, len(submit.prompt), band.p50)


def _eta_ms(box: Box, ticket: Ticket, outlook: Outlook | None) -> int | None:
    """Until it has ended, of one that runs; None where that cannot be told."""
    if outlook is None:
        return None
    return prospects.left_ms(box.supervisor.snapshot.stats, outlook, ticket)


def _state(ticket: Ticket, slots: list[SlotState]) -> str:
    if ticket.started_at is None:
        return "waiting"
    if ticket.generated or any(slot.generated for slot in slots):
        return "decode"
    return "prefill" if all(slot.state == "prefill" for slot in slots) else "decode"


def _flags(submit: Submit) -> tuple[str, ...]:
    given = {
        "stream": submit.stream,
        "schema": submit.grammar is not None,
        "exclusive": submit.exclusive,
        "choices": submit.n > 1,
        "replay": bool(submit.forced),
    }
    return tuple(name for name, on in given.items() if on)


def key_rows(
    box: Box,
    keys: Sequence[Key],
    running: Sequence[Ticket],
    waiting: Sequence[Ticket],
    now: float,
    wall: float,
) -> tuple[KeyRow, ...]:
    """Those with the most tokens in the last minute first; `share_pct` is of all keys' tokens."""
    runs = Counter(ticket.request.scope for ticket in running)
    waits = Counter(ticket.request.scope for ticket in waiting)
    used = {
        id: found.tokens_per_min
        for id, found in box.quotas.keys_used(now, wall).items()
        if found.tokens_per_min or runs[id] or waits[id]
    }
    total = sum(used.values()) or 1
    known = {key.id: key for key in keys}
    first = sorted(used, key=lambda id: (-used[id], -runs[id] - waits[id], id))[:MOST_KEYS]
    return tuple(
        KeyRow(
            key=known[id].name if id in known else id or LOOPBACK,
            tenant=known[id].tenant if id in known else "",
            run=runs[id],
            wait=waits[id],
            tok_min=used[id],
            limit_min=known[id].limits.tokens_per_min if id in known else None,
            share_pct=round(100 * used[id] / total, 1),
        )
        for id in first
    )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
