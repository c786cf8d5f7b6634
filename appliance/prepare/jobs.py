"""What the prepare process does with a job: pure but for the phases it announces."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from llguidance import LLTokenizer

from appliance.engine.closing import Closing, orders_of
from appliance.engine.constrain import Constraint, ConstraintError
from appliance.engine.vocab import Vocab
from appliance.errors import BadRequest
from appliance.prepare import toolgrammar
from appliance.prepare.conversation import Tool, read_tools
from appliance.prepare.grammar import (
    Schema,
    invalid_grammar,
    invalid_schema,
    prove,
    raw_grammar,
    response_schema,
    schema_grammar,
)
from appliance.prepare.messages import (
    MOST_BYTES,
    NO_CLOSING,
    ChatJob,
    DetokenizeJob,
    Job,
    PhaseName,
    Piece,
    Pieces,
    Prepared,
    PrepareLimits,
    RenderJob,
    Text,
    TextJob,
    TokenizeJob,
    VocabularyJob,
)
from appliance.prepare.prompt import Prompter


class PromptTooLong(Exception):
    """The prompt has at least `least` tokens, more than the context holds."""

    def __init__(self, least: int, n_ctx: int) -> None:
        super().__init__(least, n_ctx)
        self.least = least
        self.n_ctx = n_ctx


class Worker:
    """Does jobs for one model, one at a time."""

    def __init__(
        self,
        vocab: Vocab,
        limits: PrepareLimits,
        announce: Callable[[PhaseName], None],
        template: str | None = None,
    ) -> None:
        self._vocab = vocab
        self._limits = limits
        self._announce = announce
        self.prompter = Prompter(vocab, template)

    @cached_property
    def tokenizer(self) -> LLTokenizer:
        return self._vocab.lltokenizer()

    def do(self, job: Job) -> Prepared | Pieces | Text:
        """The job's result. Raises BadRequest."""
        match job:
            case ChatJob():
                return self._chat(job)
            case TextJob():
                return self._text(job)
            case RenderJob():
                return self._render(job)
            case TokenizeJob():
                return self._tokenize(job)
            case DetokenizeJob():
                return self._detokenize(job)
            case VocabularyJob():
                return Pieces(tuple(map(Piece, range(self._vocab.n_tokens), self._vocab.pieces)))

    def _chat(self, job: ChatJob) -> Prepared:
        tools, forced = _offered(job, self._limits.tools)
        self._announce("template")
        rendered = self.prompter.render(job, tools)
        self._announce("tokenize")
        self._bound(rendered.text)
        prompt = tuple(self.prompter.tokenize(rendered))
        self._announce("grammar")
        grammar = self._tools_grammar(job, tools, forced) if tools else self._grammar(job)
        return Prepared(
            prompt=prompt,
            text=rendered.text,
            grammar=grammar,
            output="tools" if tools else "text",
            tools_format=("json" if forced else "hermes") if tools else None,
            prefix=rendered.prefix,
            closing=self._closing(job, grammar),
        )

    def _text(self, job: TextJob) -> Prepared:
        self._announce("tokenize")
        if isinstance(job.prompt, str):
            self._bound(job.prompt)
            ids = self._vocab.tokenize(job.prompt, job.add_special, job.parse_special)
            text = job.prompt
        else:
            ids, text = self._checked(job.prompt, "prompt"), ""
        self._announce("grammar")
        grammar = self._grammar(job)
        closing = self._closing(job, grammar)
        return Prepared(prompt=tuple(ids), text=text, grammar=grammar, closing=closing)

    def _render(self, job: RenderJob) -> Text:
        tools, _ = _offered(job.chat, self._limits.tools)
        self._announce("template")
        return Text(self.prompter.render(job.chat, tools).text)

    def _tokenize(self, job: TokenizeJob) -> Pieces:
        size = len(job.content.encode("utf-8", "replace"))
        if size > MOST_BYTES:
            raise BadRequest(
                f"content has {size} bytes; at most {MOST_BYTES} are tokenised at a time: split it",
                param="content",
                code="too_large",
            )
        self._announce("tokenize")
        ids = self._vocab.tokenize(job.content, job.add_special, job.parse_special)
        return Pieces(tuple(Piece(i, self._vocab.piece(i, special=True)) for i in ids))

    def _detokenize(self, job: DetokenizeJob) -> Text:
        ids = self._checked(job.tokens, "tokens")
        return Text(self._vocab.detokenize(ids, special=True).decode("utf-8", "replace"))

    def _bound(self, text: str) -> None:
        """Raises PromptTooLong for a text that cannot fit, by its size alone."""
        least = len(text.encode("utf-8", "replace")) // self._vocab.longest_piece
        if 0 < self._limits.context < least:
            raise PromptTooLong(least, self._limits.context)

    def _checked(self, tokens: list[int], param: str) -> list[int]:
        for place, token in enumerate(tokens):
            if not 0 <= token < self._vocab.n_tokens:
                raise BadRequest(
                    f"{param}[{place}] is {token}; this model's token ids go from 0 to "
                    f"{self._vocab.n_tokens - 1}",
                    param=param,
                )
        return tokens

    def _grammar(self, job: ChatJob | TextJob) -> str | None:
        """The grammar of an answer without tools, proven to compile."""
        wanted = _answer(job)
        if job.grammar is None and wanted is None:
            return None
        most = self._limits.grammar_bytes
        try:
            if wanted is not None:
                grammar = schema_grammar(*wanted, most)
            else:
                grammar = raw_grammar(job.grammar or "", job.grammar_type, most)
            prove(self.tokenizer, grammar)
        except ConstraintError as error:
            reason = str(error)
            raise (
                invalid_schema(wanted[1], reason) if wanted else invalid_grammar(reason)
            ) from error
        return grammar

    def _closing(self, job: ChatJob | TextJob, grammar: str | None) -> int:
        """Tokens of the shortest answer that is found within the grammar."""
        if not job.closing or grammar is None:
            return 0
        constraint = Constraint(self.tokenizer, grammar)
        try:
            path = Closing(orders_of(self._vocab), self._vocab, constraint).path
        except ConstraintError:
            return NO_CLOSING
        return NO_CLOSING if path is None else len(path)

    def _tools_grammar(self, job: ChatJob, tools: Sequence[Tool], forced: bool) -> str:
        if job.grammar is not None:
            raise BadRequest("grammar cannot be combined with tools", param="grammar")
        most = self._limits.grammar_bytes
        parallel = job.parallel_tool_calls and not isinstance(job.tool_choice, dict)
        toolgrammar.check(self.tokenizer, tools, most)
        if forced:
            grammar = toolgrammar.forced(tools, parallel, most)
        else:
            self._grammar(job)
            grammar = toolgrammar.optional(tools, parallel, most, _answer(job))
        try:
            prove(self.tokenizer, grammar)
        except ConstraintError as error:
            raise invalid_schema("tools", str(error)) from error
        return grammar


