"""The prompts of a calibration: from a JSONL file, in either of two forms.

{"id": ..., "messages": [{"role": ..., "content": ...}], ...}   dataset.Prompt; more keys are let be
{"prompt": "text"}                                              named by its place and its hash
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from appliance.forecast.dataset import BadDataset, Message, Prompt, read

MOST = 100_000
"""Prompts of one calibration."""


class _Line(msgspec.Struct, frozen=True):
    """Either form."""

    prompt: str | None = None
    id: str | None = None
    messages: tuple[Message, ...] = ()
    source: str = ""
    use: Literal["train", "evaluation"] = "train"
    check: dict[str, object] | None = None


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of the file, in its order. Raises BadDataset: a line that is neither form, a name
    twice, too many, or none at all."""
    found: dict[str, Prompt] = {}
    for number, line in enumerate(_lines(path), 1):
        prompt = _prompt(line, path, number)
        if prompt.id in found:
            raise BadDataset(f"{path}, prompt {number}: a second one is named {prompt.id[:80]!r}")
        if len(found) == MOST:
            raise BadDataset(f"{path}: more than {MOST} prompts; take fewer")
        found[prompt.id] = prompt
    if not found:
        raise BadDataset(f"{path}: it holds no prompt")
    return list(found.values())


def _lines(path: Path) -> Iterator[_Line]:
    return read(path, _Line)


def _prompt(line: _Line, path: Path, number: int) -> Prompt:
    where = f"{path}, prompt {number}"
    if (line.prompt is None) == (not line.messages):
        raise BadDataset(f"{where}: it needs either `messages` or `prompt`")
    messages = line.messages or (Message("user", line.prompt or ""),)
    if line.messages and line.id is None:
        raise BadDataset(f"{where}: it has no `id`")
    return Prompt(
        id=line.id if line.id is not None else _name(number, messages[0].content),
        messages=messages,
        source=line.source,
        use=line.use,
        check=line.check,
    )


def _name(number: int, text: str) -> str:
    return f"{number}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
