"""The answers that the forecast's benchmark keeps and reads: lengths and signals, no words."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.forecast.dataset import Answered, BadDataset, Message, Prompt, Signal
from bench.forecast_answers import Released, load, pack, with_signals
from bench.forecast_prompts import assemble


def make_answer(name: str = "p1", sample: int = 0, **changes: Any) -> Answered:
    fields: dict[str, Any] = {
        "id": name,
        "sample": sample,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 512,
        "seed": 7,
        "finish_reason": "stop",
        "prompt_tokens": 11,
        "completion_tokens": 9,
        "token_ids": (1, 2, 3),
        "text": "The secret is 42.",
        "signals": (Signal(8, -1.23456, 0.98765, -0.5),),
    }
    return Answered(**{**fields, **changes})


def make_prompt(**changes: Any) -> Prompt:
    check = {"type": "number", "value": 42}
    return Prompt(id="p1", messages=(Message("user", "Which?"),), check=check, **changes)


def test_released_answers_hold_lengths_and_signals_but_no_words(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl.gz"
    assert pack([make_answer(sample=1), make_answer()], {"p1": make_prompt()}, out) == 2
    plain = gzip.decompress(out.read_bytes())
    assert b"secret" not in plain
    assert b"Which" not in plain
    found = load(out)
    assert [one.sample for one in found] == [0, 1]
    assert found[0].passed is True
    assert found[0].completion_tokens == 9
    assert found[0].signals == (Signal(8, -1.23, 0.99, -0.5),)
    assert found[0].answered() == make_answer(token_ids=(), text="", signals=found[0].signals)


def test_the_same_answers_are_released_as_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "1.gz", tmp_path / "2.gz"
    answers = [make_answer(sample=n) for n in range(4)]
    pack(answers, {}, one)
    pack(reversed(answers), {}, other)
    assert one.read_bytes() == other.read_bytes()


def test_an_answer_that_cannot_be_checked_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl.gz"
    pack([make_answer()], {}, out)
    assert load(out)[0].passed is None
    pack([make_answer(text="41")], {"p1": make_prompt()}, out)
    assert load(out)[0].passed is False


def test_whole_answers_are_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(msgspec.json.encode(make_answer()) + b"\n\n")
    assert load(path) == [Released(*[getattr(make_answer(), n) for n in _KEPT], None, _SIGNALS)]


_KEPT = Released.__struct_fields__[:9]
_SIGNALS = (Signal(8, -1.23, 0.99, -0.5),)


def test_signals_gathered_apart_find_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    line = {"id": "p1", "sample": 1, "temperature": 0.7, "signals": [[8, 0, 1, 2]]}
    path.write_text(json.dumps(line) + "\n")
    bare = [make_answer(sample=n, signals=()) for n in range(2)]
    found = with_signals(bare, path)
    assert [one.signals for one in found] == [(), (Signal(8, 0, 1, 2),)]


@pytest.mark.parametrize("content", [b'["half', b'{"id": 3}\n', b"[1, 2]\n"])
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadDataset, match=r"a\.jsonl, line 1"):
        load(path)


def test_a_torn_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"[]" * 999)[:-9])
    with pytest.raises(BadDataset, match="cannot be read"):
        load(path)


def make_data(folder: Path) -> Path:
    files: dict[str, list[dict[str, Any]]] = {
        "prompts_general": [
            *({"id": f"g{n}", "source": "gsm8k", "prompt": "?", "ref": "4"} for n in range(150)),
            {"id": "long", "source": "gsm8k", "prompt": "x" * 5000, "ref": "4"},
            {"id": "u", "source": "self_instruct_user_oriented", "prompt": "hi"},
            {"id": "odd", "source": "not chosen", "prompt": "hi"},
        ],
        "prompts_support": [{"id": "s", "source": "star", "prompt": "help"}],
        "prompts_zh": [],
        "dialogues": [
            {"id": "d", "source": "star", "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "tool", "content": "seen"},
                {"role": "user", "content": "three"},
            ]},
            {"id": "e", "source": "star", "messages": [{"role": "system", "content": "alone"}]},
        ],
    }  # fmt: skip
    for name, records in files.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def test_prompts_are_chosen_by_their_names_alone(tmp_path: Path) -> None:
    found = assemble(make_data(tmp_path))
    sources = [prompt.source for prompt in found]
    assert sources.count("gsm8k") == 100
    assert {"star:support", "star:dialogues"} < set(sources)
    assert "not chosen" not in sources
    assert [p.id for p in found] == [p.id for p in assemble(tmp_path)]
    assert "long" not in {p.id for p in found}


def test_what_may_only_be_evaluated_on_says_so(tmp_path: Path) -> None:
    uses = {prompt.source: prompt.use for prompt in assemble(make_data(tmp_path))}
    assert uses["self_instruct_user_oriented"] == "evaluation"
    assert uses["gsm8k"] == "train"


def test_a_dialogue_ends_with_something_the_user_says(tmp_path: Path) -> None:
    (dialogue,) = (p for p in assemble(make_data(tmp_path)) if p.source == "star:dialogues")
    assert dialogue.messages[-1].role == "user"
    assert {message.role for message in dialogue.messages} <= {"system", "user", "assistant"}


def test_an_answer_with_a_reference_can_be_checked(tmp_path: Path) -> None:
    found = {prompt.source: prompt for prompt in assemble(make_data(tmp_path))}
    assert found["gsm8k"].check == {"type": "number", "value": 4.0}
    assert found["star:support"].check is None
