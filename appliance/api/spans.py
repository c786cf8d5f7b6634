"""What a collector of traces is told of a request that has ended."""

import time
from collections.abc import Callable

from appliance.api.trace import Trace
from appliance.observe.spans import Span, Value

Tell = Callable[[Trace, str, str], None]
"""Is told of a request's end: its trace, its method and what it came to."""


def telling(put: Callable[[Span], None], *, names: bool) -> Tell:
    """Makes spans for `put`. `names`: also whose key and tenant it was."""

    def tell(trace: Trace, method: str, outcome: str) -> None:
        if trace.sampled:
            put(span_of(trace, method, outcome, names=names, now=time.monotonic()))

    return tell


def span_of(trace: Trace, method: str, outcome: str, *, names: bool, now: float) -> Span:
    """`now`: monotonic seconds at the end."""
    ended_ns = time.time_ns()
    started_ns = ended_ns - round((now - trace.started) * 1e9)
    first = min(started_ns + round(trace.ttft_ms * 1e6), ended_ns) if trace.ttft_ms else 0
    route = trace.route or "unknown"
    return Span(
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_id=trace.parent_id,
        name=f"{method} {route}",
        started_ns=started_ns,
        ended_ns=ended_ns,
        failed=trace.status >= 500 or outcome == "bug" or outcome.startswith("engine_"),
        first_token_ns=first,
        facts={
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": trace.status,
            "steelyard.request_id": trace.request_id,
            "steelyard.outcome": outcome,
            **(_of_holder(trace) if names else {}),
            **(_of_model(trace) if trace.tickets else {}),
        },
    )


def _of_holder(trace: Trace) -> dict[str, Value]:
    told = {"steelyard.key": trace.key_name, "steelyard.tenant": trace.tenant}
    return {name: value for name, value in told.items() if value}


def _of_model(trace: Trace) -> dict[str, Value]:
    return {
        "gen_ai.usage.input_tokens": trace.prompt_tokens,
        "gen_ai.usage.output_tokens": trace.completion_tokens,
        "steelyard.cached_tokens": trace.cached_tokens,
        "steelyard.queue_ms": trace.queue_ms,
        "steelyard.first_token_ms": trace.ttft_ms,
    }
