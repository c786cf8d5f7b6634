"""The stream of a response: typed, numbered events, the last of which holds the whole response."""

from collections.abc import Iterable

from appliance.api.answers import Logprob, encode
from appliance.api.responses_answers import Happened
from appliance.api.responses_telling import Telling
from appliance.api.streaming import EventStream
from appliance.engine.reports import Delta, Finished, Prefill
from appliance.errors import ApiError


class ResponseWriter:
    """The events of a streamed response."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._number = 0

    def progress(self, prefill: Prefill) -> bytes:
        return b""  # Nobody can ask for it here: the API has no event for it.

    def delta(self, choice: int, delta: Delta, logprobs: list[Logprob]) -> bytes:
        opening = self._opening()
        self._telling.take(delta.token_ids)
        return opening + self._written(self._telling.unfolding.feed(delta.text, logprobs))

    def finished(self, choice: int, end: Finished, logprobs: list[Logprob]) -> bytes:
        cut = end.reason == "length"
        data = self._opening() + self._written(self._telling.unfolding.feed("", logprobs))
        data += self._written(self._telling.unfolding.finish(cut=cut))
        kind = "response.incomplete" if cut else "response.completed"
        return data + self._event(Happened(kind, response=self._telling.ended(end)))

    def closing(self) -> bytes:
        return b""

    def failed(self, fault: ApiError) -> bytes:
        """The response as far as it came, then the error, by which SDKs raise."""
        failed = Happened("response.failed", response=self._telling.failed(fault))
        error = Happened(
            "error",
            code=fault.code or fault.type,
            message=fault.message,
            param=fault.param,
            error=fault.body()["error"],
        )
        return self._opening() + self._event(failed) + self._event(error)

    def _opening(self) -> bytes:
        """Before anything else: that there is a response."""
        if self._number:
            return b""
        begun = self._telling.begun()
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._event(Happened(kind, response=begun)) for kind in kinds)

    def _written(self, events: Iterable[Happened]) -> bytes:
        """Each is encoded before the next one is made: they share the item that grows."""
        return b"".join([self._event(happened) for happened in events])

    def _event(self, happened: Happened) -> bytes:
        happened.sequence_number = self._number
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (happened.type.encode(), encode(happened))


class ResponseStream(EventStream):
    """A fault, too, comes in the form of this API."""

    def _last(self, fault: ApiError) -> bytes:
        writer = self._writer
        assert isinstance(writer, ResponseWriter)
        return writer.failed(fault)
