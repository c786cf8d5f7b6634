"""Renders a chat and tokenises it, control tokens from the template only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.engine.vocab import Vocab
from appliance.errors import BadRequest
from appliance.prepare.chatml import CHATML
from appliance.prepare.conversation import Message, Tool, normalise, with_text_arguments
from appliance.prepare.guard import Guard, Mark
from appliance.prepare.messages import ChatJob
from appliance.prepare.template import RESERVED, ChatTemplate, TemplateTypeError
from appliance.prepare.toolprompt import as_plain_text, speaks_hermes


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt's text: `parts` are to be tokenised apart."""

    parts: tuple[str, ...]
    prefix: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Prompter:
    """One model's template and vocabulary."""

    def __init__(self, vocab: Vocab, template: str | None = None) -> None:
        """`template` replaces the model's own. Raises ValueError when one does not compile."""
        self._vocab = vocab
        self._guard = Guard(vocab.control_texts)
        self._bos = vocab.text_of(vocab.bos) if vocab.bos >= 0 else ""
        self._eos = vocab.text_of(vocab.eos) if vocab.eos >= 0 else ""
        self.template = self._compile(template or vocab.chat_template or CHATML)
        own_tools = None if template else vocab.tool_template
        self._tool_template = self._compile(own_tools) if own_tools else self.template

    def _compile(self, source: str) -> ChatTemplate:
        return ChatTemplate(source, self._bos, self._eos)

    def render(self, job: ChatJob, tools: Sequence[Tool]) -> Rendered:
        """The chat as the model expects it. Raises BadRequest."""
        _check(job)
        mark = self._guard.mark()
        messages = [_marked(message, mark) for message in normalise(job.messages)]
        offers = [mark.protect(tool.offer) for tool in tools]
        template = self._tool_template if tools else self.template
        if not speaks_hermes(template) and (tools or not template.takes_tools):
            messages = as_plain_text(messages, offers)
            offers = []
        variables = {
            **{name: mark.protect(value) for name, value in job.template_kwargs.items()},
            "messages": [_known_role(message, template) for message in messages],
            "tools": offers or None,
            "add_generation_prompt": job.add_generation_prompt and not job.continue_final_message,
        }
        if job.continue_final_message:
            return self._continued(template, variables, mark)
        return Rendered(tuple(mark.parts(_render(template, variables))))

    def _continued(self, template: ChatTemplate, variables: dict[str, Any], mark: Mark) -> Rendered:
        """Renders with a stopper at the end of the last message and cuts there."""
        *others, last = variables["messages"]
        if last["role"] != "assistant" or "tool_calls" in last:
            raise _no_continuation("the last message must be the assistant's, without tool calls")
        stopper = self._guard.mark().text
        opened = {**last, "content": last["content"] + stopper}
        text = _render(template, {**variables, "messages": [*others, opened]})
        if text.count(stopper) != 1:
            raise _no_continuation("the chat template does not show the last message as it is")
        parts = mark.parts(text[: text.index(stopper)])
        return Rendered(tuple(parts), prefix=mark.clean(last["content"]))

    def tokenize(self, rendered: Rendered) -> list[int]:
        """The prompt's ids, with exactly one BOS if the model wants one."""
        tokens: list[int] = []
        for number, part in enumerate(rendered.parts):
            tokens += self._first(part) if number == 0 else self._next(part)
        if self._vocab.add_bos and tokens[:1] != [self._vocab.bos]:
            tokens.insert(0, self._vocab.bos)
        return tokens

    def _first(self, part: str) -> list[int]:
        return self._vocab.tokenize(part, add_special=False, parse_special=True)

    def _next(self, part: str) -> list[int]:
        """A part from the middle of a text: SentencePiece must not put a space before it."""
        if not self._vocab.adds_space:
            return self._first(part)
        lead, whole = self._first("\n"), self._first("\n" + part)
        return whole[len(lead) :] if whole[: len(lead)] == lead else self._first(part)


def _check(job: ChatJob) -> None:
    if job.continue_final_message and job.add_generation_prompt:
        raise BadRequest(
            "add_generation_prompt and continue_final_message cannot both be true",
            param="continue_final_message",
        )
    for name in job.template_kwargs:
        if name in RESERVED or not name.isidentifier():
            where = f"chat_template_kwargs.{name}"
            raise BadRequest(f"{where}: this name cannot be set", param="chat_template_kwargs")


def _marked(message: Message, mark: Mark) -> Message:
    """All that the client wrote is protected; the role is one of ours and stays a plain word."""
    return {**mark.protect(message), "role": message["role"]}


def _known_role(message: Message, template: ChatTemplate) -> Message:
    if message["role"] == "developer" and "developer" not in template.source:
        return {**message, "role": "system"}
    return message


def _render(template: ChatTemplate, variables: dict[str, Any]) -> str:
    size = len(repr(variables))
    try:
        return template.render(variables, size)
    except TemplateTypeError:
        messages = variables["messages"]
        if not any("tool_calls" in message for message in messages):
            raise
        return template.render({**variables, "messages": with_text_arguments(messages)}, size)


def _no_continuation(reason: str) -> BadRequest:
    return BadRequest(f"continue_final_message: {reason}", param="continue_final_message")
