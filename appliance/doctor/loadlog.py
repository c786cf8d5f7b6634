"""What llama.cpp says while it opens a model: on which device each layer and buffer really lies.

Its settings tell what was asked for. This log is written as tensors are placed, so it tells what
was done.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_LAYER = re.compile(r"load_tensors: layer\s+(\d+) assigned to device (\S+?),")
_OFFLOADED = re.compile(r"load_tensors: offloaded (\d+)/(\d+) layers to GPU")
_BUFFER = re.compile(r"(\S+)\s+(model|KV|compute|output)\s+buffer size =\s+([\d.]+) MiB")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model was put."""

    layers: Mapping[str, int] = field(default_factory=dict)
    """Layers by device, the output layer counted as one."""
    buffers: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Bytes by kind (model, KV, compute, output) and buffer (`CPU_Mapped`, `CUDA0`)."""

    @property
    def total(self) -> int:
        return sum(self.layers.values())

    @property
    def on_devices(self) -> int:
        """Layers on anything but the CPU."""
        return sum(count for device, count in self.layers.items() if not _is_cpu(device))

    def bytes_of(self, kind: str) -> int:
        return sum(size for (of, _), size in self.buffers.items() if of == kind)

    def __str__(self) -> str:
        parts = [f"{count} on {device}" for device, count in sorted(self.layers.items())]
        return ", ".join(parts) or "no layer was named"


def placement(log: str) -> Placement:
    """Of the log of one load. Where layers are not named one by one, their sum counts."""
    placed = {int(number): device for number, device in _LAYER.findall(log)}
    layers: dict[str, int] = {}
    for device in placed.values():
        layers[device] = layers.get(device, 0) + 1
    if not layers and (found := _OFFLOADED.search(log)):
        there, total = int(found[1]), int(found[2])
        layers = {name: n for name, n in (("GPU", there), ("CPU", total - there)) if n}
    buffers: dict[tuple[str, str], int] = {}
    for name, kind, mib in _BUFFER.findall(log):
        buffers[kind, name] = buffers.get((kind, name), 0) + round(float(mib) * _MIB)
    return Placement(layers, buffers)


def _is_cpu(device: str) -> bool:
    return device.upper().startswith("CPU")
