"""Where prompts come from: files, the ledger; and what a model's own tokens say of them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.calibrate import questions
from appliance.calibrate.cases import of_past, of_prompts
from appliance.calibrate.history import Past, read_ledger
from appliance.calibrate.prompts import read_prompts
from appliance.forecast.dataset import BadDataset, Message
from appliance.forecast.question import Question, Turn
from appliance.forecast.spelling import turns_of
from appliance.ledger.rows import ChoiceRow
from appliance.ledger.writer import Ledger
from tests.unit.calibrate_box import answered, prompt
from tests.unit.ledger_parts import payload, request

# -- files ---------------------------------------------------------------------------------------


def told(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_both_forms_of_a_line_are_read(tmp_path: Path) -> None:
    first, second = read_prompts(
        told(
            tmp_path,
            '{"id": "a", "messages": [{"role": "user", "content": "Hi"}], "source": "s", "ref": 1}',
            "",
            '{"prompt": "Say 你好"}',
        )
    )
    assert (first.id, first.source, first.use) == ("a", "s", "train")
    assert second.messages == (Message("user", "Say 你好"),)
    assert second.id.startswith("2-")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 1"),
        ("\x00", "line 1"),
        ("[]", "line 1"),
        ('{"id": "a"}', "needs either `messages` or `prompt`"),
        ('{"prompt": "x", "messages": [{"role": "user", "content": "x"}]}', "needs either"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "has no `id`"),
        ('{"prompt": "x", "use": "both"}', "line 1"),
        ("", "holds no prompt"),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_place(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(BadDataset, match=r"prompts\.jsonl") as caught:
        read_prompts(told(tmp_path, line))
    assert why in str(caught.value)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    line = '{"id": "a", "messages": [{"role": "user", "content": "x"}]}'
    with pytest.raises(BadDataset, match="prompt 2: a second one is named 'a'"):
        read_prompts(told(tmp_path, line, line))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="cannot be read"):
        read_prompts(tmp_path / "none")


# -- turns out of tokens -------------------------------------------------------------------------

CHATML = ["", "system\nBe kind.", "\n", "user\nHi\nthere", "\n", "assistant\n"]
LLAMA = ["", "system", "\n\nBe kind.", "user", "\n\nHi\nthere", "assistant", "\n\n"]
GEMMA = ["", "user\nHi\nthere", "\n", "model\nYes?", "\n", "user\nGo.", "\n", "model\n"]


@pytest.mark.parametrize("parts", [CHATML, LLAMA])
def test_turns_are_found_again_in_what_a_template_made(parts: list[str]) -> None:
    assert turns_of(parts) == (Turn("system", "Be kind."), Turn("user", "Hi\nthere"))


def test_other_words_for_a_role_are_understood() -> None:
    assert [turn.role for turn in turns_of(GEMMA)] == ["user", "assistant", "user"]


def test_a_plain_text_is_one_user_turn() -> None:
    assert turns_of(["", "Once upon a time"]) == (Turn("user", "Once upon a time"),)
    assert turns_of(["", " \n"]) == ()
    assert turns_of([]) == ()


@given(st.lists(st.text(max_size=20), max_size=6))
def test_no_text_breaks_it(parts: list[str]) -> None:
    assert all(turn.text.strip() for turn in turns_of(parts))


# -- the ledger ----------------------------------------------------------------------------------


class Bytes(questions.Reader):
    """One turn that says the token ids."""

    def __init__(self) -> None:
        pass

    def turns(self, ids: object) -> tuple[Turn, ...]:
        return (Turn("user", str(ids)),)


def choice(tokens: int = 5, **given: str) -> ChoiceRow:
    fields = {"outcome": "stop", "stop_type": "eos"} | given
    return ChoiceRow(completion_tokens=tokens, hidden_tokens=1, digest="", **fields)  # type: ignore[arg-type]


def test_what_was_asked_is_learned_from_and_what_tells_nothing_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger.open(path)
    kept: list[dict[str, Any]] = [
        {"choices": (choice(5), choice(9, outcome="length", stop_type="limit"))},
        {"outcome": "cancelled", "choices": (choice(3, outcome="cancelled", stop_type="none"),)},
    ]
    left_out: list[dict[str, Any]] = [
        {"outcome": "failed"},
        {"scenario": "calibration"},
        {"model_sha256": "ef" * 32},
        {"sampling": {"grammar_sha256": "00"}},
        {"route": "/admin/audit/{trace_id}/replay"},
        {"choices": (choice(0),)},
    ]
    for number, fields in enumerate([*kept, *left_out], 1):
        ledger.record(request(number, **fields), payload())
    ledger.record(request(99), None)  # its tokens were dropped
    assert ledger.flush(20)
    found = read_ledger(path, "ab" * 32, Bytes())
    ledger.close()
    assert len(found) == 2
    cut, whole = found
    assert [(one.completion_tokens, one.censored) for one in whole.answers] == [
        (5, False), (9, True),
    ]  # fmt: skip
    assert [one.censored for one in cut.answers] == [True]
    assert whole.question.prompt == tuple(range(10))
    assert (whole.question.temperature, whole.question.max_tokens) == (0.7, 64)
    assert whole.question.route == "chat"


def test_the_same_prompt_asked_again_is_one_case() -> None:
    same = Question((Turn("user", "x"),), (1, 2), max_tokens=8)
    other = Question((Turn("user", "x"),), (1, 2), max_tokens=9)
    past = [Past(one, (answered("a"),)) for one in (same, other, same)]
    assert sorted(len(one.answers) for one in of_past(past)) == [1, 2]


def test_answers_under_another_sampling_are_another_case() -> None:
    prompts = [prompt("a"), prompt("b")]
    asked = {"a": Question((Turn("user", "x"),), (1,)), "b": Question((Turn("user", "y"),), (2,))}
    answers = [answered("a"), answered("a", 1), answered("a", temperature=0.0), answered("c")]
    found = of_prompts(prompts, answers, asked)
    assert [(one.name, one.question.temperature, len(one.answers)) for one in found] == [
        ("a", 0.0, 1), ("a", 0.7, 2),
    ]  # fmt: skip
