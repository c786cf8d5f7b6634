"""Which LoRA adapters a request chooses."""

from collections.abc import Sequence

from appliance.adapters import Adapter, Adapters, lora_set
from appliance.api.shapes import LoraChoice
from appliance.engine.commands import LoraSet
from appliance.errors import BadRequest

_SHOWN = 16


def lora_of(adapters: Adapters, chosen: Sequence[LoraChoice] | None) -> LoraSet:
    """What the request is computed with. Raises BadRequest."""
    return adapters.default if chosen is None else lora_set(scales_of(adapters, chosen, "lora"))


def scales_of(adapters: Adapters, chosen: Sequence[LoraChoice], param: str) -> dict[int, float]:
    """Scale by id, of those that are named. Raises BadRequest naming the member of `param`."""
    scales: dict[int, float] = {}
    for place, choice in enumerate(chosen):
        where = f"{param}.{place}"
        found = _named(adapters, choice, where)
        if found.id in scales:
            raise _bad(where, f"the adapter {found.name!r} is named twice")
        scales[found.id] = choice.scale
    return scales


def told(lora: LoraSet) -> list[dict[str, float]]:
    """A set, as llama-server tells it among a request's settings."""
    return [{"id": id, "scale": scale} for id, scale in lora]


def _named(adapters: Adapters, choice: LoraChoice, where: str) -> Adapter:
    found = adapters.find(id=choice.id, name=choice.name)
    if found is not None:
        return found
    if not adapters.loaded:
        raise _bad(where, "this box has no LoRA adapters (model.lora in its configuration)")
    known = ", ".join(f"{adapter.id} ({adapter.name})" for adapter in adapters.loaded[:_SHOWN])
    if choice.name is None:
        raise _bad(where, f"no adapter has the id {choice.id}: there are {known}")
    near = adapters.nearest(choice.name)
    hint = f"did you mean {near!r}?" if near else f"there are {known}"
    raise _bad(where, f"no adapter is called {choice.name[:100]!r}: {hint}")


def _bad(where: str, problem: str) -> BadRequest:
    return BadRequest(f"{where}: {problem}"[:1000], param=where, code="invalid_value")
