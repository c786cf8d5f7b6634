"""What the engine tells of the model's own distribution: every eight tokens, of the raw logits."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.engine.commands import Sampling
from appliance.engine.plan import Chunk
from appliance.engine.reports import Delta, Finished, Signals
from tests.unit.engine_parts import EOS, LETTERS, FakeRunner, FakeVocab
from tests.unit.step_parts import PROMPT, Loop

N_VOCAB = FakeVocab.n_tokens
ON_AND_ON = Sampling(temperature=0.0, ignore_eos=True)
SURE = math.log(math.exp(20.0) + N_VOCAB - 1)
"""The fake model gives its token 20 and all others 0: logarithm of the sum."""


class Soft(FakeRunner):
    """Rows with a random distribution each, known by the number of tokens before them."""

    def _row(self, chunk: Chunk, i: int) -> NDArray[np.float32]:
        return soft(chunk.start + len(chunk.tokens) - chunk.outputs + i + 1 - len(PROMPT))


def soft(generated: int) -> NDArray[np.float32]:
    return np.random.default_rng(generated).normal(scale=3.0, size=N_VOCAB).astype(np.float32)


def soft_loop() -> Loop:
    loop = Loop()
    loop.runner.__class__ = Soft
    return loop


def expected(token: int, generated: int) -> tuple[float, float, float]:
    """Margin, entropy and log-probability of the signal after `generated` tokens."""
    rows = [soft(i).astype(np.float64) for i in range(generated - 8, generated)]
    last = rows[-1] - np.log(np.exp(rows[-1]).sum())
    margin = max(row[EOS] - row.max() for row in rows)
    return margin, float(-(np.exp(last) * last).sum()), float(last[token])


def values(signal: Signals) -> tuple[float, float, float]:
    return signal.eos_margin, signal.entropy, signal.logprob


@pytest.mark.parametrize("stream", [True, False])
def test_signals_come_every_eight_tokens_in_the_batch_of_their_step(stream: bool) -> None:
    loop = Loop()
    loop.submit(max_tokens=30, sampling=ON_AND_ON, stream=stream)
    made: list[int] = []
    for count in range(1, 31):
        loop.reports.clear()
        loop.step()
        made += [count] * len(loop.of(Signals))
    assert made == [8, 16, 24]


def test_who_wants_no_signals_gets_none() -> None:
    loop = Loop()
    loop.submit(max_tokens=30, sampling=ON_AND_ON, signals=False)
    loop.run()
    assert not loop.of(Signals)


@pytest.mark.parametrize(
    "sampling",
    [
        ON_AND_ON,
        Sampling(temperature=0.0, ignore_eos=True, logprobs=2),
        Sampling(temperature=1.5, seed=3, ignore_eos=True),
        Sampling(temperature=0.0, logit_bias=((7, 30.0), (EOS, -100.0))),
        Sampling(temperature=0.0, ignore_eos=True, repeat_penalty=1.5),
    ],
    ids=["greedy", "logprobs", "drawn", "biased", "penalised"],
)
def test_signals_are_of_the_raw_logits_however_the_token_was_picked(sampling: Sampling) -> None:
    loop = soft_loop()
    loop.submit(max_tokens=24, sampling=sampling)
    loop.run()
    tokens, signals = loop.tokens(), loop.of(Signals)
    assert [signal.generated for signal in signals] == [8, 16, 24]
    for signal in signals:
        at = signal.generated
        assert values(signal) == pytest.approx(expected(tokens[at - 1], at), abs=1e-4)


def test_signal_of_a_replayed_token_is_that_of_the_forced_one() -> None:
    loop = soft_loop()
    forced = tuple(range(8))
    loop.submit(max_tokens=8, forced=forced)
    loop.run()
    (signal,) = loop.of(Signals)
    assert values(signal) == pytest.approx(expected(7, 8), abs=1e-4)


def test_margin_forgets_what_was_before_the_last_signal() -> None:
    loop = Loop(lambda tokens: EOS if len(tokens) - len(PROMPT) == 4 else 0)
    loop.submit(max_tokens=16, sampling=ON_AND_ON)
    loop.run()
    assert [signal.eos_margin for signal in loop.of(Signals)] == [0.0, -20.0]


def test_drafts_change_no_signal() -> None:
    told = []
    for draft_tokens in (0, 20):
        loop = Loop(lambda tokens: len(tokens) % 4, draft_tokens=draft_tokens)
        loop.submit(max_tokens=100, sampling=ON_AND_ON)
        loop.run()
        told.append([(s.generated, *values(s)) for s in loop.of(Signals)])
    assert loop.finished().counts.accepted_tokens > 50
    assert told[0] == told[1]
    assert [signal[0] for signal in told[0]] == list(range(8, 101, 8))


@pytest.mark.parametrize("draft_tokens", [0, 6])
def test_streamed_text_up_to_the_token_goes_before_its_signal(draft_tokens: int) -> None:
    loop = Loop(lambda tokens: len(tokens) % 4, draft_tokens=draft_tokens)
    loop.submit(max_tokens=40, sampling=ON_AND_ON, stream=True)
    loop.run()
    tokens = 0
    for event in loop.events:
        if isinstance(event, Delta):
            tokens += len(event.token_ids)
        elif isinstance(event, Signals) and event.generated < 40:
            assert tokens == event.generated
    assert loop.text() == "".join(chr(LETTERS[token]) for token in loop.tokens())


def test_last_token_has_its_signal_before_the_end() -> None:
    loop = Loop(lambda tokens: EOS if len(tokens) - len(PROMPT) == 15 else 0)
    loop.submit(max_tokens=50, stream=True)
    loop.run()
    kinds = [type(event) for event in loop.events if not isinstance(event, Delta)]
    assert kinds[-2:] == [Signals, Finished]
    signal = loop.of(Signals)[-1]
    assert (signal.generated, signal.eos_margin) == (16, 0.0)
    assert signal.logprob == pytest.approx(20.0 - SURE, abs=1e-6)


def test_token_that_could_not_be_picked_has_no_signal() -> None:
    loop = Loop(lambda tokens: -1 if len(tokens) - len(PROMPT) == 8 else 0)
    loop.submit(max_tokens=30)
    loop.run()
    assert loop.finished().reason == "error"
    assert [signal.generated for signal in loop.of(Signals)] == [8]


def test_every_choice_and_every_neighbour_has_signals_of_its_own() -> None:
    loop = Loop()
    loop.submit("a", n=2, max_tokens=16, sampling=ON_AND_ON)
    loop.submit("b", prompt=(6,) * 9, max_tokens=8, sampling=ON_AND_ON)
    loop.run()
    for name, choice, places in (("a", 0, [8, 16]), ("a", 1, [8, 16]), ("b", 0, [8])):
        assert [signal.generated for signal in loop.of(Signals, name, choice)] == places


def test_preempted_answer_tells_no_signal_twice() -> None:
    loop = Loop(n_cells=48, step_tokens=16, prefill_tokens=8)
    for name in "abcd":
        loop.submit(name, prompt=[ord(name) - 97] * 14, max_tokens=20, sampling=ON_AND_ON)
    loop.run()
    assert loop.engine.stats().preemptions > 0
    for name in "abcd":
        assert [signal.generated for signal in loop.of(Signals, name)] == [8, 16]
