"""States of sequences taken out of the cache of llama.cpp and put back, with the packaged model:
the same bytes, the same answer, and nothing computed twice."""

from collections.abc import Iterator
from math import inf

import llama_cpp
import pytest
from msgspec.structs import replace

from appliance.engine import process
from appliance.engine.commands import Expect, Sampling, Steer
from appliance.engine.keeping import LEAST, Costs
from appliance.engine.plan import Chunk, Remove, Restore, Save
from appliance.engine.runner import Runner
from appliance.engine.sequence import SavedState
from tests.box.engine_live import LOAD, Live, assert_greedy, chat, clear
from tests.box.test_engine import QUESTIONS, STORY
from tests.unit.engine_parts import make_sequence

ANY = Costs(bytes_per_token=1, copy_ms=0.0, compute_ms=1.0)
"""Saves whatever has to give way, on any machine."""


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    engine, made = process.build(replace(LOAD, n_ctx=512), lambda report: None)
    assert engine.stats().kv_total == 512
    yield made
    made.close()


def compute(runner: Runner, seq_id: int, tokens: list[int], start: int = 0) -> list[float]:
    """The logits after the last of the tokens."""
    sequence = make_sequence(tokens)
    sequence.seq_id = seq_id
    for at in range(0, len(tokens), LOAD.n_batch):
        piece = tuple(tokens[at : at + LOAD.n_batch])
        rows = runner.run((Chunk(sequence, start + at, piece, 1),))
    found: list[float] = rows[-1].tolist()
    return found


def saved(runner: Runner, seq_id: int, tokens: int) -> SavedState:
    state = SavedState(tokens, 0)
    runner.move((Save(seq_id, state),))
    assert state.data is not None
    return state


def put_back(runner: Runner, seq_id: int, state: SavedState) -> bool:
    state.restored = False
    runner.move((Restore(seq_id, state),))
    return state.restored


def test_state_comes_back_to_the_last_bit(runner: Runner) -> None:
    prompt = chat(runner, STORY)
    clear(runner)
    compute(runner, 2, prompt)
    state = saved(runner, 2, len(prompt))
    expected = compute(runner, 2, [504], len(prompt))
    clear(runner)
    assert put_back(runner, 2, state)
    assert saved(runner, 2, len(prompt)).data == state.data
    assert compute(runner, 2, [504], len(prompt)) == expected


def test_state_finds_place_between_those_of_others(runner: Runner) -> None:
    clear(runner)
    prompts = {seq_id: chat(runner, QUESTIONS[seq_id]) for seq_id in range(6)}
    for at in range(max(map(len, prompts.values()))):
        for seq_id, prompt in prompts.items():
            if at < len(prompt):
                compute(runner, seq_id, prompt[at : at + 1], at)
    state = saved(runner, 1, len(prompts[1]))
    runner.move((Remove(1), Remove(3)))
    filler = [7] * (512 - sum(len(prompts[seq_id]) for seq_id in (0, 2, 4, 5)) - len(prompts[1]))
    compute(runner, 7, filler)
    assert put_back(runner, 1, state)
    assert saved(runner, 1, len(prompts[1])).data == state.data


def test_state_for_which_there_is_no_place_is_refused_and_leaves_nothing(runner: Runner) -> None:
    clear(runner)
    compute(runner, 0, [5] * 200)
    state = saved(runner, 0, 200)
    runner.move((Remove(0),))
    compute(runner, 1, [6] * 400)
    assert not put_back(runner, 2, state)
    memory = llama_cpp.llama_get_memory(runner.context)
    assert llama_cpp.llama_memory_seq_pos_max(memory, 2) == -1
    assert llama_cpp.llama_memory_seq_pos_max(memory, 1) == 399


def test_cost_of_a_state_is_measured(runner: Runner) -> None:
    costs = runner.probe_state(0.5)
    assert costs is not None
    compute(runner, 0, [5] * 100)
    state = saved(runner, 0, 100)
    assert state.data is not None
    assert len(state.data) == pytest.approx(100 * costs.bytes_per_token, rel=0.05)
    assert costs.copy_ms > 0
    assert costs.compute_ms == 0.5


def test_batch_answer_goes_on_after_a_chat_had_its_place(runner: Runner) -> None:
    live = Live(runner, n_cells=512, max_sequences=1, cached_sequences=0)
    live.scheduler.cache.keeping.costs = ANY
    prompt = chat(runner, STORY[:200])
    live.submit("batch", prompt, 40, pool="b")
    for _ in range(20):
        live.engine.step()
    live.submit("chat", chat(runner, QUESTIONS[0]), 8)
    live.finish()
    stats, counts = live.engine.stats(), live.finished("batch").counts
    assert (stats.saved, stats.restored, counts.preemptions) == (1, 1, 1)
    assert counts.prefill_tokens == len(prompt) + 1, "only its last token was read again"
    assert_greedy(runner, prompt, live.answer("batch"))
    assert_greedy(runner, chat(runner, QUESTIONS[0]), live.answer("chat"))


def test_answers_that_had_to_give_way_are_whole(runner: Runner) -> None:
    """The forecasts are far too short, so the cells run out."""
    live = Live(runner, n_cells=160, cached_sequences=0)
    live.scheduler.cache.keeping.costs = ANY
    live.engine.handle(Steer(expected=Expect("", (1, 2), (0.5, 0.0))))
    prompts = {question: chat(runner, question) for question in QUESTIONS[:4]}
    endless = Sampling(temperature=0.0, logit_bias=tuple((t, -inf) for t in runner.vocab.eogs))
    for question, prompt in prompts.items():
        live.submit(question, prompt, 40, sampling=endless)
    live.finish()
    stats = live.engine.stats()
    assert stats.overflows > 0
    assert stats.restored > 0
    for question, prompt in prompts.items():
        assert len(live.answer(question)) == 40
        tokens = live.finished(question).counts.prefill_tokens
        assert tokens <= len(prompt) + stats.preemptions * (LEAST + 1)
