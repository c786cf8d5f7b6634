"""Requests that are cancelled, late or spoilt: each ends within a step, and harms no neighbour."""

from collections.abc import Callable
from typing import Any

import pytest
from llguidance import LLTokenizer

from appliance.engine.commands import Cancel, Pause, Ping
from appliance.engine.reports import Finished, Started
from tests.unit.engine_parts import answer_to, next_token
from tests.unit.step_parts import Loop

# Cancellation and deadlines, in every state


def waiting(loop: Loop, **fields: Any) -> None:
    loop.submit("other", prompt=(5,) * 10, max_tokens=30)
    loop.step()
    loop.submit(**fields)
    loop.step()
    assert not loop.of(Started)


def prefilling(loop: Loop, **fields: Any) -> None:
    loop.submit(prompt=(1,) * 60, **fields)
    loop.step(2)
    assert loop.of(Started)
    assert not loop.tokens()


def decoding(loop: Loop, **fields: Any) -> None:
    loop.submit(stream=True, **fields)
    loop.step(5)
    assert loop.tokens()


STATES = [waiting, prefilling, decoding]
SMALL = {"max_sequences": 1, "step_tokens": 16, "prefill_tokens": 16}


@pytest.mark.parametrize("reach", STATES)
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("reason", ["cancelled", "deadline"])
def test_cancelled_request_ends_within_a_step(
    reach: Callable[..., None], n: int, reason: Any
) -> None:
    loop = Loop(**SMALL)
    reach(loop, n=n, max_tokens=30)
    before = loop.runner.steps
    loop.engine.handle(Cancel("r", reason))
    assert all(s.request.id != "r" for s in loop.scheduler.running + loop.scheduler.waiting)
    loop.step()
    assert loop.runner.steps <= before + 1
    for choice in range(n):
        finished = loop.finished(choice=choice)
        assert finished.reason == reason
        assert finished.counts.completion_tokens == len(loop.tokens(choice=choice))
    loop.run()
    assert loop.stays_quiet()


@pytest.mark.parametrize("reach", STATES)
@pytest.mark.parametrize("n", [1, 2])
def test_deadline_ends_a_request_within_a_step(reach: Callable[..., None], n: int) -> None:
    loop = Loop(**SMALL)
    reach(loop, n=n, max_tokens=30, deadline=loop.runner.now + 1.0)
    loop.runner.now += 1.0
    loop.step()
    for choice in range(n):
        assert loop.finished(choice=choice).reason == "deadline"
    loop.run()
    assert loop.stays_quiet()


def test_deadline_counts_while_the_queue_is_held() -> None:
    loop = Loop()
    loop.engine.handle(Pause(True))
    loop.submit(deadline=loop.runner.now + 1.0)
    loop.runner.now += 1.0
    loop.engine.handle(Ping(0.0))  # the supervisor's, several a second
    loop.step()
    assert loop.finished().reason == "deadline"


def test_neighbour_of_a_cancelled_request_ends_complete() -> None:
    loop = Loop()
    loop.submit("a", prompt=(5,) * 10, max_tokens=30, stream=True)
    loop.submit("b", prompt=(6,) * 10, max_tokens=30, stream=True)
    loop.step(7)
    loop.engine.handle(Cancel("a"))
    loop.run()
    assert loop.tokens("b") == answer_to((6,) * 10, 30)[10:]
    assert loop.tokens("a") == answer_to((5,) * 10, 7)[10:]


def test_cancelling_twice_or_an_unknown_request_does_nothing() -> None:
    loop = Loop()
    loop.submit()
    loop.step()
    for name in ("r", "r", "unknown"):
        loop.engine.handle(Cancel(name))
    loop.run()
    assert len(loop.of(Finished)) == 1


# Faults of a request


@pytest.mark.parametrize("n", [1, 2])
def test_request_whose_logits_are_spoilt_ends_with_an_error_and_its_neighbour_does_not(
    n: int,
) -> None:
    loop = Loop(lambda tokens: -1 if tokens[0] == 7 and len(tokens) > 12 else next_token(tokens))
    loop.submit("good", prompt=(5,) * 10, max_tokens=10)
    loop.submit("bad", prompt=(7,) * 10, max_tokens=10, n=n)
    loop.run()
    for choice in range(n):
        finished = loop.finished("bad", choice)
        assert finished.reason == "error"
        assert "no usable probability" in finished.message
        assert finished.counts.completion_tokens == 3
    assert loop.tokens("good") == answer_to((5,) * 10, 10)[10:]
    assert loop.stays_quiet()


def tokenizer_of_bytes() -> LLTokenizer:
    return LLTokenizer("byte")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_grammar_that_does_not_compile_ends_every_choice_with_an_error(n: int) -> None:
    loop = Loop(lltokenizer=tokenizer_of_bytes)
    loop.submit(grammar="start: (", n=n)
    loop.submit("next", max_tokens=2)
    loop.run()
    for choice in range(n):
        assert loop.finished(choice=choice).reason == "error"
        assert "grammar" in loop.finished(choice=choice).message
    assert loop.finished("next").reason == "length"
    assert loop.stays_quiet()
