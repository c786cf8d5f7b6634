"""What a token takes on this box, in device time: learned from every request that ends."""

from dataclasses import dataclass

MEMORY_TOKENS = 1_000_000
"""Beyond so many, older ones count half: a box that is set up anew tells its new pace soon."""


@dataclass(slots=True)
class Pace:
    """Nanoseconds over tokens, of prompts and of answers. Belongs to the event loop."""

    prefill_ns: float = 0.0
    prefill_tokens: float = 0.0
    decode_ns: float = 0.0
    decode_tokens: float = 0.0

    def add(
        self, *, prefill_ns: int, prefill_tokens: int, decode_ns: int, completion_tokens: int
    ) -> None:
        """One more request. Of one that lost its engine no device time is known."""
        if not prefill_ns + decode_ns:
            return
        self.prefill_ns += prefill_ns
        self.prefill_tokens += prefill_tokens
        self.decode_ns += decode_ns
        self.decode_tokens += completion_tokens
        if self.prefill_tokens + self.decode_tokens > MEMORY_TOKENS:
            self._halve()

    def _halve(self) -> None:
        self.prefill_ns /= 2
        self.prefill_tokens /= 2
        self.decode_ns /= 2
        self.decode_tokens /= 2

    @property
    def known(self) -> bool:
        """Whether both halves were seen."""
        return self.prefill_tokens > 0 and self.decode_tokens > 0

    def prefill(self, tokens: int) -> int:
        """Nanoseconds to compute a prompt; 0 where nothing is known."""
        return round(tokens * self.prefill_ns / self.prefill_tokens) if self.prefill_tokens else 0

    def decode(self, tokens: int) -> int:
        """Nanoseconds to generate so many tokens; 0 where nothing is known."""
        return round(tokens * self.decode_ns / self.decode_tokens) if self.decode_tokens else 0