def _answer(job: ChatJob | TextJob) -> tuple[Schema, str] | None:
    """The schema that the answer must follow and the field it came from; one at most."""
    schema = response_schema(job.response_format)
    if (schema is not None) + (job.json_schema is not None) + (job.grammar is not None) > 1:
        raise BadRequest(
            "response_format, json_schema and grammar exclude each other: send one",
            param="grammar" if job.grammar is not None else "json_schema",
        )
    if job.json_schema is not None:
        return job.json_schema, "json_schema"
    return None if schema is None else (schema, "response_format")


def _offered(job: ChatJob, most: int) -> tuple[list[Tool], bool]:
    """The tools that the model may call, and whether it must."""
    tools = read_tools(job.tools, most)
    match job.tool_choice:
        case "none":
            return [], False
        case None | "auto":
            return tools, False
        case "required" if tools:
            return tools, True
        case "required":
            raise BadRequest("tool_choice is required, but no tools are given", param="tool_choice")
        case {"type": "function", "function": {"name": str(name)}}:
            return [_named(tools, name)], True
    raise BadRequest(
        'tool_choice must be "none", "auto", "required" or '
        '{"type": "function", "function": {"name": …}}',
        param="tool_choice",
    )


def _named(tools: Sequence[Tool], name: Any) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    raise BadRequest(f"tool_choice names {name!r}, which is not among tools", param="tool_choice")
