"""The engine's loop around a scripted model: every request ends once, exactly, in every state."""

from collections import Counter
from collections.abc import Callable

import pytest

from appliance.engine.commands import Cancel, Pause, Ping, Sampling, Shutdown
from appliance.engine.reports import Batch, Delta, Finished, Pong, Prefill, Started
from tests.unit.engine_parts import EOS, LETTERS, answer_to
from tests.unit.step_parts import PROMPT, Loop


def spell(text: str, then: int = EOS) -> Callable[[list[int]], int]:
    """A model that writes `text` after `PROMPT`, then `then` for ever."""
    return lambda tokens: (
        LETTERS.index(text.encode()[len(tokens) - len(PROMPT)])
        if len(tokens) - len(PROMPT) < len(text)
        else then
    )


# Answers


@pytest.mark.parametrize("stream", [True, False])
def test_answer_is_whole_and_accounted_for(stream: bool) -> None:
    loop = Loop(spell("hello"))
    loop.submit(stream=stream, max_tokens=50)
    loop.run()
    finished = loop.finished()
    assert loop.text() == "hello"
    assert loop.tokens() == [*(LETTERS.index(c) for c in b"hello"), EOS]
    assert (finished.reason, finished.stop_type) == ("stop", "eos")
    assert (finished.counts.prompt_tokens, finished.counts.completion_tokens) == (20, 6)
    assert finished.counts.hidden_tokens == 1
    assert isinstance(loop.events[-1], Finished)
    assert len(loop.of(Delta)) == (6 if stream else 1)
    assert loop.stays_quiet()


def test_answer_ends_at_max_tokens() -> None:
    loop = Loop()
    loop.submit(max_tokens=7)
    loop.run()
    assert loop.tokens() == answer_to(PROMPT, 7)[20:]
    assert (loop.finished().reason, loop.finished().stop_type) == ("length", "limit")


def test_answer_ends_with_the_context() -> None:
    loop = Loop(n_cells=32)
    loop.submit(max_tokens=1000)
    loop.run()
    assert loop.tokens() == answer_to(PROMPT, 12)[20:]
    assert loop.finished().reason == "length"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_tokens_zero_generates_nothing(n: int) -> None:
    loop = Loop()
    loop.submit(max_tokens=0, n=n)
    loop.run()
    assert loop.runner.steps == 0
    for choice in range(n):
        assert loop.tokens(choice=choice) == []
        assert loop.finished(choice=choice).reason == "length"
        assert loop.finished(choice=choice).counts.completion_tokens == 0
    assert loop.stays_quiet()


def test_every_choice_gets_its_own_answer_and_end() -> None:
    loop = Loop()
    loop.submit(n=3, max_tokens=5)
    loop.run()
    for choice in range(3):
        assert loop.tokens(choice=choice) == answer_to(PROMPT, 5)[20:]
        assert loop.finished(choice=choice).counts.completion_tokens == 5
    assert len(loop.of(Started)) == 1


def test_ends_of_generation_may_be_ignored() -> None:
    loop = Loop(spell("ab"))
    loop.submit(max_tokens=5, sampling=Sampling(temperature=0.0, ignore_eos=True))
    loop.run()
    assert EOS not in loop.tokens()
    assert len(loop.tokens()) == 5


def test_control_tokens_show_when_asked_for() -> None:
    loop = Loop(lambda tokens: EOS if len(tokens) % 2 else 0)
    loop.submit(max_tokens=4, special=True, sampling=Sampling(temperature=0.0, ignore_eos=True))
    loop.run()
    assert "<eos>" not in loop.text()  # forbidden by ignore_eos, so never sampled


# Stops


@pytest.mark.parametrize("draft_tokens", [0, 6])
def test_stop_word_ends_the_answer_exactly(draft_tokens: int) -> None:
    loop = Loop(spell("abcabcabcabxyzabc"), draft_tokens=draft_tokens)
    loop.submit(stop=("xyz",), max_tokens=50, stream=True)
    loop.run()
    finished = loop.finished()
    assert loop.text() == "abcabcabcab"
    assert bytes(LETTERS[token] for token in loop.tokens()) == b"abcabcabcabxyz"
    assert (finished.reason, finished.stop_type, finished.stop_word) == ("stop", "word", "xyz")
    assert finished.counts.completion_tokens == 14
    assert finished.counts.hidden_tokens == 3
    if not draft_tokens:
        assert loop.runner.steps == 14, "not one step more than tokens"


