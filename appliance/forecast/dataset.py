"""Prompts and answers that a forecaster is made from. JSONL, one object a line."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

MAX_LINE = 4 * 1024 * 1024
"""Bytes of one line."""

RecordT = TypeVar("RecordT")


class BadDataset(ValueError):
    """A file is not what it should be: says which line, and why."""


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt whose answers' lengths are to be learned."""

    id: str
    messages: tuple[Message, ...]
    source: str = ""
    """Where it comes from: reports show each source apart."""
    use: Literal["train", "evaluation"] = "train"
    """evaluation: never learned from, only tested on."""
    check: Mapping[str, Any] | None = None
    """How an answer can be checked (docs/forecast.md); None: it cannot."""


class Signal(msgspec.Struct, frozen=True, array_like=True):
    """What the model's own distribution tells, every 8 generated tokens."""

    generated: int
    """Tokens so far, this one included: 8, 16, 24, ..."""
    eos_margin: float
    """Nats. The largest of (logit of the likeliest end-of-generation token - largest logit) over
    the tokens since the last signal: 0 where the answer could have ended."""
    entropy: float
    """Nats, of the raw distribution this token was drawn from."""
    logprob: float
    """Nats, of this token in the raw distribution."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model to a prompt."""

    id: str
    """The prompt's."""
    sample: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    finish_reason: str
    """stop: the model ended it. Everything else censors the length."""
    prompt_tokens: int
    completion_tokens: int
    """Every token generated, the end-of-generation token included."""
    token_ids: tuple[int, ...] = ()
    text: str = ""
    signals: tuple[Signal, ...] = ()
    first: tuple[float, ...] = ()
    """Nats. Logits at the end of the prompt, as the engine tells them (FirstLogits)."""

    @property
    def censored(self) -> bool:
        """The model would have gone on: its length is at least this, not this."""
        return self.finish_reason != "stop"


def read(path: Path, kind: type[RecordT]) -> Iterator[RecordT]:
    """The records of a JSONL file, blank lines passed over. Raises BadDataset."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise BadDataset(f"{path}, line {number}: longer than {MAX_LINE} bytes")
                if line.strip():
                    yield _decoded(decoder, line, path, number)
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read: {error.strerror or error}") from error


def _decoded(decoder: "msgspec.json.Decoder[RecordT]", line: bytes, path: Path, n: int) -> RecordT:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadDataset(f"{path}, line {n}: {error}") from error
