"""The prompts of the forecast bench: a fixed choice of each source of `$STEELYARD_DATA`.

usage: python -m bench.forecast_prompts > prompts.jsonl

English, Chinese and support questions, and dialogues cut at one of the user's turns. Which ones,
and in what order, their names' hashes decide: the same everywhere, and any first part of them is a
fair choice of all. Where an answer can be checked, the prompt carries the check.
"""

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from appliance.forecast.dataset import Message, Prompt
from bench.forecast_checks import check_of

Record = dict[str, Any]

FILES = ("general", "support", "zh")
COUNTS: Mapping[str, int] = {
    "arena_hard": 160,
    "banking77": 90,
    "bbh": 120,
    "chatterbot_corpus_zh": 50,
    "chinese_llama_alpaca_examples": 80,
    "clinc150": 80,
    "complexbench": 130,
    "crosswoz": 40,
    "gsm8k": 100,
    "hellobench_length_constrained": 20,
    "humaneval": 70,
    "ifeval": 300,
    "lawbench_1_1": 40,
    "longbench_write": 60,
    "mgsm_zh": 50,
    "mt_bench": 64,
    "multiwoz_2.1": 40,
    "nacos_docs_zh": 24,
    "rasa_nlu_training_data": 40,
    "self_instruct_seed": 100,
    "self_instruct_user_oriented": 80,
    "snips_2017": 30,
    "star": 30,
    "truthfulqa": 140,
    "vicuna_blog_eval": 64,
}
"""Prompts of one turn, of each source and file."""
DIALOGUES: Mapping[str, int] = {
    "crosswoz": 30,
    "mt_bench_101": 100,
    "multiwoz_2.1": 40,
    "star": 40,
    "taskmaster4": 30,
}
IN_TWO_FILES = frozenset({"crosswoz", "longbench_write", "multiwoz_2.1", "star"})
"""Told apart by the file."""
ONLY_TEST = "self_instruct_user_oriented"
"""Its authors ask that it is evaluated on, never learned from."""
LONGEST, LONGEST_DIALOGUE = 4000, 8000
"""Characters."""
ROLES = frozenset({"system", "user", "assistant"})


def assemble(data: Path) -> list[Prompt]:
    """2,302 prompts with the data set of the time. Raises OSError."""
    found = [prompt for name in FILES for prompt in _questions(data, name)]
    found += _dialogues(data)
    return sorted(found, key=lambda prompt: _hash(f"{prompt.id}order"))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _by_source(path: Path) -> Iterator[tuple[str, list[Record]]]:
    """Each source's records in the order of their names' hashes."""
    found: dict[str, list[Record]] = defaultdict(list)
    with path.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            found[record["source"]].append(record)
    for source, records in found.items():
        yield source, sorted(records, key=lambda record: _hash(record["id"]))


def _questions(data: Path, name: str) -> Iterator[Prompt]:
    for source, records in _by_source(data / f"prompts_{name}.jsonl"):
        short = [record for record in records if len(record["prompt"]) <= LONGEST]
        shown = f"{source}:{name}" if source in IN_TWO_FILES else source
        for record in short[: COUNTS.get(source, 0)]:
            yield Prompt(
                id=record["id"],
                messages=(Message("user", record["prompt"]),),
                source=shown,
                use="evaluation" if source == ONLY_TEST else "train",
                check=check_of(record),
            )


def _dialogues(data: Path) -> Iterator[Prompt]:
    for source, records in _by_source(data / "dialogues.jsonl"):
        usable = (prompt for record in records if (prompt := _dialogue(record)) is not None)
        for _, prompt in zip(range(DIALOGUES.get(source, 0)), usable, strict=False):
            yield prompt


def _dialogue(record: Record) -> Prompt | None:
    """Up to one of the user's turns; None: the user says nothing, or it is too long."""
    said = [_message(one) for one in record["messages"] if _speaks(one)]
    turns = [place for place, one in enumerate(said) if one.role == "user"]
    if not turns:
        return None
    chosen = turns[int(_hash(f"{record['id']}t")[:6], 16) % len(turns)]
    kept = tuple(said[: chosen + 1])
    if sum(len(one.content) for one in kept) > LONGEST_DIALOGUE:
        return None
    source = f"{record['source']}:dialogues"
    return Prompt(id=f"dialogue-{record['id']}", messages=kept, source=source)


def _speaks(message: Record) -> bool:
    return bool(message.get("content")) and message["role"] in ROLES


def _message(message: Record) -> Message:
    return Message(message["role"], message["content"])


def lines(prompts: Iterable[Prompt]) -> Iterator[bytes]:
    """As JSONL: what `steelyard calibrate --prompts` reads."""
    return (msgspec.json.encode(prompt) + b"\n" for prompt in prompts)


def main() -> int:
    data = os.environ.get("STEELYARD_DATA")
    if not data:
        print("STEELYARD_DATA does not name the data folder (bench/README.md)", file=sys.stderr)
        return 2
    sys.stdout.buffer.writelines(lines(assemble(Path(data))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
