"""What every request body shares: strictness, and the fields that steer generation.

`None` always means "the default", because OpenAI's clients and llama-server's send null for it.
"""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

NAME_BYTES = 256
METADATA_PAIRS, METADATA_KEY, METADATA_VALUE = 16, 64, 512
"""OpenAI's limits."""
ADAPTERS, SCALES = 128, 100.0
"""Named in one request, and how strongly one may be applied: as the configuration allows."""

Name = Annotated[str, Field(min_length=1, max_length=NAME_BYTES)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Field(ge=-1, le=2**63 - 1)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Pair = Annotated[tuple[TokenId, Bias | Literal[False]], Strict(False)]
Zero = Annotated[float, Field(ge=0, le=0)]


class Shape(BaseModel):
    """A strict request body: nothing is coerced, nothing unknown is taken."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    HINTS: ClassVar[frozenset[str]] = frozenset()
    """Fields that are taken and change nothing here; the answer says so."""

    def without_effect(self) -> tuple[str, ...]:
        """The hints that this body carries."""
        given = self.model_fields_set & self.HINTS
        return tuple(sorted(name for name in given if getattr(self, name) is not None))

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        """The fields a client may send."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    @cache
    def inner_names(cls) -> tuple[str, ...]:
        """The fields of all shapes inside this one."""
        inner = cls.model_json_schema().get("$defs", {}).values()
        return tuple({name for shape in inner for name in shape.get("properties", {})})


class StreamOptions(Shape):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    """Padding against traffic analysis is not done; the API lists it when asked for."""


Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=METADATA_KEY)],
        Annotated[str, Field(max_length=METADATA_VALUE)],
    ],
    Field(max_length=METADATA_PAIRS),
]


class LoraChoice(Shape):
    """How strongly a LoRA adapter is applied. It is named by its id or by its name."""

    id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    name: Name | None = None
    scale: Annotated[float, Field(ge=-SCALES, le=SCALES)]

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if (self.id is None) == (self.name is None):
            raise ValueError("give the adapter's id or its name (GET /lora-adapters lists both)")
        return self


Loras = Annotated[list[LoraChoice], Field(max_length=ADAPTERS, fail_fast=True)]


class Generation(Shape):
    """The fields that steer generation, the same on every route that generates."""

    model: Name | None = Field(None, description="`default`, the served model's name or an alias.")
    stream: bool | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: str | Texts | None = None
    seed: Seed | None = Field(None, description="-1: a fresh one.")

    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Count | None = Field(None, description="0: all tokens.")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    repeat_last_n: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    logit_bias: (
        dict[Annotated[str, Field(max_length=10)], Bias]
        | Annotated[list[Pair], Field(fail_fast=True)]
        | None
    ) = Field(None, description="Token ids to biases; false in a pair forbids the token.")
    ignore_eos: bool | None = None

    grammar: str | None = None
    grammar_type: Literal["gbnf", "lark", "regex"] | None = None
    json_schema: dict[str, Any] | None = None

    lora: Loras | None = Field(
        None,
        description="The LoRA adapters of this request, those that are not named left out. None: "
        "as `GET /lora-adapters` tells.",
    )
    cache_prompt: bool | None = None
    exclusive: bool | None = Field(
        None,
        description="Run each choice alone, on an emptied cache and without drafts: the same "
        "request then gives the same answer to the last bit. Others wait meanwhile.",
    )
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    return_forecast: bool | None = Field(
        None,
        description="Tell how long each choice is expected to become: in `forecast` of the answer, "
        "and of chunks, whenever that has changed.",
    )
    return_signals: bool | None = Field(
        None,
        description="Give with each choice what the model's own distribution told every 8 tokens: "
        "`[tokens, eos_margin, entropy, logprob]`; and with the first choice of a chat that does "
        "not stream `first_logits`: what it told at the end of the prompt.",
    )
    deadline_s: Annotated[float, Field(gt=0, le=86400)] | None = Field(
        None, description="Seconds the request may take, waiting included."
    )

    mirostat: Annotated[int, Field(ge=0, le=0)] | None = None
    dry_multiplier: Zero | None = None
    xtc_probability: Zero | None = None
    dynatemp_range: Zero | None = None
    top_n_sigma: Annotated[float, Field(ge=-1, le=0)] | None = None
    n_keep: int | None = None
    id_slot: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Texts | None = None
    xtc_threshold: float | None = None
    dynatemp_exponent: float | None = None
    samplers: Texts | str | None = None
    min_keep: int | None = None
    n_discard: int | None = None
    n_indent: Annotated[int, Field(ge=0, le=0)] | None = None
    t_max_predict_ms: Annotated[int, Field(ge=-1, le=0)] | None = None

    HINTS = frozenset(
        {
            "n_keep",
            "id_slot",
            "mirostat_tau",
            "mirostat_eta",
            "dry_base",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "dry_sequence_breakers",
            "xtc_threshold",
            "dynatemp_exponent",
            "samplers",
            "min_keep",
            "n_discard",
        }
    )

    @model_validator(mode="after")
    def _one_grammar(self) -> Self:
        if self.grammar_type is not None and self.grammar is None:
            raise ValueError("grammar_type needs grammar")
        if self.grammar is not None and self.json_schema is not None:
            raise ValueError("give grammar or json_schema, not both")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings as a tuple."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class BudgetShape(Shape):
    """How long the answer shall become."""

    tokens: Annotated[int, Field(ge=1, le=2**31 - 1)]
    mode: Literal["soft", "strict"] | None = Field(
        None,
        description="`strict`: always within 3 tokens, cut if need be. `soft` (the default): may "
        "end outside where no natural end comes.",
    )


class OpenAiGeneration(Generation):
    """What OpenAI's two generating routes share besides."""

    stream_options: StreamOptions | None = None
    max_tokens: Count | None = Field(None, description="0 generates nothing.")
    service_tier: Literal["auto", "default", "priority", "flex"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="Written to the log line of the request."
    )
    metadata: Metadata | None = Field(None, description="Given back in the answer.")
    store: Literal[False] | None = Field(None, description="Nothing is ever stored.")
    budget: BudgetShape | None = Field(
        None,
        description="The answer ends within 3 tokens of so many, at the end of a sentence or line; "
        "each choice tells how it came to that. Only with n = 1.",
    )
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    return_token_ids: bool | None = None

    HINTS = Generation.HINTS | {"safety_identifier", "prompt_cache_key", "prompt_cache_retention"}

    @model_validator(mode="after")
    def _options_need_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        return self

    def without_effect(self) -> tuple[str, ...]:
        options = self.stream_options
        padded = options is not None and bool(options.include_obfuscation)
        own = ("stream_options.include_obfuscation",) if padded else ()
        return (*super().without_effect(), *own)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)