def test_beginning_of_a_stop_word_is_text_when_the_answer_ends_there() -> None:
    loop = Loop(spell("abx"))
    loop.submit(stop=("xyz",), max_tokens=50, stream=True)
    loop.run()
    assert loop.text() == "abx"
    assert loop.finished().stop_type == "eos"


# Drafts


def test_drafts_change_neither_text_nor_counts() -> None:
    answers = []
    for draft_tokens in (0, 6):
        loop = Loop(draft_tokens=draft_tokens)
        loop.submit("a", prompt=[0, 1, 2] * 8, max_tokens=60)
        loop.submit("b", prompt=[2, 1] * 9, max_tokens=60)
        loop.run()
        answers.append((loop.tokens("a"), loop.tokens("b"), loop.runner.steps))
        assert loop.finished("a").counts.completion_tokens == 60
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][2] > answers[1][2], "drafts saved no step"


def test_accepted_drafts_are_counted() -> None:
    loop = Loop(lambda tokens: len(tokens) % 4, draft_tokens=4)
    loop.submit(max_tokens=100)
    loop.run()
    counts = loop.finished().counts
    assert 0 < counts.accepted_tokens <= counts.drafted_tokens
    assert counts.completion_tokens == 100
    assert loop.runner.steps + counts.accepted_tokens == 100


def test_only_steps_without_prompts_teach_what_a_token_costs() -> None:
    loop = Loop()
    loop.runner.step_s = 5.0
    loop.submit(max_tokens=2)
    loop.step()
    assert loop.scheduler.drafter.step_ms(len(PROMPT)) < 11.0
    loop.step()
    assert loop.scheduler.drafter.step_ms(1) > 500.0


# Starting


def test_start_is_published_before_the_step_runs() -> None:
    loop = Loop()
    seen: list[int] = []
    loop.runner.before_run = lambda: seen.append(len(loop.of(Started)))
    loop.submit()
    loop.step()
    assert seen == [1]


def test_cancelled_neighbour_is_told_before_the_step_runs() -> None:
    loop = Loop()
    loop.submit("a")
    loop.submit("b")
    loop.step()
    loop.engine.handle(Cancel("a"))
    seen: list[int] = []
    loop.runner.before_run = lambda: seen.append(len(loop.of(Finished, "a")))
    loop.step()
    assert seen == [1]


def test_preempted_request_starts_once_and_loses_nothing() -> None:
    loop = Loop(n_cells=48, step_tokens=16, prefill_tokens=8)
    for name in "abcd":
        loop.submit(name, prompt=[ord(name) - 97] * 14, max_tokens=20)
    loop.run()
    assert loop.engine.stats().preemptions > 0
    for name in "abcd":
        assert loop.tokens(name) == answer_to([ord(name) - 97] * 14, 20)[14:]
        assert len(loop.of(Started, name)) == 1


def test_request_preempted_in_mid_prompt_starts_once() -> None:
    loop = Loop(n_cells=40, step_tokens=8, prefill_tokens=2)
    loop.submit("old", prompt=(1,) * 8, max_tokens=30)
    loop.step(2)
    loop.submit("young", prompt=(2,) * 29, max_tokens=2)
    loop.run()
    assert loop.engine.stats().preemptions > 0
    assert len(loop.of(Started, "young")) == 1
    assert loop.tokens("young") == answer_to((2,) * 29, 2)[29:]


def test_progress_tells_of_every_chunk_of_the_prompt() -> None:
    loop = Loop(step_tokens=8, prefill_tokens=8)
    loop.submit(progress=True, stream=True, max_tokens=2)
    loop.run()
    assert [(p.processed, p.total) for p in loop.of(Prefill)] == [(8, 20), (16, 20), (20, 20)]
    first_delta = loop.events.index(loop.of(Delta)[0])
    assert loop.events.index(loop.of(Prefill)[-1]) < first_delta


