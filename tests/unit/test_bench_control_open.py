"""The open-loop generator against a server of a few lines that answers at once."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench import control_real
from bench.control_open import Sent, beside, chat, counters, figures, run
from bench.control_report import real_lines
from bench.load import Address, LoadError, Reply
from bench.servers import Server

METRICS = """# HELP llamacpp:n_decode_total Engine steps.
llamacpp:n_decode_total 40.0
steelyard:num_preemptions_total 3.0
"""


class Echo:
    """Answers each chat with as many tokens as it may have; one that is not flex only once `batch`
    that are flex were asked for."""

    def __init__(self, status: str = "200 OK", batch: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status, self.batch = status, batch
        self._enough = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        data = await reader.readexactly(size)
        answer = self._answer(head, data)
        flex = [body for body in self.bodies if "service_tier" in body]
        if len(flex) >= self.batch:
            self._enough.set()
        if b"service_tier" not in data:
            await self._enough.wait()
        writer.write(answer)
        await writer.drain()
        writer.close()

    def _answer(self, head: bytes, data: bytes) -> bytes:
        text, kind = METRICS, "text/plain"
        if head.startswith(b"POST"):
            body = json.loads(data)
            self.bodies.append(body)
            usage = {"prompt_tokens": 1, "completion_tokens": body["max_tokens"]}
            event = {"choices": [{"delta": {"content": "x"}}], "usage": usage}
            text, kind = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n", "text/event-stream"
        top = f"HTTP/1.1 {self.status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
        return (top + text).encode()


@contextmanager
def served(echo: Echo) -> Iterator[Server]:
    """A thread with a loop of its own, since the generator brings one too."""
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(echo, "127.0.0.1", 0))
    port = listening.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Server("echo", Address("127.0.0.1", port))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        loop.run_until_complete(listening.wait_closed())
        loop.close()


def body(tokens: int) -> dict[str, Any]:
    return chat([("user", "hello")], tokens, 7)


def test_replies_come_in_the_order_of_the_load_whatever_order_they_were_sent_in() -> None:
    load = [Sent(0.05, body(5)), Sent(0.0, body(6))]
    with served(echo := Echo()) as server:
        replies, seconds = run(server, load)
    assert [reply.completion_tokens for reply in replies] == [5, 6]
    assert [sent["max_tokens"] for sent in echo.bodies] == [6, 5]
    assert replies[0].sent - replies[1].sent > 0.02
    assert figures(replies, seconds)["answer_tokens"] == 5.5


def test_batch_users_ask_while_the_load_runs_and_no_longer() -> None:
    load = [Sent(0.0, body(5)), Sent(0.2, body(5))]
    batch = [body(9) | {"service_tier": "flex"} for _ in range(3)]
    with served(echo := Echo(batch=3)) as server:
        replies, tokens = beside(server, load, batch, users=2)
    assert [reply.completion_tokens for reply in replies] == [5, 5]
    assert tokens in (9, 18, 27), "of those whose answer was read before the load had ended"
    assert sum("service_tier" in sent for sent in echo.bodies) == 3


def test_an_answer_that_is_an_error_voids_the_load() -> None:
    with (
        served(Echo("503 Service Unavailable")) as server,
        pytest.raises(LoadError, match="503"),
    ):
        run(server, [Sent(0.0, body(1))])


def test_counters_of_the_engine_are_read_and_missing_ones_left_out() -> None:
    with served(Echo()) as server:
        assert counters(server) == {"steps": 40.0, "evictions": 3.0}


def test_sides_take_turns_at_going_first() -> None:
    assert control_real._turned(["a", "b"], 0) == ["a", "b"]
    assert control_real._turned(["a", "b"], 1) == ["b", "a"]


def test_a_part_is_printed_with_what_each_side_has() -> None:
    reply = Reply(0.0, 2.0, (0.5,), "x", 1, 10, 0)
    found = {"fcfs": [figures([reply], 2.0)], "ours": [{"b_tokens_per_s": 3.0}]}
    text = "\n".join(real_lines("order", found, {"e2e_mean": False}))
    assert "ttft mean" in text
    assert "e2e_mean: MISSED" in text
