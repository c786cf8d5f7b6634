"""The answer of a request that does not stream: every choice, whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import Receive

from appliance.api.answers import Logprob
from appliance.api.flight import Flight, following
from appliance.api.logprobs import Aligner, Pieces
from appliance.engine.reports import Delta, Finished


@dataclass(slots=True)
class Gathered:
    """One choice of a request."""

    index: int
    end: Finished
    text: str = ""
    token_ids: Sequence[int] = ()
    logprobs: list[Logprob] = field(default_factory=list)


async def gather(flight: Flight, receive: Receive, pieces: Pieces) -> list[Gathered]:
    """All choices in their order. Raises what ended the request early, ClientGone among it."""
    deltas: dict[int, list[Delta]] = {}
    found: list[Gathered] = []
    async with following(flight, receive):
        while not flight.landed:
            got = await flight.next()
            if got is None:
                continue
            choice, event = got
            if isinstance(event, Delta):
                deltas.setdefault(choice, []).append(event)
            elif isinstance(event, Finished):
                found.append(_join(choice, event, deltas.get(choice, []), pieces))
    return sorted(found, key=lambda choice: choice.index)


def _join(index: int, end: Finished, deltas: Sequence[Delta], pieces: Pieces) -> Gathered:
    aligner = Aligner()
    joined = Gathered(index, end)
    for delta in deltas:
        joined.text += delta.text
        joined.token_ids = (*joined.token_ids, *delta.token_ids)
        entries = [pieces.logprob(entry) for entry in delta.logprobs]
        joined.logprobs += aligner.feed(delta.text, entries)
    joined.logprobs += aligner.finish()
    return joined
