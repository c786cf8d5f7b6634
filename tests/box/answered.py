"""How the tests with the official client read its answers."""

from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.box.running import RunningBox

MODEL = "default"
IDS = {"return_token_ids": True}
"""Extra fields that make an answer tell its token ids."""


def extra(of: Any, name: str) -> Any:
    """A field that the client's types do not know."""
    return of.model_extra[name]


def check_usage(answer: ChatCompletion | Completion) -> None:
    """The counts are those of the token ids in the same answer."""
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens == len(extra(answer, "prompt_token_ids"))
    assert usage.completion_tokens == sum(len(extra(c, "token_ids")) for c in answer.choices)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def joined(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    return "".join(
        choice.delta.content or "" for c in chunks for choice in c.choices if choice.index == index
    )


def ids_of(chunks: list[ChatCompletionChunk], index: int = 0) -> list[int]:
    found: list[int] = []
    for chunk in chunks:
        for choice in chunk.choices:
            if choice.index == index:
                found += (choice.model_extra or {}).get("token_ids", [])
    return found


def text_of(box: RunningBox, ids: list[int]) -> str:
    text: str = box.http.post("/detokenize", json={"tokens": ids}).json()["content"]
    return text


def ids_for(box: RunningBox, text: str) -> list[int]:
    ids: list[int] = box.http.post("/tokenize", json={"content": text}).json()["tokens"]
    return ids
