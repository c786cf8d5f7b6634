"""The engine, tried: the configured model with the configured settings, loaded in a child that
decodes once. The cache is a small one, so that the trial needs little more than the weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from appliance.assembly import load_of
from appliance.config import Config
from appliance.doctor import child
from appliance.doctor.finding import size
from appliance.doctor.loadlog import Placement, placement
from appliance.doctor.running import Box
from appliance.gguf import BadModel, read
from appliance.models import locate
from appliance.models.memory import available
from appliance.observe.nvml import Library, NvmlError

CELLS = 512
BATCH = 64
BEHIND = 10
"""Niceness while a box serves."""
_ROOM = 1.15
"""Free memory that the trial wants, over the weights: what is not mapped is a copy of its own."""
_BESIDE = 256 << 20
"""Bytes that are left to others."""


@dataclass(frozen=True, slots=True)
class EngineTrial:
    """What came of it. With neither `problem` nor `skipped` it decoded."""

    path: Path | None = None
    problem: str = ""
    skipped: str = ""
    """Why it was not tried."""
    model: str = ""
    system_info: str = ""
    layers: int = 0
    layers_asked: int = 0
    """On a device."""
    model_bytes: int = 0
    rss_bytes: int = 0
    load_seconds: float = 0.0
    decode_ms: float = 0.0
    """Of one token, the cache empty."""
    degraded: Sequence[str] = ()
    placed: Placement = field(default_factory=Placement)

    @property
    def decoded(self) -> bool:
        return not (self.problem or self.skipped)


def try_engine(config: Config, box: Box) -> EngineTrial:
    """Never raises for what is wrong with the model or the machine."""
    try:
        path = locate(config.model, config.server.state_dir)
        weights = read(path).tensor_bytes
    except BadModel as error:
        return EngineTrial(problem=str(error))
    if why := _no_room(weights, box):
        return EngineTrial(path, skipped=why)
    load = load_of(config, path)
    small = msgspec.structs.replace(
        load,
        n_ctx=min(load.n_ctx, CELLS),
        n_batch=min(load.n_batch, BATCH),
        n_ubatch=min(load.n_ubatch, BATCH),
        max_sequences=1,
        cached_sequences=0,
        mlock=False,
        journal_dir="",
    )
    ran = child.run(
        "appliance.doctor.engineprobe",
        [msgspec.json.encode(small).decode()],
        timeout_s=config.engine.start_timeout_s,
        nice=BEHIND if box.runs else 0,
    )
    return _judged(path, ran)


def _judged(path: Path, ran: child.Ran) -> EngineTrial:
    if ran.problem:
        return EngineTrial(path, problem=f"the child that loads it failed: {ran.problem}")
    told = ran.told
    if "refused" in told:
        return EngineTrial(path, problem=str(told["refused"]), placed=placement(ran.log))
    return EngineTrial(
        path,
        model=told["model"],
        system_info=told["system_info"],
        layers=told["layers"],
        layers_asked=told["layers_asked"],
        model_bytes=told["model_bytes"],
        rss_bytes=told["rss_bytes"],
        load_seconds=told["load_seconds"],
        decode_ms=dict(told["timings"]).get(1, 0.0),
        degraded=tuple(told["degraded"]),
        placed=placement(ran.log),
    )


def _no_room(weights: int, box: Box) -> str:
    """Why the model would not fit, beside a box that runs or what else does: a trial must not have
    the kernel end others. Empty where it fits."""
    machine = available()
    wanted = weights * _ROOM + _BESIDE
    if machine is not None and machine.available < wanted:
        return (
            f"{size(machine.available)} of memory are free, and the trial may take {size(wanted)}"
        )
    return _no_room_on_device(weights) if _on_device(box.props) else ""


def _no_room_on_device(weights: int) -> str:
    """A second copy of the model would not fit onto the GPUs that a box uses."""
    try:
        library = Library()
        free = sum(library.memory(gpu)[1] for gpu in range(library.start()))
    except NvmlError as error:
        return f"the GPU's free memory is not known ({error}), and the box is using it"
    if free < weights * _ROOM:
        return (
            f"the running box has the GPU: {size(free)} are free there, and the weights alone "
            f"are {size(weights)}"
        )
    return ""


def _on_device(props: Mapping[str, object]) -> bool:
    engine = props.get("engine")
    return isinstance(engine, dict) and bool(engine.get("layers_offloaded"))
