"""Answers with a budget around a scripted model: where they end, and that each token counts."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from appliance.engine.commands import Budget, Cancel, Sampling
from appliance.engine.landing import LEAD, OVER, SLACK
from appliance.engine.plan import Chunk
from appliance.engine.reports import Delta, Finished, Landing
from appliance.engine.vocab import Vocab
from tests.unit.engine_parts import EOS, FakeRunner, FakeVocab, next_token
from tests.unit.step_parts import PROMPT, Loop, no_grammar

PIECES = {26: b".", 27: b" ", 28: b"\n", 29: b"```", 25: b"\xe5", 24: b"\xa5", 23: b"\xbd"}
"""The last three are one Chinese character."""
DOT, SPACE, LINE, FENCE = 26, 27, 28, 29
LETTER = 0
SURE, LIKELY = 20.0, 18.0

Script = Callable[[list[int]], dict[int, float]]


class Marked(FakeVocab):
    hidden = frozenset({31})

    def piece(self, token: int, special: bool = False) -> bytes:
        if token in self.hidden or token == EOS:
            return b""
        return PIECES.get(token) or super().piece(token, special)

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return [{"```": FENCE, "\n": LINE}[part] for part in ("\n", "```") if part in text]


class Weighted(FakeRunner):
    """`script` tells the logits after the answer so far; what it leaves out has none."""

    def __init__(self, script: Script, n_ctx: int) -> None:
        super().__init__(n_ctx=n_ctx)
        self.vocab = cast(Vocab, Marked())
        self._script = script

    def _row(self, chunk: Chunk, i: int) -> NDArray[np.float32]:
        seen = chunk.start + len(chunk.tokens) - chunk.outputs + i + 1
        tokens = self._mirror.tokens(chunk.sequence.seq_id)[:seen]
        row = np.full(Marked.n_tokens, -30.0, dtype=np.float32)
        for token, logit in self._script(tokens[len(PROMPT) :]).items():
            row[token] = logit
        return row


def answering(script: Script, *, n_cells: int = 256, **limits: int) -> Loop:
    loop = Loop(next_token, no_grammar, n_cells=n_cells, **limits)
    loop.runner = Weighted(script, n_cells)
    loop.engine._runner = loop.runner
    loop.engine._clock = loop.runner.clock
    return loop


def words(answer: list[int]) -> dict[int, float]:
    """Words of five letters, never a sentence's end."""
    return {SPACE if len(answer) % 6 == 5 else LETTER: SURE}


def letters_up_to(place: int) -> Script:
    """One word, then a space."""
    return lambda answer: {SPACE if len(answer) == place else LETTER: SURE}


def sentences(length: int) -> Script:
    """The same, a dot and a space after so many tokens."""

    def script(answer: list[int]) -> dict[int, float]:
        place = len(answer) % length
        return (
            {DOT: SURE}
            if place == length - 2
            else {SPACE: SURE}
            if place == length - 1
            else words(answer)
        )

    return script


def run(loop: Loop, tokens: int, mode: str = "soft", **fields: Any) -> Finished:
    """Runs one answer to its end; what was told of it must fit its account."""
    fields.setdefault("max_tokens", 200)
    loop.submit(budget=Budget(tokens, mode), **fields)  # type: ignore[arg-type]
    loop.run()
    end = loop.finished()
    assert end.counts.completion_tokens == len(loop.tokens())
    assert end.counts.computed_tokens >= end.counts.completion_tokens
    return end


def landed(end: Finished, tokens: int) -> tuple[Landing, bool]:
    return end.landing, abs(end.counts.completion_tokens - tokens) <= SLACK


