"""What is tried instead of the settings in use. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from appliance.tune.search import Dimension
from appliance.tune.settings import Settings


@dataclass(frozen=True, slots=True)
class Machine:
    """What bounds the choice."""

    cores: int
    """Physical cores that this process may use."""
    cpus: int
    """Logical ones."""
    layers: int
    """Of the model."""
    offloads: bool
    """The build can put layers on a GPU, and there is one."""
    context: int
    other_answers: bool
    """Number formats of the cache are worth trying: they always change answers."""


def dimensions(machine: Machine, named: frozenset[str]) -> list[Dimension]:
    """In the order of their effect. What the operator's configuration names (`named`) is left
    as it is."""
    found: list[tuple[str, str, Sequence[object]]] = []
    if machine.offloads:
        quarters = sorted({round(machine.layers * q / 4) for q in range(4)}, reverse=True)
        found.append(("gpu layers", "gpu_layers", quarters))
    found.append(("threads", "threads", thread_counts(machine)))
    found.append(("flash attention", "flash_attention", ("on", "off")))
    found.append(("micro-batch", "ubatch", sizes(machine.context)))
    found.append(("batch", "batch", sizes(machine.context)))
    found.append(("threads for prompts", "threads_batch", thread_counts(machine)))
    if machine.other_answers:
        found.append(("KV type", "kv_type", ("bf16", "q8_0", "f32")))
    return [_dimension(*one) for one in found if one[1] not in named]


def thread_counts(machine: Machine) -> list[int]:
    """All cores, all hyper-threads, one core less, and halves, largest first."""
    counts = {machine.cpus, machine.cores, machine.cores - 1}
    half = machine.cores
    while half > 1:
        half //= 2
        counts.add(half)
    return sorted((count for count in counts if count > 0), reverse=True)


def sizes(context: int) -> list[int]:
    """Of a batch."""
    return [size for size in (128, 256, 512, 1024, 2048) if size <= context]


def _dimension(name: str, field: str, values: Sequence[object]) -> Dimension:
    def candidates(best: Settings) -> Sequence[Settings]:
        tried = [value for value in values if not _same(best, field, value)]
        made = [msgspec.structs.replace(best, **_with(best, field, value)) for value in tried]
        return [one for one in made if one.ubatch <= one.batch]

    return name, candidates


def _same(best: Settings, field: str, value: object) -> bool:
    """`auto` is `on`, for llama.cpp turns it on wherever it can."""
    now = getattr(best, field)
    return value == (now if now != "auto" else "on")


def _with(best: Settings, field: str, value: object) -> dict[str, object]:
    """With what goes along: threads for prompts follow the others until they are tried alone."""
    along: dict[str, object] = {field: value}
    if field == "threads" and best.threads_batch == best.threads:
        along["threads_batch"] = value
    return along
