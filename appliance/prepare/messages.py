"""What the daemon and the prepare process say to each other.

Framed as in engine/framing.py. The daemon sends one job at a time; the child answers it with
`Phase` marks (they restart the daemon's clock) and then exactly one `Done` or `Failed`.
"""

import struct
from typing import Any, Literal

import msgspec

from appliance.engine.framing import MAX_FRAME, OutOfStep

GrammarType = Literal["gbnf", "lark", "regex"]
ToolsFormat = Literal["hermes", "json"]
PhaseName = Literal["template", "tokenize", "grammar"]

NO_CLOSING = -1
MOST_BYTES = 512 * 1024
"""Of a text that is only to be counted. The tokeniser takes a hundred times as much memory, and
ends the process where there is none; and what it finds is told token by token."""

_LENGTH = struct.Struct("<I")


class PrepareLimits(msgspec.Struct, frozen=True):
    """What one job may cost; from `config.limits`."""

    template_s: float = 2.0
    grammar_compile_s: float = 2.0
    prepare_s: float = 10.0
    grammar_bytes: int = 65536
    tools: int = 128
    context: int = 0
    """Tokens that the engine's context holds. A text that cannot fit is refused by its size alone,
    before anyone spends seconds on counting its tokens. 0: no such check."""
    waiting: int = 256
    """Jobs that may wait for the child; more are refused with 429."""


class ChatJob(msgspec.Struct, frozen=True, omit_defaults=True, tag="chat"):
    """A chat to render, tokenise and constrain. Fields as in the request's body, unchecked."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    """None means OpenAI's default: auto with tools, none without."""
    parallel_tool_calls: bool = True
    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    """llama-server's top-level schema: constrains as response_format json_schema does."""
    grammar: str | None = None
    grammar_type: GrammarType | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: dict[str, Any] = {}
    closing: bool = False
    """Tell `Prepared.closing`."""


class TextJob(msgspec.Struct, frozen=True, omit_defaults=True, tag="text"):
    """A raw prompt, as text or as token ids, to tokenise and constrain."""

    prompt: str | list[int]
    add_special: bool = True
    """Put BOS (and the like) where the model wants it; ignored for token ids."""
    parse_special: bool = True
    """Whether control tokens may be spelled out: right where the prompt is all the caller's own
    (llama-server does it), wrong where a caller pastes foreign text."""
    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    grammar_type: GrammarType | None = None
    closing: bool = False
    """Tell `Prepared.closing`."""


class TokenizeJob(msgspec.Struct, frozen=True, omit_defaults=True, tag="tokenize"):
    content: str
    add_special: bool = False
    parse_special: bool = True


class DetokenizeJob(msgspec.Struct, frozen=True, tag="detokenize"):
    tokens: list[int]


class VocabularyJob(msgspec.Struct, frozen=True, tag="vocabulary"):
    """Every token's piece, in the order of the ids."""


class RenderJob(msgspec.Struct, frozen=True, tag="render"):
    """The chat's prompt text alone."""

    chat: ChatJob


class Piece(msgspec.Struct, frozen=True, array_like=True):
    id: int
    piece: bytes
    """Maybe half a character; control tokens by their text."""


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """A prompt that the engine can take, and how its answer is to be read."""

    prompt: tuple[int, ...]
    text: str
    """The prompt as text; empty where the caller gave token ids."""
    grammar: str | None = None
    """For llguidance's matcher; proven to compile."""
    output: Literal["text", "tools"] = "text"
    tools_format: ToolsFormat | None = None
    """For tools.ToolParser when `output` is "tools"."""
    stop: tuple[str, ...] = ()
    """Stop strings besides the client's own."""
    prefix: str = ""
    """The final message that the answer continues, if it does."""
    closing: int = 0
    """Tokens of the shortest answer that was found for the grammar, where that was asked for; 0
    without a grammar, `NO_CLOSING` where none was found."""


class Pieces(msgspec.Struct, frozen=True, tag="pieces"):
    pieces: tuple[Piece, ...]


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Open(msgspec.Struct, frozen=True, tag="open"):
    """The first message: the model whose vocabulary and template to use, and the size limits."""

    model_path: str
    limits: PrepareLimits
    chat_template: str | None = None
    """Used instead of the model's own."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The child is ready for jobs."""

    n_vocab: int
    chat_template: str
    """The template in use."""
    template_source: Literal["config", "model", "fallback"]


class Phase(msgspec.Struct, frozen=True, tag="phase"):
    name: PhaseName


class Done(msgspec.Struct, frozen=True, tag="done"):
    result: Prepared | Pieces | Text


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The client's fault."""

    message: str
    param: str | None = None
    code: str | None = None


class TooLong(msgspec.Struct, frozen=True, tag="too_long"):
    """The prompt cannot fit into the context."""

    least_tokens: int
    n_ctx: int


class Fatal(msgspec.Struct, frozen=True, tag="fatal"):
    """The child cannot go on (or has a bug): said once, then it exits."""

    message: str


Job = ChatJob | TextJob | TokenizeJob | DetokenizeJob | VocabularyJob | RenderJob
Command = Open | ChatJob | TextJob | TokenizeJob | DetokenizeJob | VocabularyJob | RenderJob
Report = Opened | Phase | Done | Failed | TooLong | Fatal

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


class Unsendable(ValueError):
    """The message holds what cannot travel: a lone surrogate, a huge integer, endless nesting."""


def frame(message: Command | Report) -> bytes:
    """The message as it travels. Raises Unsendable for values that msgpack cannot hold."""
    try:
        body = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
        raise Unsendable(str(error)) from error
    if len(body) > MAX_FRAME:
        raise Unsendable(f"{len(body)} bytes; at most {MAX_FRAME} are allowed")
    return _LENGTH.pack(len(body)) + body


def decode_command(body: bytes) -> Command:
    """Raises OutOfStep when the body is no command."""
    try:
        return _commands.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise OutOfStep(str(error)) from error


def decode_report(body: bytes) -> Report:
    """Raises OutOfStep when the body is no report."""
    try:
        return _reports.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise OutOfStep(str(error)) from error
