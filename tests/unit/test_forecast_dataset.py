"""Prompts and answers as they stand in JSONL files."""

import json
from pathlib import Path

import msgspec
import pytest

from appliance.forecast import dataset
from appliance.forecast.dataset import Answered, BadDataset, Message, Prompt, Signal, read

PROMPT = {"id": "a", "messages": [{"role": "user", "content": "为什么？ 🎉"}]}
ANSWER = {
    "id": "a", "sample": 0, "temperature": 0.7, "top_p": 0.95, "max_tokens": 512, "seed": 3,
    "finish_reason": "stop", "prompt_tokens": 9, "completion_tokens": 17,
}  # fmt: skip


def written(folder: Path, *lines: object) -> Path:
    """A file of these lines; what is no text is spelt as JSON."""
    file = folder / "set.jsonl"
    parts = [x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines]
    file.write_bytes(b"\n".join(parts))
    return file


def prompts(folder: Path, *lines: object) -> list[Prompt]:
    return list(read(written(folder, *lines), Prompt))


def answers(folder: Path, *lines: object) -> list[Answered]:
    return list(read(written(folder, *lines), Answered))


# -- what is read ----------------------------------------------------------------------------------


def test_prompt_needs_an_id_and_messages_and_the_rest_has_defaults(tmp_path: Path) -> None:
    assert prompts(tmp_path, PROMPT) == [
        Prompt(
            id="a", messages=(Message("user", "为什么？ 🎉"),), source="", use="train", check=None
        )
    ]


def test_fields_of_others_are_passed_over(tmp_path: Path) -> None:
    (found,) = prompts(tmp_path, {**PROMPT, "lang": "zh", "category": 3, "ref": None})
    assert found.id == "a"


def test_answer_keeps_tokens_text_and_signals(tmp_path: Path) -> None:
    told = {**ANSWER, "token_ids": [1, 2], "text": "x\ny", "signals": [[8, -2.5, 1.25, -0.5]]}
    (found,) = answers(tmp_path, told)
    assert (found.token_ids, found.text) == ((1, 2), "x\ny")
    assert found.signals == (Signal(8, -2.5, 1.25, -0.5),)


def test_whole_numbers_do_for_fractions(tmp_path: Path) -> None:
    (found,) = answers(tmp_path, {**ANSWER, "temperature": 1, "signals": [[8, 0, 1, -2]]})
    assert found.temperature == 1.0
    assert found.signals[0].eos_margin == 0.0


@pytest.mark.parametrize(
    ("reason", "censored"),
    [("stop", False), ("length", True), ("cancelled", True), ("deadline", True), ("", True)],
)
def test_only_an_answer_that_ended_by_itself_tells_its_length(
    tmp_path: Path, reason: str, censored: bool
) -> None:
    (found,) = answers(tmp_path, {**ANSWER, "finish_reason": reason})
    assert found.censored is censored


def test_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    prompt = Prompt(
        id="b", messages=(Message("user", "?"),), use="evaluation", check={"kind": "number"}
    )
    assert prompts(tmp_path, msgspec.json.encode(prompt)) == [prompt]


def test_blank_lines_windows_line_ends_and_a_missing_last_one_do_no_harm(tmp_path: Path) -> None:
    line = json.dumps(PROMPT).encode()
    file = tmp_path / "set.jsonl"
    file.write_bytes(b"\n  \n" + line + b"\r\n\t\n" + line)
    assert len(list(read(file, Prompt))) == 2


def test_empty_file_holds_no_records(tmp_path: Path) -> None:
    assert prompts(tmp_path) == []


def test_records_are_read_one_by_one_so_the_good_ones_before_a_bad_one_come(
    tmp_path: Path,
) -> None:
    found = read(written(tmp_path, PROMPT, b"{"), Prompt)
    assert next(found).id == "a"
    with pytest.raises(BadDataset, match="line 2"):
        next(found)


def test_line_of_just_the_bound_is_read_and_a_longer_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(PROMPT).encode()
    monkeypatch.setattr(dataset, "MAX_LINE", len(line) + 1)
    assert len(prompts(tmp_path, line, b"")) == 1
    with pytest.raises(BadDataset, match=f"line 1: longer than {len(line) + 1} bytes"):
        prompts(tmp_path, line + b" " * 2)


def test_endless_line_is_refused_without_reading_it_whole() -> None:
    with pytest.raises(BadDataset, match="longer than"):
        list(read(Path("/dev/zero"), Prompt))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"null",
        b"3",
        b"not JSON",
        b'{"id": "a"}',
        b'{"messages": []}',
        b'{"id": 3, "messages": []}',
        b'{"id": null, "messages": []}',
        b'{"id": "a", "messages": "hello"}',
        b'{"id": "a", "messages": [{"role": "user"}]}',
        b'{"id": "a", "messages": [{"role": "user", "content": [{"type": "text"}]}]}',
        b'{"id": "a", "messages": [], "use": "test"}',
        b'{"id": "a", "messages": [], "check": "exact"}',
        b'{"id": "\xff", "messages": []}',
        b'{"id": "a", "messages": []} {}',
        b"\xef\xbb\xbf" + json.dumps(PROMPT).encode(),
        json.dumps(PROMPT).encode("utf-16"),
        b"\0",
    ],
)
def test_bad_prompt_is_refused_with_file_and_line(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(BadDataset, match=r"set\.jsonl, line 3: "):
        prompts(tmp_path, PROMPT, PROMPT, line)


@pytest.mark.parametrize(
    "change",
    [
        {"sample": "0"},
        {"sample": 0.5},
        {"completion_tokens": None},
        {"completion_tokens": 17.5},
        {"temperature": "hot"},
        {"finish_reason": None},
        {"token_ids": [1, "2"]},
        {"token_ids": 3},
        {"signals": [[8, 0.0, 1.0]]},
        {"signals": [[8, None, 1.0, 0.0]]},
        {"signals": [{"generated": 8, "eos_margin": 0, "entropy": 1, "logprob": 0}]},
        {"text": None},
    ],
    ids=str,
)
def test_bad_answer_is_refused_with_its_field(tmp_path: Path, change: dict[str, object]) -> None:
    (field,) = change
    with pytest.raises(BadDataset, match=rf"line 1: .*{field}"):
        answers(tmp_path, {**ANSWER, **change})


@pytest.mark.parametrize("field", ANSWER)
def test_answer_without_a_field_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(BadDataset, match=field):
        answers(tmp_path, {name: value for name, value in ANSWER.items() if name != field})


def test_not_a_number_is_no_json(tmp_path: Path) -> None:
    line = json.dumps({**ANSWER, "temperature": float("nan")}).encode()
    with pytest.raises(BadDataset, match="line 1"):
        answers(tmp_path, line)


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    line = b'{"id": "a", "messages": [], "check": {"x": ' + deep + b"}}"
    with pytest.raises(BadDataset, match="line 1"):
        prompts(tmp_path, line)


def test_torn_last_line_of_an_interrupted_writer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="line 2"):
        answers(tmp_path, ANSWER, json.dumps(ANSWER).encode()[:-7])


def test_missing_file_and_a_directory_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="cannot be read: No such file"):
        list(read(tmp_path / "none.jsonl", Prompt))
    with pytest.raises(BadDataset, match="cannot be read: Is a directory"):
        list(read(tmp_path, Prompt))
