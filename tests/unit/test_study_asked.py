"""What studies ask: prompts, their perturbations, texts, and the requests made of them."""

import json
from pathlib import Path

import pytest

from appliance.forecast.dataset import Message, Prompt
from appliance.study import grid, structure
from appliance.study.errors import StudyError
from appliance.study.perturbations import ALL, QUICK, REFERENCE
from appliance.study.prompts import built_in, language, load
from appliance.study.texts import BUILT_IN, grouped, script

HELLO = Prompt(id="a", messages=(Message("user", "What is rust?"),))
OTHER = Prompt(id="b", messages=(Message("system", "Be kind."), Message("user", "什么是铁锈？")))


# -- prompts ---------------------------------------------------------------------------------------


def test_built_in_prompts_are_forty_of_two_languages_and_many_kinds() -> None:
    prompts = built_in()
    assert len(prompts) == len({prompt.id for prompt in prompts}) == 40
    tongues = [language(prompt.messages[0].content) for prompt in prompts]
    assert (tongues.count("en"), tongues.count("zh")) == (24, 16)
    assert len({prompt.source for prompt in prompts}) >= 20


def test_first_few_prompts_mix_languages_and_kinds() -> None:
    few = load(None, 8)
    assert {language(prompt.messages[0].content) for prompt in few} == {"en", "zh"}
    assert len({prompt.source for prompt in few}) >= 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "en"), ("12 + 3", "en"), ("Was ist das?", "en"), ("用Python写一个函数", "zh"),
     ("Translate 你好 into English, please.", "en")],
)  # fmt: skip
def test_language_is_that_of_most_of_the_text(text: str, expected: str) -> None:
    assert language(text) == expected


def line(**fields: object) -> str:
    return json.dumps({"id": "a", "messages": [{"role": "user", "content": "x"}], **fields})


def test_prompts_of_a_file_are_taken_in_order(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(line() + "\n\n" + line(id="b", source="s") + "\n")
    assert [prompt.id for prompt in load(file)] == ["a", "b"]
    assert [prompt.id for prompt in load(file, 1)] == ["a"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "holds no prompt"),
        ("{}", "line 1"),
        ("nonsense", "One line a prompt"),
        (line() + "\n" + line(), "two prompts with the id 'a'"),
        (line(messages=[{"role": "system", "content": "x"}]), "no message of a user"),
        (line(messages=[]), "no message of a user"),
    ],
)
def test_bad_prompt_file_is_refused_with_its_fault(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    with pytest.raises(StudyError, match=told):
        load(file)


# -- perturbations ---------------------------------------------------------------------------------


def test_plain_question_is_the_reference_and_has_no_system_message() -> None:
    assert ALL[REFERENCE].name == "plain"
    assert ALL[REFERENCE].apply(OTHER.messages) == OTHER.messages[1:]
    assert QUICK[REFERENCE] is ALL[REFERENCE]


@pytest.mark.parametrize("prompt", [HELLO, OTHER], ids=["en", "zh"])
@pytest.mark.parametrize("way", ALL[1:], ids=lambda way: way.name)
def test_each_perturbation_changes_what_is_sent_and_keeps_the_question(
    way: structure.Perturbation, prompt: Prompt
) -> None:
    plain = ALL[REFERENCE].apply(prompt.messages)
    changed = way.apply(prompt.messages)
    assert changed != plain
    assert changed[-1].role == "user"
    marks = str.maketrans("", "", "？? ")
    kept = changed[-1].content.lower().translate(marks)
    assert plain[-1].content.lower().translate(marks) in kept


def test_perturbations_speak_the_language_of_the_question() -> None:
    brief = next(way for way in ALL if way.name == "brief")
    assert brief.apply(HELLO.messages)[-1].content == "What is rust? Answer briefly."
    assert brief.apply(OTHER.messages)[-1].content == "什么是铁锈？请简短回答。"
    system = next(way for way in ALL if way.name == "short system")
    assert system.apply(OTHER.messages)[0] == Message("system", "你是一个乐于助人的助手。")


def test_only_the_last_question_of_a_dialogue_is_changed() -> None:
    talk = (Message("user", "A?"), Message("assistant", "B."), Message("user", "C?"))
    lower = next(way for way in ALL if way.name == "lower case")
    assert [message.content for message in lower.apply(talk)] == ["A?", "B.", "c?"]


# -- requests --------------------------------------------------------------------------------------


def test_grid_asks_temperature_zero_once_per_prompt() -> None:
    settings = grid.Settings((0.0, 1.0), (0.5, 1.0), samples=3, max_tokens=9)
    found = list(grid.jobs([HELLO, OTHER], settings))
    assert len(found) == 2 * (1 + 2 * 3)
    assert len({job.key for job in found}) == len(found)
    assert [job.body["top_p"] for job in found if job.body["temperature"] == 0] == [1.0, 1.0]
    assert {job.body["max_tokens"] for job in found} == {9}


def test_cells_of_the_grid_share_their_seeds_and_samples_do_not() -> None:
    settings = grid.Settings((0.5, 1.0), (1.0,), samples=2)
    seeds = [job.body["seed"] for job in grid.jobs([HELLO], settings)]
    assert seeds[:2] == seeds[2:]
    assert len(set(seeds)) == 2
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_perturbations_do_not_share_seeds_for_they_are_compared_with_chance() -> None:
    found = list(structure.jobs([HELLO, OTHER], structure.Settings(samples=2)))
    assert len(found) == len({job.key for job in found}) == 2 * len(ALL) * 2
    assert len({job.body["seed"] for job in found}) == len(found)


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Guten Tag", "Latin"), ("你好，世界", "Chinese"), ("こんにちは世界", "Japanese"),
     ("안녕하세요", "Korean"), ("Привет", "Cyrillic"), ("مرحبا", "Arabic"), ("नमस्ते", "Devanagari"),
     ("Γειά", "Greek"), ("12:30 🎉", "No letters"), ("שלום", "Other"),
     ("Das Wort 秤 heißt Waage, und so weiter.", "Latin")],
)  # fmt: skip
def test_script_of_a_line_is_recognised(text: str, expected: str) -> None:
    assert script(text) == expected


def test_lines_of_a_file_are_grouped_by_script(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("one\n\n你好\r\ntwo\n", encoding="utf-8")
    found = grouped(file)
    assert found["Latin"] == ("one", "two")
    assert found["Chinese"] == ("你好",)


@pytest.mark.parametrize(("data", "told"), [(b"\n \n", "no text"), (b"\xff\xfe", "UTF-8")])
def test_file_without_text_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "text").write_bytes(data)
    with pytest.raises(StudyError, match=told):
        grouped(tmp_path / "text")


def test_built_in_texts_are_of_ten_kinds_without_an_empty_line() -> None:
    assert len(BUILT_IN) == 10
    assert all(line.strip() for lines in BUILT_IN.values() for line in lines)
