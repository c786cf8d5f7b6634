"""What was asked on the chat screen and what came back. Pure: the stream's events in, facts out.

Nothing that comes is trusted: what is not shaped as the box's events are ends the answer as cut.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Phase = Literal["waiting", "reading", "writing", "done", "refused", "cut", "stopped"]
RUNNING: tuple[Phase, ...] = ("waiting", "reading", "writing")
_SEED = b"steelyard-token-v1\n"


class _Delta(msgspec.Struct):
    content: str | None = None


class Kept(msgspec.Struct, frozen=True):
    """What became of the answer's budget."""

    tokens: int
    within: bool
    ended: str


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None
    token_ids: list[int] = msgspec.field(default_factory=list)
    budget: Kept | None = None


class _Cached(msgspec.Struct):
    cached_tokens: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Cached = msgspec.field(default_factory=_Cached)


class _Timings(msgspec.Struct):
    prompt_ms: float
    predicted_ms: float
    queue_ms: float = 0.0


class _Progress(msgspec.Struct):
    total: int
    processed: int


class Forecast(msgspec.Struct, frozen=True):
    """Tokens that the answer is expected to have at its end."""

    p10: int
    p50: int
    p90: int


class _Error(msgspec.Struct):
    message: str
    code: str | int | None = None


class _Event(msgspec.Struct):
    """What is read of one event; docs/http.md has the rest."""

    id: str = ""
    choices: list[_Choice] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    timings: _Timings | None = None
    prompt_progress: _Progress | None = None
    forecast: Forecast | None = None
    prompt_token_ids: list[int] = msgspec.field(default_factory=list)
    digest: str = msgspec.field(default="", name="X-Token-Diff-SHA256")
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class Exchange:
    """One question and its answer, as far as it has come."""

    prompt: str
    phase: Phase = "waiting"
    id: str = ""
    pieces: list[str] = field(default_factory=list)
    read_tok: tuple[int, int] = (0, 0)
    """Of the prompt: read, in all."""
    prompt_ids: list[int] = field(default_factory=list)
    answer_ids: list[int] = field(default_factory=list)
    prompt_tok: int | None = None
    cached_tok: int = 0
    answer_tok: int | None = None
    foretold: Forecast | None = None
    """Before the answer began; None: the box tells none."""
    forecast: Forecast | None = None
    """As it was refined last."""
    ttft_ms: float | None = None
    """As the box measured it: waiting in the queue and reading the prompt."""
    total_ms: float | None = None
    finish: str = ""
    kept: Kept | None = None
    digest: str = ""
    row: int | None = None
    """Its row in the ledger, once that is known."""
    problem: str = ""
    """Why it was refused or cut, as the box or the connection said it."""
    _text: str = ""

    @property
    def running(self) -> bool:
        return self.phase in RUNNING

    @property
    def text(self) -> str:
        """The answer so far."""
        if self.pieces:
            self._text += "".join(self.pieces)
            self.pieces.clear()
        return self._text

    @property
    def matches(self) -> bool | None:
        """Whether the tokens that came here have the digest that the box signed for; None: it sent
        none, or not all tokens."""
        whole = self.digest and self.prompt_ids and self.answer_tok == len(self.answer_ids)
        return digest(self.prompt_ids, self.answer_ids) == self.digest if whole else None

    def take(self, data: str) -> None:
        """One event of the stream."""
        try:
            event = _decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            self._cut(f"{error}: {data[:80]}")
            return
        if event.error is not None:
            code = event.error.code
            self._cut(event.error.message + (f" [{code}]" if code is not None else ""))
            return
        self._note(event)
        for choice in event.choices:
            self._write(choice)

    def end(self, problem: str | None) -> None:
        """The stream is over; `problem`: why, when it was not meant to be."""
        if not self.running:
            return
        if problem is None and self.finish:
            self.phase = "done"
        elif problem is not None and self.phase == "waiting" and not self.id:
            self.phase, self.problem = "refused", problem
        else:
            self._cut(problem or "")

    def stop(self) -> None:
        """The operator has ended it."""
        if self.running:
            self.phase = "stopped"

    def _cut(self, why: str) -> None:
        self.phase, self.problem = "cut", why

    def _note(self, event: _Event) -> None:
        self.id = event.id or self.id
        self.prompt_ids = event.prompt_token_ids or self.prompt_ids
        self.digest = event.digest or self.digest
        if (progress := event.prompt_progress) is not None:
            self.phase, self.read_tok = "reading", (progress.processed, progress.total)
        if event.forecast is not None:
            self.foretold = self.foretold or event.forecast
            self.forecast = event.forecast
        if (timings := event.timings) is not None:
            self.ttft_ms = timings.queue_ms + timings.prompt_ms
            self.total_ms = self.ttft_ms + timings.predicted_ms
        if (usage := event.usage) is not None:
            self.prompt_tok, self.answer_tok = usage.prompt_tokens, usage.completion_tokens
            self.cached_tok = usage.prompt_tokens_details.cached_tokens

    def _write(self, choice: _Choice) -> None:
        self.phase = "writing"
        self.answer_ids += choice.token_ids
        if choice.delta.content:
            self.pieces.append(choice.delta.content)
        self.finish = choice.finish_reason or self.finish
        self.kept = choice.budget or self.kept


def digest(prompt: Sequence[int], answer: Sequence[int]) -> str:
    """The token digest, version 1 (docs/diff-protocol.md); empty where an id is none."""
    said = hashlib.sha256(_SEED)
    try:
        for position, token in enumerate([*prompt, *answer], start=1):
            said.update(struct.pack("<II", token, position))
    except struct.error:
        return ""
    return said.hexdigest()


def messages(exchanges: Iterable[Exchange], system: str, prompt: str) -> list[dict[str, str]]:
    """What goes to the box: what was answered before, then the new question."""
    found = [_said("system", system)] if system.strip() else []
    for exchange in exchanges:
        if exchange.text:
            found += [_said("user", exchange.prompt), _said("assistant", exchange.text)]
    return [*found, _said("user", prompt)]


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def transcript(exchanges: Iterable[Exchange], you: str, box: str) -> str:
    """The whole conversation as a text for a file."""
    parts = []
    for exchange in exchanges:
        parts.append(f"{you}: {exchange.prompt}\n\n{box}: {exchange.text}\n")
        if exchange.digest:
            parts.append(f"[{exchange.id}, {exchange.digest}]\n")
    return inert("\n".join(parts))


def inert(text: str) -> str:
    """Text that a terminal may be shown and a shell be given: control characters are escaped."""
    return "".join(
        sign if sign in "\n\t" or sign.isprintable() else _escaped(sign) for sign in text
    )


def _escaped(sign: str) -> str:
    return f"\\x{ord(sign):02x}" if ord(sign) < 0x100 else f"\\u{ord(sign):04x}"


def row_of(entries: Any) -> int | None:
    """The ledger row in an answer of GET /admin/requests/{id}; None while it is not written."""
    found = entries.get("entries") if isinstance(entries, Mapping) else None
    last = found[-1] if isinstance(found, list) and found else None
    row = last.get("seq") if isinstance(last, Mapping) else None
    return row if isinstance(row, int) else None
