"""Area `gpu`: is one there, does its driver answer, and are the model's layers really on it?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from appliance import buildinfo
from appliance.doctor.finding import Finding, fail, note, ok, size, warn
from appliance.doctor.ground import Ground
from appliance.observe.nvml import Library, NvmlError

_NVIDIA, _DISPLAY = "0x10de", "0x03"
_DRIVER = "proc/driver/nvidia/version"


class Driver(Protocol):
    """Of NVML, what is asked here."""

    def start(self) -> int: ...

    def name(self, gpu: int) -> str: ...

    def memory(self, gpu: int) -> tuple[int, int]: ...

    def driver(self) -> str: ...


def look(ground: Ground, driver: Driver | None = None) -> Iterator[Finding]:
    cards = cards_of(ground.root)
    wanted = buildinfo.installed().backend == "cuda"
    yield from _driver(ground, driver or Library(), cards, wanted)
    yield from _offload(ground, bool(cards), wanted)


def cards_of(root: Path) -> list[str]:
    """PCI addresses of NVIDIA's GPUs, as the kernel found them, driver or not."""
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            found.append(device.name)
    return found


def _driver(ground: Ground, nvml: Driver, cards: list[str], wanted: bool) -> Iterator[Finding]:
    try:
        count = nvml.start()
        version = nvml.driver()
        for gpu in range(count):
            total, free = nvml.memory(gpu)
            facts = f"{nvml.name(gpu)}, driver {version}, {size(free)} of {size(total)} free"
            yield ok("gpu.driver", f"gpu{gpu}: {facts}")
        if count:
            return
        why = "the driver sees no GPU"
    except NvmlError as error:
        why = str(error)
    loaded = bool(ground.text(_DRIVER))
    if cards:
        told = (
            "is loaded, and its library is missing or does not answer" if loaded else "is missing"
        )
        yield (fail if wanted else warn)(
            "gpu.driver",
            f"an NVIDIA GPU is there ({', '.join(cards)}), and its driver {told}: {why}",
            "install NVIDIA's driver for this kernel, then restart; `nvidia-smi` must list the GPU",
        )
    elif wanted:
        yield warn(
            "gpu.driver",
            f"the library was built for CUDA, and there is no NVIDIA GPU here: {why}",
            "in a container or VM pass the GPU through; else install the build for the CPU",
        )
    else:
        yield ok("gpu.driver", "no NVIDIA GPU, and the library was built for the CPU")


def _offload(ground: Ground, there: bool, wanted: bool) -> Iterator[Finding]:
    trial, settings = ground.engine, ground.config.engine
    if trial.problem:
        yield note("gpu.layers", "not known: the engine did not start", "see `engine`")
        return
    if trial.skipped:
        yield from _as_the_box_says(ground)
        return
    placed = trial.placed
    asked = wanted and settings.gpu_layers != 0
    needed = min(settings.gpu_layers, trial.layers) if settings.gpu_layers > 0 else trial.layers
    if asked and placed.on_devices < needed:
        level = fail if settings.require_gpu else warn
        yield level(
            "gpu.layers",
            f"{needed} layers are wanted on the GPU, and llama.cpp put them thus: {placed}",
            "see `gpu.driver`; a model larger than the GPU's memory needs a smaller "
            "engine.context, a smaller model, or engine.gpu_layers set to what fits",
        )
    elif settings.require_gpu and not placed.on_devices:
        yield fail(
            "gpu.layers",
            f"engine.require_gpu is set, and llama.cpp put the layers thus: {placed}",
            "install the CUDA build (`make run BACKEND=cuda`), or leave the setting out",
        )
    elif there and not placed.on_devices and settings.gpu_layers != 0:
        yield note(
            "gpu.layers",
            f"a GPU is there and not used: {placed}",
            "the CUDA build uses it (`make run BACKEND=cuda`)",
        )
    else:
        yield ok("gpu.layers", f"llama.cpp's own log: {placed}")


def _as_the_box_says(ground: Ground) -> Iterator[Finding]:
    told = ground.box.props.get("engine")
    if isinstance(told, dict):
        yield note(
            "gpu.layers",
            f"the box says that {told.get('layers_offloaded')} layers were asked onto the GPU; "
            f"where they lie was not tried: {ground.engine.skipped}",
            "stop the box and look again",
        )
