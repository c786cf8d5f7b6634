"""Open loop over HTTP: requests go out at their times, whatever the server does meanwhile."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bench.load import Address, LoadError, Reply, call, post
from bench.servers import Server
from bench.stats import Figures, quantile

Body = dict[str, Any]
_COUNTERS = {
    "evictions": "steelyard:num_preemptions",
    "steps": "llamacpp:n_decode",
    "busy": "llamacpp:n_busy_slots_per_decode",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of a load. `at`: seconds after the load begins."""

    at: float
    body: Body
    flex: bool = False


def chat(messages: Sequence[tuple[str, str]], most: int, seed: int) -> Body:
    """As drawn for the released answers, with a seed of its own."""
    return {
        "model": "default",
        "messages": [{"role": role, "content": text} for role, text in messages],
        "max_tokens": most,
        "temperature": 0.7,
        "top_p": 0.95,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def run(server: Server, load: Sequence[Sent]) -> tuple[list[Reply], float]:
    """The replies in the order of the load, and the seconds that it took."""
    began = time.perf_counter()
    replies = asyncio.run(_open(server.address, load))
    return replies, time.perf_counter() - began


async def _open(address: Address, load: Sequence[Sent]) -> list[Reply]:
    start = time.perf_counter()

    async def one(sent: Sent) -> Reply:
        await asyncio.sleep(max(0.0, start + sent.at - time.perf_counter()))
        return await post(address, "/v1/chat/completions", sent.body)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(sent)) for sent in load]
    except* LoadError as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def beside(
    server: Server, load: Sequence[Sent], batch: Sequence[Body], users: int
) -> tuple[list[Reply], int]:
    """`load`, while `users` ask for `batch` one after the other, until the load has ended. Returns
    the load's replies and how many tokens the others got meanwhile."""
    return asyncio.run(_beside(server.address, load, batch, users))


async def _beside(
    address: Address, load: Sequence[Sent], batch: Sequence[Body], users: int
) -> tuple[list[Reply], int]:
    bodies, tokens = iter(batch), 0

    async def user() -> None:
        nonlocal tokens
        for body in bodies:
            tokens += (await post(address, "/v1/chat/completions", body)).completion_tokens

    tasks = [asyncio.create_task(user()) for _ in range(users)]
    try:
        return await _open(address, load), tokens
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def counters(server: Server) -> dict[str, float]:
    """Of /metrics; a peer has fewer."""
    status, body = asyncio.run(call(server.address, "GET", "/metrics"))
    text = body.decode() if status == 200 else ""
    found = {}
    for name, metric in _COUNTERS.items():
        lines = re.findall(rf"^{re.escape(metric)}(?:_total)?(?:{{[^}}]*}})? (\S+)$", text, re.M)
        if lines:
            found[name] = sum(map(float, lines))
    return found


def figures(replies: Sequence[Reply], seconds: float) -> Figures:
    """Seconds."""
    ttft, whole = [one.ttft for one in replies], [one.e2e for one in replies]
    return {
        "tokens_per_s": sum(one.completion_tokens for one in replies) / seconds,
        "answer_tokens": fmean(one.completion_tokens for one in replies),
        **{f"ttft_{name}": value for name, value in _spread(ttft).items()},
        **{f"e2e_{name}": value for name, value in _spread(whole).items()},
    }


def _spread(values: Sequence[float]) -> Figures:
    found = {"mean": fmean(values), "max": max(values)}
    return found | {f"p{round(100 * q)}": quantile(values, q) for q in (0.5, 0.95, 0.99)}
