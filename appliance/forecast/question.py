"""What is known of a request before it runs. Pure."""

from dataclasses import dataclass
from typing import Literal

Format = Literal["text", "json", "schema", "grammar", "tools"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a chat; a plain completion is one user turn."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A request, as a forecast sees it: one prompt, one choice."""

    turns: tuple[Turn, ...]
    prompt: tuple[int, ...]
    """Token ids as the engine gets them, chat template included."""
    route: str = "chat"
    max_tokens: int = 0
    """The client's limit, or what is left of the context."""
    temperature: float = 0.8
    top_p: float = 0.95
    format: Format = "text"
    ignore_eos: bool = False