@settings(max_examples=30)
@given(st.integers(20, 60), st.integers(0, 1000), st.sampled_from([DOT, LINE, FENCE, SPACE]))
def test_soft_and_strict_are_the_same_answer_unless_it_must_be_cut(
    tokens: int, seed: int, end: int
) -> None:
    def script(answer: list[int]) -> dict[int, float]:
        return {LETTER: 8.0, 1: 8.0, SPACE: 6.0, LINE: 4.0, end: 5.0}

    ends, answers = [], []
    for mode in ("soft", "strict"):
        loop = answering(script)
        sampling = Sampling(temperature=1.0, seed=seed)
        ends.append(run(loop, tokens, mode, sampling=sampling))
        answers.append(loop.tokens())
    if ends[1].landing != "forced":
        assert answers[0] == answers[1]
        assert ends[0].landing == ends[1].landing


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tokens", [10, 40, 70])
def test_an_answer_that_would_end_early_goes_on_to_its_budget(tokens: int, stream: bool) -> None:
    def script(answer: list[int]) -> dict[int, float]:
        return {EOS: SURE, **dict.fromkeys(sentences(6)(answer), LIKELY)}

    loop = answering(script)
    end = run(loop, tokens, stream=stream)
    assert landed(end, tokens) == ("steered", True)
    assert end.reason == "stop"


@pytest.mark.parametrize("mode", ["soft", "strict"])
@pytest.mark.parametrize("tokens", [25, 26, 27])
def test_the_models_own_end_in_the_middle_of_a_character_is_not_taken(
    tokens: int, mode: str
) -> None:
    def script(answer: list[int]) -> dict[int, float]:
        part = len(answer) % 3
        return {(25, 24, 23)[part]: LIKELY, EOS: SURE if part else LIKELY - 4}

    loop = answering(script)
    end = run(loop, tokens, mode)
    said = [token for token in loop.tokens() if token != EOS]
    assert len(said) % 3 == 0
    if mode == "strict":
        assert abs(end.counts.completion_tokens - tokens) <= SLACK


def test_the_models_own_end_in_the_window_is_natural() -> None:
    loop = answering(lambda answer: {EOS: SURE} if len(answer) == 40 else words(answer))
    end = run(loop, 40)
    assert landed(end, 40) == ("natural", True)
    assert (end.counts.completion_tokens, end.counts.hidden_tokens) == (41, 1)
    assert end.counts.computed_tokens == 41


def test_a_sentence_ends_where_the_model_finds_that_likeliest() -> None:
    def script(answer: list[int]) -> dict[int, float]:
        found = words(answer)
        if len(answer) in (38, 40):
            found[DOT] = {38: SURE - 3, 40: SURE - 2}[len(answer)]
        return found

    loop = answering(script)
    assert landed(run(loop, 40, "strict"), 40) == ("steered", True)
    assert len(loop.tokens()) == 41
    assert loop.text().endswith(".")


def test_a_strict_answer_without_any_boundary_is_cut_in_the_window() -> None:
    loop = answering(words)
    end = run(loop, 40, "strict")
    assert landed(end, 40) == ("forced", True)
    assert end.reason == "length"
    assert not loop.text().endswith(".")
    assert end.counts.computed_tokens > end.counts.completion_tokens + LEAD


def test_a_soft_answer_goes_on_to_the_next_boundary() -> None:
    loop = answering(lambda answer: {DOT: SURE} if len(answer) == 59 else words(answer))
    end = run(loop, 40)
    assert landed(end, 40) == ("gave_way", False)
    assert (end.reason, end.counts.completion_tokens) == ("stop", 60)


def test_a_soft_answer_does_not_go_on_for_ever() -> None:
    loop = answering(words)
    end = run(loop, 40)
    assert landed(end, 40) == ("forced", False)
    assert (end.reason, end.counts.completion_tokens) == ("length", 40 + OVER)


def test_max_tokens_holds_whatever_the_budget_is() -> None:
    loop = answering(words)
    end = run(loop, 40, max_tokens=42)
    assert (end.reason, end.counts.completion_tokens) == ("length", 42)


def test_nothing_of_a_try_is_told_before_it_is_decided() -> None:
    loop = answering(words)
    loop.submit(budget=Budget(60, "strict"), max_tokens=200, stream=True)
    told = []
    while loop.engine.busy:
        loop.step()
        told.append(len(loop.tokens()))
    before = [count for count in told if count < told[-1]]
    assert max(before) == 60 - LEAD
    assert told == sorted(told)


