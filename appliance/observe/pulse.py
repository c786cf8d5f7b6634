"""What the box has done lately, and in all, since it started: fed where requests pass, read by the
console. Belongs to the event loop. Pure: `now` (monotonic seconds) is an argument.
"""

from dataclasses import dataclass, field

from appliance.observe.forecasthistory import ForecastHistory
from appliance.observe.window import Recent, Spread


@dataclass(slots=True)
class Pulse:
    """Windows of the last minute, and sums that only grow."""

    ttft: Spread = field(default_factory=Spread)
    """Milliseconds, like the next two."""
    between: Spread = field(default_factory=Spread)
    latency: Spread = field(default_factory=Spread)
    refused: Recent = field(default_factory=Recent)
    queue_full: Recent = field(default_factory=Recent)
    """Those of `refused` for want of room in the queue."""
    failed: Recent = field(default_factory=Recent)
    ended: Recent = field(default_factory=Recent)
    """Requests that the engine has done with."""
    forecasts: ForecastHistory = field(default_factory=ForecastHistory)
    """What came of forecasts, of the last thirty days."""
    tokens_ledger: int = 0
    """Completion tokens of final rows."""
    tokens_sent: int = 0
    """Completion tokens that clients were told of, or would have been had they stayed; and those of
    requests that were refused while the engine was at work on them."""

    def refuse(self, code: str, now: float) -> None:
        """A request was not let in."""
        self.refused.add(now)
        if code == "queue_full":
            self.queue_full.add(now)

    def close(self, outcome: str, completion_tokens: int, now: float) -> None:
        """A request that was let in has its final row."""
        self.tokens_ledger += completion_tokens
        self.ended.add(now)
        if outcome in ("failed", "interrupted"):
            self.failed.add(now)
