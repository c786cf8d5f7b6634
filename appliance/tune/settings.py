"""What tuning may set, what it weighs, and what one measurement tells. Pure."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """The engine's settings under test, named as in the configuration's section `engine`."""

    threads: int
    threads_batch: int
    batch: int
    ubatch: int
    flash_attention: Literal["auto", "on", "off"]
    kv_type: Literal["f16", "bf16", "q8_0", "q4_0", "f32"]
    gpu_layers: int

    def items(self) -> Iterator[tuple[str, Any]]:
        for name in self.__struct_fields__:
            yield name, getattr(self, name)

    def differing(self, other: "Settings") -> dict[str, Any]:
        """What `self` sets in another way."""
        return {name: value for name, value in self.items() if getattr(other, name) != value}

    def label(self, other: "Settings") -> str:
        """How it differs from `other`, for people."""
        changed = self.differing(other)
        return ", ".join(f"{name} {value}" for name, value in changed.items()) or "as it is"


class Mix(msgspec.Struct, frozen=True):
    """A typical request: prompt tokens that are computed for it, and tokens of its answer."""

    prompt: int = 512
    answer: int = 192
    source: str = "assumed"
    """Where the figures are from, for people."""


class Work(msgspec.Struct, frozen=True):
    """What one measurement runs."""

    prompt: int
    """Tokens read from an empty cache, and at which depth the decoding starts."""
    steps: int
    """Decode steps timed for each entry of `parallel`."""
    parallel: tuple[int, ...]
    """Sequences that decode together; they share out `prompt`."""


class Timing(msgspec.Struct, frozen=True):
    """One measurement, milliseconds per token."""

    prefill_ms: float
    decode_ms: tuple[float, ...]
    """For each entry of `Work.parallel`: a step's time over the tokens it made."""

    def cost(self, mix: Mix) -> float:
        """Milliseconds of the machine that a request of `mix` takes, its answer decoded as often
        in each of the measured companies."""
        decode = sum(self.decode_ms) / len(self.decode_ms)
        return mix.prompt * self.prefill_ms + mix.answer * decode


class Answers(msgspec.Struct, frozen=True):
    """What the settings compute: greedy answers to fixed prompts, alone and together."""

    tokens: tuple[tuple[int, ...], ...]
    bits: str
    """SHA-256 of all logits behind them, in hex."""


Sameness = Literal["same bits", "same tokens", "other tokens"]


def compare(ours: Answers, theirs: Answers) -> Sameness:
    """`same tokens` means of the answers tried: where two tokens are nearly as likely, other bits
    can always bring another one."""
    if ours == theirs:
        return "same bits"
    return "same tokens" if ours.tokens == theirs.tokens else "other tokens"
