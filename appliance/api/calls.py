"""Tool calls in an answer's text, as OpenAI's objects."""

from appliance.api.answers import Function, ToolCall
from appliance.prepare.messages import ToolsFormat
from appliance.prepare.tools import (
    ContentDelta,
    ToolCallArguments,
    ToolCallStart,
    ToolParser,
)

ToolCalls = list[str | ToolCall]
"""Content and (parts of) calls in the order of the text."""


class CallsReader:
    """Reads one choice. What does not parse as a call is content."""

    def __init__(self, format: ToolsFormat | None) -> None:
        assert format is not None, "an answer with tools has a format"
        self._parser = ToolParser(format)
        self.called = False

    def feed(self, text: str) -> ToolCalls:
        """What `text` adds."""
        return [self._item(found) for found in self._parser.feed(text)]

    def finish(self) -> ToolCalls:
        """What was held back until it was clear that nothing follows."""
        return [self._item(found) for found in self._parser.finish()]

    def _item(self, found: ContentDelta | ToolCallStart | ToolCallArguments) -> str | ToolCall:
        if isinstance(found, ContentDelta):
            return found.text
        if isinstance(found, ToolCallArguments):
            return ToolCall(Function(arguments=found.text), index=found.index)
        self.called = True
        function = Function(name=found.name, arguments="")
        return ToolCall(function, index=found.index, id=found.id, type="function")

    def whole(self, text: str) -> tuple[str | None, list[ToolCall]]:
        """Content and complete calls of an answer; content None where there are calls alone."""
        content = ""
        calls: list[ToolCall] = []
        for item in (*self.feed(text), *self.finish()):
            if isinstance(item, str):
                content += item
            elif item.id:
                calls.append(ToolCall(item.function, id=item.id, type="function"))
            else:
                calls[-1].function.arguments = _joined(calls[-1], item)
        return (None if calls and not content.strip() else content), calls


def _joined(call: ToolCall, more: ToolCall) -> str:
    return f"{call.function.arguments or ''}{more.function.arguments or ''}"
