"""The model's chat template, run in a sandbox.

The template comes from a file that somebody else made, so it gets jinja2's immutable sandbox, the
same helpers as Hugging Face's renderer and nothing else, and a bounded output. Its time is bounded
by the daemon, which kills this process.
"""

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from appliance.errors import BadRequest

MAX_OUTPUT = 4 * 1024 * 1024
"""Characters that a template may add to what it was given."""
MAX_GROWTH = 4
"""Times that a template may repeat what it was given."""

RESERVED = frozenset(
    {
        "messages",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "bos_token",
        "eos_token",
        "raise_exception",
        "strftime_now",
    }
)
"""Names that `chat_template_kwargs` may not take over."""


class _Refusal(jinja2.TemplateError):
    """The template's own `raise_exception`."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks training targets; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> None:
    raise _Refusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's filter writes it: no HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """What every template gets."""
    box = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    box.filters["tojson"] = _tojson
    box.globals["raise_exception"] = _raise_exception
    box.globals["strftime_now"] = _strftime_now
    return box


class ChatTemplate:
    """One compiled template."""

    def __init__(self, source: str, bos_token: str, eos_token: str) -> None:
        """Raises ValueError when the template does not compile."""
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        box = environment()
        try:
            self._template = box.from_string(source)
            self.variables = jinja2.meta.find_undeclared_variables(box.parse(source))
        except (jinja2.TemplateError, RecursionError) as error:
            raise ValueError(f"the model's chat template does not compile: {error}") from error

    @property
    def takes_tools(self) -> bool:
        return "tools" in self.variables

    def render(self, variables: Mapping[str, Any], size: int) -> str:
        """The prompt. Raises BadRequest when the template refuses its input or fails on it.

        `size` is about how many characters `variables` hold.
        """
        return _guarded(lambda: self._render(variables, MAX_OUTPUT + MAX_GROWTH * size))

    def _render(self, variables: Mapping[str, Any], room: int) -> str:
        chunks = []
        for chunk in self._template.generate({**variables, **self._tokens}):
            room -= len(chunk)
            if room < 0:
                raise ValueError("its output is too long")
            chunks.append(chunk)
        return "".join(chunks)


def _guarded(render: Callable[[], str]) -> str:
    """Foreign code may raise anything; all of it is the request's failure, never ours."""
    try:
        return render()
    except _Refusal as error:
        raise _fault(f"the chat template refuses these messages: {error}") from error
    except (TypeError, AttributeError) as error:
        raise TemplateTypeError(f"the chat template cannot use this input: {error}") from error
    except MemoryError as error:
        raise _fault("the chat template ran out of memory") from error
    except Exception as error:
        raise _fault(f"the chat template failed: {error}") from error


def _fault(message: str) -> BadRequest:
    return BadRequest(message, param="messages", code="template_error")


class TemplateTypeError(BadRequest):
    """The template met a value of a kind it does not expect."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="messages", code="template_error")
