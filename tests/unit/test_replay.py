"""Replay by teacher forcing: recorded tokens go on, picks are told, and nothing can crash it."""

from typing import Any

import numpy as np
import pytest
from llguidance import LLTokenizer, TokenizerWrapper

from appliance.engine.commands import Cancel, Sampling, Submit
from appliance.engine.framing import decode_report, frame
from appliance.engine.reports import Batch, Delta, Stats, TokenLogprob
from appliance.engine.sampling import Sampler, SamplingError
from tests.unit.engine_parts import EOS, FakeVocab, answer_to, make_submit
from tests.unit.step_parts import GREEDY, PROMPT, Loop
from tests.unit.test_step import spell

SCORED = Sampling(temperature=0.0, logprobs=0)
N_VOCAB = FakeVocab.n_tokens


def replay(loop: Loop, forced: list[int], **fields: Any) -> list[TokenLogprob]:
    """What a forced request tells, position by position."""
    fields = {"sampling": SCORED, **fields}
    loop.submit("again", forced=tuple(forced), max_tokens=len(forced), exclusive=True, **fields)
    loop.run()
    assert loop.tokens("again") == forced
    return [entry for delta in loop.of(Delta, "again") for entry in delta.logprobs]


@pytest.mark.parametrize("stream", [True, False])
def test_replay_of_an_own_answer_picks_the_same_at_every_position(stream: bool) -> None:
    loop = Loop()
    loop.submit(max_tokens=12)
    loop.run()
    said = loop.tokens()
    found = replay(loop, said, stream=stream)
    assert [entry.token_id for entry in found] == said
    assert [entry.picked for entry in found] == said
    finished = loop.finished("again")
    assert (finished.reason, finished.stop_type, finished.message) == ("length", "limit", "")
    assert finished.counts.completion_tokens == 12
    assert finished.counts.exclusive
    assert loop.stays_quiet()


def test_replay_tells_where_the_engine_would_have_gone_another_way() -> None:
    loop = Loop()
    true = answer_to(PROMPT, 8)[len(PROMPT) :]
    forced = [*true[:3], (true[3] + 1) % 3, *true[4:]]
    found = replay(loop, forced)
    assert [entry.picked for entry in found[:4]] == true[:4]
    assert found[3].token_id != found[3].picked
    expected = [answer_to([*PROMPT, *forced[:i]], 1)[-1] for i in range(8)]
    assert [entry.picked for entry in found] == expected, "each pick follows the forced tokens"


def test_the_pick_is_always_among_the_alternatives() -> None:
    found = replay(Loop(), [7, 8, 9])
    for entry in found:
        assert entry.picked != entry.token_id
        told = dict(entry.top)[entry.picked]
        assert told > entry.logprob


def test_forced_answer_ends_exactly_after_its_last_token() -> None:
    """Neither a stop string nor EOS in the middle nor a limit of the request ends it earlier."""
    loop = Loop(spell("hello"))
    forced = [ord(c) - ord("a") for c in "help"] + [EOS, 3, EOS]
    replay(loop, forced, stop=("el",))
    finished = loop.finished("again")
    assert (finished.reason, finished.stop_type) == ("stop", "eos")
    assert finished.counts.completion_tokens == 7
    assert finished.counts.hidden_tokens == 1


def test_forced_answer_ends_with_the_context() -> None:
    loop = Loop(n_cells=32)
    loop.submit("again", forced=(1,) * 50, max_tokens=50, sampling=SCORED)
    loop.run()
    assert loop.tokens("again") == [1] * 12
    assert loop.finished("again").reason == "length"


def test_replay_can_be_cancelled() -> None:
    loop = Loop()
    loop.submit("again", forced=(1,) * 50, max_tokens=50, sampling=SCORED, exclusive=True)
    loop.step(5)
    loop.engine.handle(Cancel("again"))
    loop.run()
    assert loop.finished("again").reason == "cancelled"
    assert loop.stays_quiet()


def test_the_pick_survives_the_wire_and_costs_nothing_where_there_is_none() -> None:
    entries = (TokenLogprob(5, -0.5, ((6, -0.1),), picked=6), TokenLogprob(5, -0.5))
    batch = Batch((Delta("r", 0, "a", (5, 5), entries),), Stats())
    assert decode_report(frame(batch)[4:]) == batch


# The sampler


def sampler(sampling: Sampling, choice: int = 0, **fields: Any) -> Sampler:
    request: Submit = make_submit(prompt=(1, 2), max_tokens=100, sampling=sampling, **fields)
    return Sampler(request, choice, N_VOCAB, frozenset({EOS}))


