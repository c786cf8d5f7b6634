"""One row of logits to one token: greedy, drawn, biased, penalised, constrained, and accounted."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer
from numpy.typing import NDArray

from appliance import models
from appliance.config import ModelConfig
from appliance.engine.commands import Sampling
from appliance.engine.constrain import Constraint
from appliance.engine.reports import TokenLogprob
from appliance.engine.sampling import Sampler, SamplingError, log_probabilities, make_constraint
from appliance.engine.vocab import Vocab
from tests.unit.engine_parts import make_submit

N_VOCAB = 500
EOGS = frozenset({2, 3})
GREEDY = Sampling(temperature=0.0)


def make_logits(seed: int = 0, spread: float = 2.0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=spread, size=N_VOCAB).astype(np.float32)


def make_sampler(
    sampling: Sampling, choice: int = 0, prompt: tuple[int, ...] = (1,), max_tokens: int = 100
) -> Sampler:
    request = make_submit(prompt=prompt, max_tokens=max_tokens, sampling=sampling)
    return Sampler(request, choice, N_VOCAB, EOGS)


def draw(sampler: Sampler, count: int = 20, spread: float = 2.0) -> list[int]:
    return [sampler.pick(make_logits(i, spread))[0] for i in range(count)]


# Choosing


@given(st.integers(0, 2**32 - 1))
def test_greedy_takes_the_likeliest(seed: int) -> None:
    logits = make_logits(seed)
    assert make_sampler(GREEDY).pick(logits.copy())[0] == logits.argmax()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=1, temperature=1.5),
        Sampling(top_p=0.0, temperature=1.5),
        Sampling(min_p=1.0, temperature=1.5),
        Sampling(temperature=1e-40),
    ],
    ids=["top_k", "top_p", "min_p", "cold"],
)
def test_narrowest_choice_equals_greedy(sampling: Sampling) -> None:
    assert draw(make_sampler(sampling)) == draw(make_sampler(GREEDY))


def test_same_seed_draws_the_same_tokens() -> None:
    sampling = Sampling(seed=7, temperature=1.0)
    assert draw(make_sampler(sampling)) == draw(make_sampler(sampling))


def test_choices_and_seeds_draw_differently() -> None:
    first = draw(make_sampler(Sampling(seed=7, temperature=1.0)))
    assert draw(make_sampler(Sampling(seed=7, temperature=1.0), choice=1)) != first
    assert draw(make_sampler(Sampling(seed=8, temperature=1.0))) != first


def test_choice_has_the_seed_that_messages_promise() -> None:
    second = draw(make_sampler(Sampling(seed=7, temperature=1.0), choice=1))
    assert second == draw(make_sampler(Sampling(seed=8, temperature=1.0)))


def test_without_seed_every_answer_is_another() -> None:
    sampling = Sampling(temperature=2.0, top_k=0)
    assert draw(make_sampler(sampling)) != draw(make_sampler(sampling))


@pytest.mark.parametrize("seed", [0, 2**32 - 2, 2**32 - 1, 2**64 - 1])
def test_every_seed_is_reproducible(seed: int) -> None:
    """llama.cpp draws a random one for 2**32 - 1."""
    sampling = Sampling(seed=seed, temperature=2.0, top_k=0)
    assert draw(make_sampler(sampling)) == draw(make_sampler(sampling))


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    plain = Sampling(seed=1, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    sampler = make_sampler(plain)
    logits = np.full(N_VOCAB, -np.inf, dtype=np.float32)
    logits[10:13] = np.log([0.6, 0.3, 0.1])
    counts = np.bincount([sampler.pick(logits.copy())[0] for _ in range(3000)], minlength=13)
    assert np.allclose(counts[10:13] / 3000, [0.6, 0.3, 0.1], atol=0.04)
    assert counts[:10].sum() == 0


# Biases


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bias_moves_the_choice(temperature: float) -> None:
    sampling = Sampling(temperature=temperature, logit_bias=((42, 100.0),))
    assert set(draw(make_sampler(sampling))) == {42}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forbidden_token_is_never_chosen(temperature: float) -> None:
    likeliest = int(make_logits().argmax())
    sampling = Sampling(temperature=temperature, logit_bias=((likeliest, -np.inf),))
    sampler = make_sampler(sampling)
    assert likeliest not in {sampler.pick(make_logits())[0] for _ in range(50)}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ignored_ends_are_never_chosen(temperature: float) -> None:
    logits = make_logits()
    logits[list(EOGS)] = 50.0
    sampler = make_sampler(Sampling(temperature=temperature, ignore_eos=True))
    assert sampler.pick(logits.copy())[0] not in EOGS
    assert make_sampler(Sampling(temperature=temperature)).pick(logits)[0] in EOGS


# Penalties


@pytest.mark.parametrize(
    "penalty",
    [{"repeat_penalty": 10.0}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}],
    ids=str,
)
def test_penalty_changes_the_pick_once_a_token_was_taken(penalty: dict[str, float]) -> None:
    logits = np.zeros(N_VOCAB, dtype=np.float32)
    logits[10], logits[11] = 5.0, 4.0
    sampler = make_sampler(Sampling(temperature=0.0, **penalty))  # type: ignore[arg-type]
    assert [sampler.pick(logits.copy())[0] for _ in range(2)] == [10, 11]


def test_penalties_know_the_prompt() -> None:
    logits = np.zeros(N_VOCAB, dtype=np.float32)
    logits[10], logits[11] = 5.0, 4.0
    sampling = Sampling(temperature=0.0, presence_penalty=2.0)
    assert make_sampler(sampling, prompt=(10,)).pick(logits.copy())[0] == 11
    short = Sampling(temperature=0.0, presence_penalty=2.0, repeat_last_n=1)
    assert make_sampler(short, prompt=(10, 9)).pick(logits.copy())[0] == 10


def test_frequency_penalty_counts_every_occurrence() -> None:
    logits = np.zeros(N_VOCAB, dtype=np.float32)
    logits[10], logits[11] = 5.0, 4.0
    once = Sampling(temperature=0.0, frequency_penalty=0.4)
    assert make_sampler(once, prompt=(10,) * 2).pick(logits.copy())[0] == 10
    assert make_sampler(once, prompt=(10,) * 3).pick(logits.copy())[0] == 11


def test_window_of_minus_one_is_the_whole_context() -> None:
    logits = np.zeros(N_VOCAB, dtype=np.float32)
    logits[10], logits[11] = 5.0, 4.0
    sampling = Sampling(temperature=0.0, presence_penalty=2.0, repeat_last_n=-1)
    sampler = make_sampler(sampling, prompt=(10, *(9,) * 300))
    assert sampler.pick(logits)[0] == 11


def test_window_of_zero_turns_penalties_off() -> None:
    sampling = Sampling(temperature=0.0, presence_penalty=2.0, repeat_last_n=0)
    assert draw(make_sampler(sampling)) == draw(make_sampler(GREEDY))


def test_huge_window_costs_no_memory() -> None:
    """llama.cpp would allocate 8 GiB at once, and abort where it cannot."""
    sampling = Sampling(temperature=0.0, repeat_penalty=1.1, repeat_last_n=2**31 - 1)
    sampler = make_sampler(sampling)
    assert len(draw(sampler)) == 20


# What cannot be sampled


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, Sampling(), Sampling(top_k=0), Sampling(temperature=0.0, repeat_penalty=1.1)],
    ids=["greedy", "drawn", "all", "penalised"],
)
@pytest.mark.parametrize("spoilt", ["all NaN", "one NaN", "all forbidden", "infinite"])
def test_unusable_logits_end_the_request_with_a_reason(sampling: Sampling, spoilt: str) -> None:
    logits = make_logits()
    if spoilt == "all NaN":
        logits[:] = np.nan
    elif spoilt == "one NaN":
        logits[7] = np.nan
    elif spoilt == "all forbidden":
        logits[:] = -np.inf
    else:
        logits[7] = np.inf
    with pytest.raises(SamplingError, match="no usable probability"):
        make_sampler(sampling).pick(logits)


def test_bias_against_everything_ends_the_request() -> None:
    sampling = Sampling(logit_bias=tuple((token, -np.inf) for token in range(N_VOCAB)))
    with pytest.raises(SamplingError):
        make_sampler(sampling).pick(make_logits())


def test_closed_sampler_may_be_closed_again() -> None:
    sampler = make_sampler(Sampling())
    sampler.close()
    sampler.close()


# Log-probabilities


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


@given(st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_log_probabilities_are_those_of_a_softmax(seed: int, top: int) -> None:
    logits = make_logits(seed, spread=8.0)
    expected = log_softmax(logits)
    found = log_probabilities(logits, 5, top)
    assert found.logprob == pytest.approx(expected[5], abs=1e-4)
    assert [token for token, _ in found.top] == list(np.argsort(-logits, kind="stable")[:top])
    assert [logprob for _, logprob in found.top] == pytest.approx(
        np.sort(expected)[::-1][:top].tolist(), abs=1e-4
    )


def test_all_log_probabilities_sum_to_one() -> None:
    found = log_probabilities(make_logits(), 0, N_VOCAB)
    assert sum(np.exp(logprob) for _, logprob in found.top) == pytest.approx(1.0, abs=1e-4)


def test_log_probabilities_are_the_models_own_whatever_the_sampling() -> None:
    sampling = Sampling(temperature=0.3, top_k=2, logit_bias=((42, 100.0),), logprobs=3)
    token, found = make_sampler(sampling).pick(make_logits())
    assert token == 42
    assert found == log_probabilities(make_logits(), 42, 3)


def test_log_probabilities_come_only_where_asked_for() -> None:
    assert make_sampler(GREEDY).pick(make_logits())[1] is None
    found = make_sampler(Sampling(temperature=0.0, logprobs=0)).pick(make_logits())[1]
    assert isinstance(found, TokenLogprob)
    assert found.top == ()


# Grammars, with the packaged model's vocabulary


@cache
def vocab() -> Vocab:
    return Vocab.open(models.locate(ModelConfig()))


@cache
def lltokenizer() -> LLTokenizer:
    return vocab().lltokenizer()


def make_constraint_of(grammar: str) -> Constraint:
    made = make_constraint(lltokenizer(), grammar)
    assert made is not None
    return made


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_grammar_masks_what_it_forbids(temperature: float) -> None:
    constraint = make_constraint_of('start: "yes" | "no"')
    request = make_submit(sampling=Sampling(temperature=temperature, seed=3))
    sampler = Sampler(request, 0, vocab().n_tokens, vocab().eogs, constraint)
    rng = np.random.default_rng(5)
    tokens = []
    while not sampler.complete:
        logits = rng.normal(size=vocab().n_tokens).astype(np.float32)
        tokens.append(sampler.pick(logits)[0])
    assert vocab().detokenize(tokens) in (b"yes", b"no")


def test_grammar_and_bias_that_leave_nothing_end_the_request() -> None:
    constraint = make_constraint_of('start: "y"')
    (token,) = vocab().tokenize("y", False, False)
    sampling = Sampling(temperature=0.0, logit_bias=((token, -np.inf),))
    sampler = Sampler(make_submit(sampling=sampling), 0, vocab().n_tokens, vocab().eogs, constraint)
    with pytest.raises(SamplingError):
        sampler.pick(np.zeros(vocab().n_tokens, dtype=np.float32))


def test_no_grammar_is_no_constraint() -> None:
    assert make_constraint(lltokenizer(), None) is None
