"""Whether a request fits into what its key and its tenant may still use. Pure."""

import math
from datetime import date, timedelta

from appliance.accounts.limits import RANKS, Limits, Tier, money
from appliance.accounts.tally import Held, Holder, Tally
from appliance.accounts.window import Window
from appliance.errors import ApiError, Forbidden, Overloaded

TURN_S = 1.0
"""When to come again for one of the places that running requests hold."""


class Exhausted(ApiError):
    """Waiting does not help soon. Named as OpenAI names it; SDKs must not try again."""

    status = 429
    type = "insufficient_quota"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="insufficient_quota", headers={"x-should-retry": "false"})


class TooLargeForMinute(ApiError):
    """The prompt alone is more than a whole minute allows."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="rate_limit_exceeded", headers={"x-should-retry": "false"})


def allowed_tier(holder: Holder, asked: str | None) -> Tier:
    """The tier of the request: what it asked for, or the best that it may have up to "default".
    Raises Forbidden."""
    ceiling: Tier = "priority"
    for limits in (holder.key_limits, holder.tenant_limits):
        if limits.priority is not None and RANKS[limits.priority] < RANKS[ceiling]:
            ceiling = limits.priority
    if asked in (None, "auto"):
        return "flex" if ceiling == "flex" else "default"
    tier: Tier = "priority" if asked == "priority" else "flex" if asked == "flex" else "default"
    if RANKS[tier] <= RANKS[ceiling]:
        return tier
    raise Forbidden(
        f"service_tier: the key {holder.key_name!r} may ask for {ceiling!r} at most, not for "
        f"{asked!r}: leave service_tier out, or have the operator raise the key's priority",
        param="service_tier",
        code="tier_not_allowed",
    )


def check_request(held: tuple[Held, ...], now: float) -> None:
    """One more HTTP request. Raises Overloaded."""
    _raise_worst([_request_fault(tally, limits, now) for tally, limits in held])


def check_prompt(held: tuple[Held, ...], prompt_tokens: int, day: int, now: float) -> None:
    """One more prompt. Raises Overloaded, Exhausted, TooLargeForMinute."""
    for tally, limits in held:
        _raise_exhausted(tally, limits, prompt_tokens, day)
    _raise_worst([_fault(tally, limits, prompt_tokens, now) for tally, limits in held])


def _request_fault(tally: Tally, limits: Limits, now: float) -> Overloaded | None:
    limit = limits.requests_per_min
    if limit is None or (used := tally.requests.used(now)) < limit:
        return None
    wait = tally.requests.wait(used + 1 - limit, now)
    return _too_fast(f"{tally.title} may send {limit} requests a minute", wait)


def _fault(tally: Tally, limits: Limits, prompt_tokens: int, now: float) -> Overloaded | None:
    """What waiting helps against."""
    if limits.concurrent is not None and tally.running >= limits.concurrent:
        return _too_fast(
            f"{tally.title} may have {limits.concurrent} requests running or waiting at a time",
            TURN_S,
        )
    limit, used = limits.tokens_per_min, tally.tokens.used(now)
    if limit is None or used + max(1, prompt_tokens) <= limit:
        return None
    wait = tally.tokens.wait(used + max(1, prompt_tokens) - limit, now)
    return _too_fast(
        f"{tally.title} may use {limit} tokens a minute and has used {used}; this prompt has "
        f"{prompt_tokens}",
        wait,
    )


def _raise_exhausted(tally: Tally, limits: Limits, prompt_tokens: int, day: int) -> None:
    """What waiting does not help against, or not soon."""
    if limits.cost_per_month is not None and tally.month_cost >= limits.cost_per_month:
        raise Exhausted(
            f"{tally.title} has used {money(tally.month_cost)} of {money(limits.cost_per_month)} "
            f"this month; it begins anew at {_month_end(day)} UTC. The operator can raise it"
        )
    limit = limits.tokens_per_day
    if limit is not None and tally.day_tokens + max(1, prompt_tokens) > limit:
        raise Exhausted(
            f"{tally.title} has used {tally.day_tokens} of {limit} tokens today, and this prompt "
            f"has {prompt_tokens}; the day ends at {_midnight(day + 1)} UTC. The operator can "
            "raise it"
        )
    if limits.tokens_per_min is not None and prompt_tokens > limits.tokens_per_min:
        raise TooLargeForMinute(
            f"this prompt has {prompt_tokens} tokens, and {tally.title} may use "
            f"{limits.tokens_per_min} a minute: shorten it, or have the operator raise the limit"
        )


def _too_fast(what: str, wait: float) -> Overloaded:
    seconds = max(1, math.ceil(wait))
    return Overloaded(
        f"{what}: try again in {seconds} s", retry_after=seconds, code="rate_limit_exceeded"
    )


def _raise_worst(faults: list[Overloaded | None]) -> None:
    """The fault that takes longest to go away."""
    found = [fault for fault in faults if fault is not None]
    if found:
        raise max(found, key=lambda fault: int(fault.headers["Retry-After"]))


def _midnight(day: int) -> str:
    return f"{date(1970, 1, 1) + timedelta(days=day)} 00:00"


def _month_end(day: int) -> str:
    first = (date(1970, 1, 1) + timedelta(days=day)).replace(day=1)
    return f"{(first + timedelta(days=32)).replace(day=1)} 00:00"


def rate_headers(held: tuple[Held, ...], now: float) -> dict[str, str]:
    """OpenAI's headers: for requests and for tokens, of key and tenant the one with less left."""
    found: dict[str, str] = {}
    for kind in ("requests", "tokens"):
        rates: list[tuple[int, int, Window]] = []
        for tally, limits in held:
            allowed: int | None = getattr(limits, f"{kind}_per_min")
            window: Window = getattr(tally, kind)
            if allowed is not None:
                rates.append((max(0, allowed - window.used(now)), allowed, window))
        if rates:
            left, limit, window = min(rates, key=lambda rate: rate[:2])
            found[f"x-ratelimit-limit-{kind}"] = str(limit)
            found[f"x-ratelimit-remaining-{kind}"] = str(left)
            found[f"x-ratelimit-reset-{kind}"] = duration(window.empty_in(now))
    return found


def duration(seconds: float) -> str:
    """As OpenAI writes it: `0s`, `120ms`, `8.64s`, `6m0s`."""
    ms = max(0, math.ceil(seconds * 1000))
    minutes, rest = divmod(ms, 60_000)
    if not minutes and 0 < rest < 1000:
        return f"{rest}ms"
    text = f"{rest / 1000:g}s"
    return f"{minutes}m{text}" if minutes else text