# The account


def test_counts_add_up_to_the_totals() -> None:
    loop = Loop(draft_tokens=4)
    for number in range(6):
        loop.submit(f"r{number}", prompt=[0, 1, 2] * (4 + number), max_tokens=5 * number + 1)
    loop.step(4)
    loop.engine.handle(Cancel("r5"))
    loop.run()
    counts = [event.counts for event in loop.events if isinstance(event, Finished)]
    stats = loop.engine.stats()
    assert len(counts) == 6
    for name in ("cached_tokens", "drafted_tokens", "accepted_tokens"):
        assert getattr(stats, name) == sum(getattr(count, name) for count in counts), name
    assert stats.predicted_tokens == sum(count.completion_tokens for count in counts)
    assert stats.steps == loop.runner.steps
    assert stats.compute_seconds == pytest.approx(0.01 * stats.steps)
    assert (stats.running, stats.waiting) == (0, 0)
    assert stats.kv_used == stats.kv_cached == loop.scheduler.pool.used
    last = loop.reports[-1]
    assert isinstance(last, Batch)
    assert last.stats.predicted_tokens == stats.predicted_tokens


def test_reused_prompt_counts_as_cached_not_as_computed() -> None:
    loop = Loop()
    loop.submit("first", max_tokens=3)
    loop.run()
    loop.submit("second", max_tokens=3)
    loop.run()
    stats = loop.engine.stats()
    assert loop.finished("second").counts.cached_tokens == 19
    assert (stats.prompt_tokens, stats.cached_tokens) == (20 + 1, 19)


def test_times_part_queue_prompt_and_answer() -> None:
    loop = Loop(max_sequences=1)
    loop.submit("first", max_tokens=10)
    loop.submit("second", prompt=(6,) * 70, max_tokens=10)
    loop.run()
    counts = loop.finished("second").counts
    assert counts.queue_ms == pytest.approx(100)  # ten steps of the first
    assert counts.prompt_ms == pytest.approx(20)  # 64 tokens, then 6
    assert counts.decode_ms == pytest.approx(90)


@pytest.mark.parametrize("count", [1, 12])
def test_exactly_one_end_per_choice_whatever_happens(count: int) -> None:
    loop = Loop(n_cells=64, step_tokens=16, prefill_tokens=8, draft_tokens=4)
    for number in range(count):
        loop.submit(
            f"r{number}",
            prompt=[number % 3] * (5 + number),
            n=1 + number % 3,
            max_tokens=number * 3 % 14,
            deadline=loop.runner.now + 0.02 * number if number % 4 == 3 else None,
        )
        loop.step()
        if number % 5 == 4:
            loop.engine.handle(Cancel(f"r{number - 2}"))
    loop.run()
    ends = Counter((e.id, e.choice) for e in loop.events if isinstance(e, Finished))
    expected = {(f"r{i}", choice): 1 for i in range(count) for choice in range(1 + i % 3)}
    assert ends == expected
    assert loop.stays_quiet()


# Looking


def test_ping_is_answered_at_once_with_slots_and_queue() -> None:
    loop = Loop(max_sequences=1)
    loop.submit("running", max_tokens=10)
    loop.submit("waiting", prompt=(6,) * 4)
    loop.step(3)
    loop.engine.handle(Ping(7.0))
    pong = loop.reports[-1]
    assert isinstance(pong, Pong)
    assert pong.at == 7.0
    (slot,) = pong.slots
    assert (slot.request, slot.state, slot.prompt_done, slot.generated) == (
        "running",
        "decode",
        20,
        3,
    )
    assert pong.waiting == ("waiting",)
    assert (pong.stats.running, pong.stats.waiting) == (1, 1)


def test_held_queue_leaves_the_engine_idle() -> None:
    loop = Loop()
    loop.engine.handle(Pause(True))
    loop.submit()
    assert not loop.engine.busy
    loop.engine.handle(Pause(False))
    assert loop.engine.busy


def test_command_that_is_no_request_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Loop().engine.handle(Shutdown())
