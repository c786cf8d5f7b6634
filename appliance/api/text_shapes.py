"""The bodies of everything that is not a chat."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from appliance.api.shapes import Generation, Loras, Name, OpenAiGeneration, Shape, TokenId

PROMPTS = 64
"""Prompts in one request, at most: each takes a place in the queue."""
INPUTS = 2048
"""Texts to embed in one request; OpenAI's limit."""

IDS = 1 << 20
"""Token ids in one prompt, before its real limit, the context, is looked at."""

# Lists fail fast: a body of a million wrong items must not become a million error objects.
Ids = Annotated[list[TokenId], Field(min_length=1, max_length=IDS, fail_fast=True)]
Prompt = (
    str
    | Ids
    | Annotated[list[str], Field(min_length=1, max_length=PROMPTS, fail_fast=True)]
    | Annotated[list[Ids], Field(min_length=1, max_length=PROMPTS, fail_fast=True)]
)


def prompts_of(prompt: Prompt) -> list[str | list[int]]:
    """One entry per prompt."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [[token for token in prompt if isinstance(token, int)]]
    return [entry for entry in prompt if not isinstance(entry, int)]


class CompletionRequest(OpenAiGeneration):
    """POST /v1/completions."""

    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    n_predict: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    echo: Literal[False] | None = Field(None, description="Giving the prompt back is not done.")
    suffix: Literal[""] | None = Field(None, description="Filling in the middle is not done.")
    best_of: Annotated[int, Field(ge=1, le=128)] | None = Field(
        None, description="Only as many as `n`: no choice is thrown away."
    )

    @model_validator(mode="after")
    def _keeps_all_choices(self) -> Self:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise ValueError("best_of: other than n is not supported")
        if None not in (self.max_tokens, self.n_predict) and self.max_tokens != self.n_predict:
            raise ValueError("max_tokens and n_predict disagree: give one")
        return self

    @property
    def limit(self) -> int | None:
        """Tokens per choice; None for the default."""
        if self.max_tokens is not None:
            return self.max_tokens
        return self.n_predict if self.n_predict is not None and self.n_predict >= 0 else None


class NativeRequest(Generation):
    """POST /completion, llama-server's own form."""

    prompt: Prompt
    n_predict: Annotated[int, Field(ge=-2, le=2**31 - 1)] | None = Field(
        None, description="-1 and -2: to the end of the context."
    )
    max_tokens: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    n_cmpl: Annotated[int, Field(ge=1, le=128)] | None = None
    n_probs: Annotated[int, Field(ge=0, le=20)] | None = None
    post_sampling_probs: Literal[False] | None = None
    return_tokens: bool | None = None
    special: bool | None = Field(None, description="Show control tokens in the text.")
    add_special: bool | None = Field(None, description="Put BOS in front where the model wants it.")

    @property
    def limit(self) -> int | None:
        """Tokens per choice; None for the default."""
        for limit in (self.n_predict, self.max_tokens):
            if limit is not None:
                return limit if limit >= 0 else None
        return None


class TokenizeRequest(Shape):
    """POST /tokenize."""

    content: str
    add_special: bool | None = None
    parse_special: bool | None = Field(None, description="Default true, as in llama-server.")
    with_pieces: bool | None = None
    model: Name | None = None


class DetokenizeRequest(Shape):
    """POST /detokenize."""

    tokens: Annotated[list[TokenId], Field(max_length=IDS, fail_fast=True)]
    model: Name | None = None


class EmbeddingRequest(Shape):
    """POST /v1/embeddings."""

    model: Name | None = Field(None, description="`default` or the encoder's name.")
    input: (
        str
        | Ids
        | Annotated[list[str], Field(min_length=1, max_length=INPUTS, fail_fast=True)]
        | Annotated[list[Ids], Field(min_length=1, max_length=INPUTS, fail_fast=True)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=384, le=384)] | None = Field(
        None, description="Shorter vectors are not offered."
    )
    user: Annotated[str, Field(max_length=512)] | None = None


class Document(Shape):
    text: str


class RerankRequest(Shape):
    """POST /v1/rerank: as Jina and Cohere have it (`documents`), or text-embeddings-inference
    (`texts`)."""

    HINTS = frozenset({"max_chunks_per_doc", "priority", "truncate"})

    model: Name | None = Field(None, description="`default` or the encoder's name.")
    query: Annotated[str, Field(min_length=1)]
    documents: (
        Annotated[list[str | Document], Field(min_length=1, max_length=INPUTS, fail_fast=True)]
        | None
    ) = None
    texts: Annotated[list[str], Field(min_length=1, max_length=INPUTS, fail_fast=True)] | None = (
        Field(None, description="Instead of `documents`: the answer is then a list alone.")
    )
    top_n: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="Only so many, the best first."
    )
    return_documents: bool | None = None
    return_text: bool | None = Field(None, description="The same, where `texts` were given.")
    max_tokens_per_doc: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="What is behind them is not looked at. None: all of it is."
    )
    raw_scores: bool | None = Field(None, description="Scores are cosines either way.")
    max_chunks_per_doc: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    priority: Annotated[int, Field(ge=0, le=999)] | None = None
    truncate: bool | None = None
    user: Annotated[str, Field(max_length=512)] | None = None

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if (self.documents is None) == (self.texts is None):
            raise ValueError("documents: give `documents`, or `texts`, and not both")
        return self

    @property
    def entries(self) -> tuple[str, list[str]]:
        """The field that was given, and its texts."""
        if self.documents is None:
            return "texts", self.texts or []
        texts = [given if isinstance(given, str) else given.text for given in self.documents]
        return "documents", texts


class RestartRequest(Shape):
    """POST /admin/engine/restart. The body may be left out."""

    reason: Annotated[str, Field(max_length=200)] | None = None


class ScalesRequest(Shape):
    """POST /lora-adapters."""

    adapters: Loras
