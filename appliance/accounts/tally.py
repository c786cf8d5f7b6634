"""What one key or one tenant has used, and what it may."""

from dataclasses import dataclass, field

from appliance.accounts.keyrow import TENANT
from appliance.accounts.limits import NONE, Limits
from appliance.accounts.window import Window


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks, and what it and its tenant may use."""

    key_id: str
    """Empty: an open loopback request without a key."""
    key_name: str
    tenant: str
    key_limits: Limits = NONE
    tenant_limits: Limits = NONE


NOBODY = Holder("", "", TENANT)


@dataclass(frozen=True, slots=True)
class Used:
    """What a key or tenant has used; the names are those of its limits."""

    requests_per_min: int = 0
    tokens_per_min: int = 0
    tokens_per_day: int = 0
    cost_per_month: int = 0
    concurrent: int = 0


@dataclass(slots=True)
class Tally:
    """What one key, or one tenant, used."""

    title: str
    """For messages."""
    requests: Window = field(default_factory=Window)
    tokens: Window = field(default_factory=Window)
    running: int = 0
    day_tokens: int = 0
    month_cost: int = 0

    def used(self, now: float) -> Used:
        return Used(
            self.requests.used(now),
            self.tokens.used(now),
            self.day_tokens,
            self.month_cost,
            self.running,
        )


Held = tuple[Tally, Limits]
"""A tally and the limits that hold for it."""