def test_cancelled_within_a_try_only_what_was_told_is_counted() -> None:
    loop = answering(words)
    loop.submit(budget=Budget(60, "strict"), max_tokens=200, stream=True)
    loop.step(50)
    loop.engine.handle(Cancel("r"))
    loop.run()
    end = loop.finished()
    assert end.reason == "cancelled"
    assert end.counts.completion_tokens == len(loop.tokens()) == 60 - LEAD
    assert end.counts.computed_tokens > 60 - LEAD
    assert end.landing == ""


def test_a_stop_string_goes_before_the_budget() -> None:
    for place, landing in ((30, "gave_way"), (52, "gave_way"), (58, "natural")):
        loop = answering(letters_up_to(place))
        end = run(loop, 60, stop=(" ",))
        assert (end.stop_type, end.landing) == ("word", landing)
        assert end.counts.completion_tokens == place + 1


def test_a_code_fence_is_closed_in_time() -> None:
    def script(answer: list[int]) -> dict[int, float]:
        start = {0: FENCE, 1: LINE}
        return {start.get(len(answer), LINE if len(answer) % 5 == 0 else LETTER): SURE}

    for mode in ("soft", "strict"):
        loop = answering(script)
        end = run(loop, 50, mode)
        assert landed(end, 50) == ("closed", True)
        assert end.reason == "stop"
        assert loop.text().count("```") == 2
        assert loop.text().endswith("\n```")


def test_no_character_is_cut_in_two() -> None:
    for tokens in range(40, 46):
        loop = answering(lambda answer: {(25, 24, 23)[len(answer) % 3]: SURE})
        assert landed(run(loop, tokens, "strict"), tokens) == ("forced", True)
        assert set(loop.text()) == {"好"}


def test_every_token_has_its_log_probability() -> None:
    for script in (
        words,
        sentences(9),
        lambda answer: {FENCE if len(answer) == 0 else LETTER: SURE},
    ):
        loop = answering(script)
        run(loop, 40, "strict", sampling=Sampling(temperature=0.0, logprobs=0))
        told = [entry.token_id for delta in loop.of(Delta) for entry in delta.logprobs]
        assert told == loop.tokens()


def test_the_same_seed_gives_the_same_answer() -> None:
    def script(answer: list[int]) -> dict[int, float]:
        return dict.fromkeys((1, 2, 3, SPACE), SURE)

    answers = []
    for _ in range(2):
        loop = answering(script)
        run(loop, 50, "strict", sampling=Sampling(temperature=1.0, seed=5), exclusive=True)
        answers.append(loop.tokens())
    assert answers[0] == answers[1]


def crowd() -> st.SearchStrategy[list[tuple[int, str, int, bool]]]:
    request = st.tuples(
        st.integers(1, 60),
        st.sampled_from(["soft", "strict", ""]),
        st.integers(0, 3),
        st.booleans(),
    )
    return st.lists(request, min_size=1, max_size=6)


@settings(max_examples=40)
@given(crowd(), st.integers(3, 30), st.integers(110, 300), st.integers(0, 5))
def test_in_company_and_short_of_cells_every_answer_is_kept_to_its_budget(
    requests: list[tuple[int, str, int, bool]], length: int, n_cells: int, drafts: int
) -> None:
    loop = answering(sentences(length), n_cells=n_cells, draft_tokens=drafts)
    for number, (tokens, mode, seed, stream) in enumerate(requests):
        budget = Budget(tokens, mode) if mode else None  # type: ignore[arg-type]
        loop.submit(
            str(number), budget=budget, max_tokens=80, stream=stream,
            sampling=Sampling(temperature=0.5 * seed, seed=seed),
        )  # fmt: skip
    loop.run(8000)
    for number, (tokens, mode, _, _) in enumerate(requests):
        end = loop.finished(str(number))
        assert end.counts.completion_tokens == len(loop.tokens(str(number))) <= 80
        if mode == "strict":
            assert abs(end.counts.completion_tokens - tokens) <= SLACK
