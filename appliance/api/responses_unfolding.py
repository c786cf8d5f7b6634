"""How a response's output comes to be: text and calls of the model, item by item, as the events
that a stream tells. Whoever does not stream keeps the items alone. Pure."""

import secrets
from collections.abc import Iterator
from typing import Any

from appliance.api.answers import Logprob, ToolCall
from appliance.api.calls import CallsReader
from appliance.api.responses_answers import (
    CallOutput,
    Happened,
    ItemStatus,
    MessageOutput,
    Output,
    OutputText,
)


class Unfolding:
    """The output of one response. Its last item is open until `finish()`."""

    def __init__(self, reader: CallsReader | None) -> None:
        """`reader` finds the calls; None where there can be none."""
        self.items: list[Output] = []
        self._reader = reader
        self._open: Output | None = None
        self._blank = ""
        """White space before anything else of a message: between calls it is none."""
        self._logprobs: list[Logprob] = []
        """Those of text that is still to come out of the reader."""

    def feed(self, text: str, logprobs: list[Logprob]) -> Iterator[Happened]:
        """What the model said next."""
        self._logprobs += logprobs
        if self._reader is None:
            yield from self._said(text)
            return
        for found in self._reader.feed(text):
            yield from self._found(found)

    def finish(self, *, cut: bool) -> Iterator[Happened]:
        """Nothing follows. `cut`: it ended for want of tokens. There is one item at least."""
        for found in self._reader.finish() if self._reader is not None else ():
            yield from self._found(found)
        if not self.items:
            yield from self._begin_message()
            yield from self._said(self._blank)
        yield from self._close("incomplete" if cut else "completed")

    def _found(self, found: str | ToolCall) -> Iterator[Happened]:
        if isinstance(found, str):
            yield from self._text_between(found)
        elif isinstance(found.id, str):
            yield from self._begin_call(found.id, str(found.function.name))
        elif isinstance(self._open, CallOutput):
            more = str(found.function.arguments)
            self._open.arguments += more
            yield self._of_open("response.function_call_arguments.delta", delta=more)

    def _text_between(self, text: str) -> Iterator[Happened]:
        """Text where there may be calls: what is blank waits for what is not."""
        if not isinstance(self._open, MessageOutput):
            text = self._blank + text
            self._blank = "" if text.strip() else text
            if self._blank:
                return
        yield from self._said(text)

    def _said(self, text: str) -> Iterator[Happened]:
        if not text:
            return
        if not isinstance(self._open, MessageOutput):
            yield from self._close("completed")
            yield from self._begin_message()
        assert isinstance(self._open, MessageOutput)
        (part,) = self._open.content
        told, self._logprobs = self._logprobs, []
        part.text += text
        part.logprobs += told
        yield self._of_open(
            "response.output_text.delta", content_index=0, delta=text, logprobs=told
        )

    def _begin_message(self) -> Iterator[Happened]:
        message = MessageOutput("msg_" + secrets.token_hex(12))
        yield self._begin(message)
        message.content.append(OutputText())
        yield self._of_open("response.content_part.added", content_index=0, part=message.content[0])

    def _begin_call(self, call_id: str, name: str) -> Iterator[Happened]:
        yield from self._close("completed")
        self._blank = ""
        self._logprobs = []
        yield self._begin(CallOutput("fc_" + secrets.token_hex(12), call_id, name))

    def _begin(self, item: Output) -> Happened:
        self._open = item
        self.items.append(item)
        place = len(self.items) - 1
        return Happened("response.output_item.added", output_index=place, item=item)

    def _close(self, status: ItemStatus) -> Iterator[Happened]:
        item = self._open
        if item is None:
            return
        if isinstance(item, MessageOutput):
            (part,) = item.content
            yield self._of_open(
                "response.output_text.done",
                content_index=0,
                text=part.text,
                logprobs=part.logprobs,
            )
            yield self._of_open("response.content_part.done", content_index=0, part=part)
        else:
            yield self._of_open(
                "response.function_call_arguments.done",
                name=item.name,
                arguments=item.arguments,
            )
        item.status = status
        self._open = None
        place = len(self.items) - 1
        yield Happened("response.output_item.done", output_index=place, item=item)

    def _of_open(self, kind: str, **members: Any) -> Happened:
        """An event about the open item. To be written before the item changes again."""
        assert self._open is not None
        place = len(self.items) - 1
        return Happened(kind, output_index=place, item_id=self._open.id, **members)
