"""One response on its way out: what all its events, or its one answer, have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from appliance.api.answers import Expected, timings_of, usage_of
from appliance.api.box import Box
from appliance.api.calls import CallsReader
from appliance.api.digests import Digests
from appliance.api.flight import Flight
from appliance.api.gather import Gathered
from appliance.api.intake import now_unix
from appliance.api.responses_answers import (
    Answered,
    CallOutput,
    Failure,
    Incomplete,
    Output,
    renamed_usage,
)
from appliance.api.responses_shapes import ResponsesRequest
from appliance.api.responses_unfolding import Unfolding
from appliance.engine.reports import Finished
from appliance.errors import ApiError
from appliance.prepare.messages import Prepared


class Telling:
    """Makes the response object, at its begin and at its end."""

    def __init__(
        self, box: Box, asked: ResponsesRequest, prepared: Prepared, flight: Flight
    ) -> None:
        self.flight = flight
        self.digests = Digests([prepared.prompt], 1)
        self.token_ids: list[int] = []
        self._asked = asked
        self._prompt = prepared.prompt
        tools = prepared.output == "tools"
        self.unfolding = Unfolding(CallsReader(prepared.tools_format) if tools else None)
        self._told = _echoed(asked, flight)
        self._model = box.model.name
        self._created = now_unix()

    def take(self, token_ids: Sequence[int]) -> None:
        """Tokens of the answer, in their order."""
        self.digests.add(0, token_ids)
        if self._asked.return_token_ids:
            self.token_ids.extend(token_ids)

    def begun(self) -> Answered:
        """As the first events tell it."""
        found = self._answer("in_progress", [])
        found.forecast = self._forecast()
        return found

    def whole(self, gathered: Gathered) -> Answered:
        """The answer of a request without streaming."""
        self.take(gathered.token_ids)
        cut = gathered.end.reason == "length"
        for _ in self.unfolding.feed(gathered.text, gathered.logprobs):
            pass
        for _ in self.unfolding.finish(cut=cut):
            pass
        return self.ended(gathered.end)

    def ended(self, end: Finished) -> Answered:
        """The response with all that there is to tell of it."""
        cut = end.reason == "length"
        items, flight = self.unfolding.items, self.flight
        found = self._answer("incomplete" if cut else "completed", items)
        found.incomplete_details = Incomplete() if cut else None
        found.completed_at = UNSET if cut else now_unix()
        found.usage = renamed_usage(usage_of(flight.counts))
        found.timings = timings_of(flight.counts)
        found.budget = flight.landing(0, end)
        found.confidence_after = flight.judged(0, self._asked.return_forecast)
        found.forecast = self._forecast()
        found.digest = self.digests.of(0)
        if self._asked.return_token_ids:
            found.token_ids, found.prompt_token_ids = self.token_ids, self._prompt
        called = any(isinstance(item, CallOutput) for item in items)
        flight.trace.outcome = "length" if cut else "tool_calls" if called else "stop"
        return found

    def failed(self, fault: ApiError) -> Answered:
        """What there was of it when it failed."""
        found = self._answer("failed", self.unfolding.items)
        found.error = Failure(fault.code or fault.type, fault.message)
        found.usage = _cost(fault)
        return found

    def _forecast(self) -> Expected | UnsetType:
        return self.flight.expected() if self._asked.return_forecast else UNSET

    def _answer(self, status: Any, output: Sequence[Output]) -> Answered:
        return Answered(
            id=self.flight.tickets[0].id,
            created_at=self._created,
            model=self._model,
            status=status,
            output=output,
            **self._told,
        )


def _echoed(asked: ResponsesRequest, flight: Flight) -> dict[str, Any]:
    """What the response repeats of its request, defaults filled in."""
    sampling = flight.tickets[0].request.sampling
    choice, tier, wanted = asked.tool_choice, asked.service_tier, asked.text
    form = wanted.format if wanted is not None else None
    return {
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default" if tier in (None, "auto") else tier,
        "temperature": sampling.temperature,
        "text": {
            "format": form.model_dump(by_alias=True, exclude_none=True)
            if form is not None
            else {"type": "text"}
        },
        "tool_choice": choice if isinstance(choice, str) else _dumped(choice),
        "tools": [tool.model_dump() for tool in asked.tools or ()],
        "top_logprobs": asked.top_logprobs or 0,
        "top_p": sampling.top_p,
        "user": asked.user,
        "metadata": asked.metadata or {},
    }


def _dumped(choice: Any) -> Any:
    return choice.model_dump() if choice is not None else "auto"


def _cost(fault: ApiError) -> Mapping[str, int] | None:
    """What it cost until then, as far as the fault tells."""
    usage = fault.extra.get("usage")
    if not isinstance(usage, dict):
        return None
    return {
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
    }