def rows(count: int) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    random = np.random.default_rng(3)
    return [random.normal(scale=2.0, size=N_VOCAB).astype(np.float32) for _ in range(count)]


DRAWN = Sampling(temperature=1.3, seed=11, logprobs=0, repeat_penalty=1.3, repeat_last_n=-1)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn and penalised"])
def test_sampler_picks_the_same_again_when_its_own_picks_are_forced(sampling: Sampling) -> None:
    first = sampler(sampling)
    said = [first.pick(row)[0] for row in rows(40)]
    again = sampler(Sampling(**{**as_dict(sampling), "logprobs": 0}))
    followed = [again.follow(row, token)[0] for row, token in zip(rows(40), said, strict=True)]
    assert [entry.picked for entry in followed if entry is not None] == said


def as_dict(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in sampling.__struct_fields__}


def test_choice_of_many_is_replayed_alone_with_the_seed_that_was_its_own() -> None:
    third = sampler(DRAWN, choice=2)
    said = [third.pick(row)[0] for row in rows(20)]
    alone = sampler(Sampling(**{**as_dict(DRAWN), "seed": 13}))
    followed = [alone.follow(row, token)[0] for row, token in zip(rows(20), said, strict=True)]
    assert [entry.picked for entry in followed if entry is not None] == said


def test_penalties_count_what_was_forced_not_what_was_picked() -> None:
    penal = Sampling(temperature=0.0, frequency_penalty=2.0, repeat_last_n=-1, logprobs=0)
    subject = sampler(penal)
    row = np.zeros(N_VOCAB, dtype=np.float32)
    row[4], row[5] = 1.0, 0.5
    first, _ = subject.follow(row.copy(), 5)
    second, _ = subject.follow(row.copy(), 4)
    third, _ = subject.follow(row.copy(), 4)
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.picked, second.picked) == (4, 4), "token 5 was penalised, token 4 was not"
    assert third.picked not in (4, 5)


def test_log_probabilities_of_a_replay_are_bit_equal_to_those_of_the_answer() -> None:
    sampling = Sampling(temperature=0.0, logprobs=3)
    first, again = sampler(sampling), sampler(sampling)
    for row in rows(10):
        token, told = first.pick(row.copy())
        retold, _ = again.follow(row.copy(), token)
        assert told is not None
        assert retold is not None
        assert (retold.logprob, retold.top) == (told.logprob, told.top)


def test_nothing_that_may_be_picked_is_no_failure_in_a_replay() -> None:
    forbidden = tuple((token, -np.inf) for token in range(N_VOCAB))
    subject = sampler(Sampling(temperature=0.0, logit_bias=forbidden, logprobs=0))
    entry, refused = subject.follow(rows(1)[0], 3)
    assert entry is not None
    assert (entry.picked, entry.token_id, refused) == (-1, 3, False)


def test_model_that_gives_no_numbers_ends_a_replay() -> None:
    row = np.full(N_VOCAB, np.nan, dtype=np.float32)
    with pytest.raises(SamplingError, match="selftest"):
        sampler(SCORED).follow(row, 3)


# Grammars


class FakeTokenizer:
    """Letters as tokens, for llguidance."""

    eos_token_id = EOS
    bos_token_id = None
    tokens = (*(bytes([97 + i]) for i in range(26)), *(b"\xff" + bytes([i]) for i in range(6)))
    special_token_ids = (EOS,)

    def __call__(self, text: str) -> list[int]:
        return [byte - 97 for byte in (text.encode() if isinstance(text, str) else text)]


def lltokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(FakeTokenizer()))


def test_forced_token_that_the_grammar_forbids_is_told_and_survived() -> None:
    loop = Loop(spell("zzzzzz"), lltokenizer=lltokenizer)
    forced = [ord(c) - ord("a") for c in "abzab"]
    grammar = 'start: "abab"'
    found = replay(loop, forced, grammar=grammar)
    finished = loop.finished("again")
    assert finished.reason == "length"
    assert "position 3 " in finished.message
    assert [entry.picked for entry in found[:3]] == [0, 1, 0], "held by the grammar up to there"
    assert [entry.picked for entry in found[3:]] == [25, 25], "and free after it"


def test_grammar_that_is_satisfied_in_the_middle_does_not_end_a_replay() -> None:
    loop = Loop(spell("ab"), lltokenizer=lltokenizer)
    forced = [0, 1, 2]
    found = replay(loop, forced, grammar='start: "ab"')
    assert [entry.token_id for entry in found] == forced
