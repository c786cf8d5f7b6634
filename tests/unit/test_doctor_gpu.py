"""What the doctor makes of a GPU, its driver, and the layers of a model, from recorded facts: most
machines have none."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance import buildinfo
from appliance.doctor import gpu, memory
from appliance.doctor.enginetrial import EngineTrial
from appliance.doctor.ground import Ground
from appliance.doctor.loadlog import placement
from appliance.observe.nvml import Library, NvmlError
from tests.unit.doctor_parts import TellingBox, levels, machine, make_ground, only

GIB = 1 << 30


class FakeDriver:
    """NVML with so many GPUs, or without a driver."""

    def __init__(self, count: int | None) -> None:
        self._count = count

    def start(self) -> int:
        if self._count is None:
            raise NvmlError("no NVIDIA driver")
        return self._count

    def name(self, gpu: int) -> str:
        return "H100"

    def memory(self, gpu: int) -> tuple[int, int]:
        return 80 * GIB, 70 * GIB

    def driver(self) -> str:
        return "570.1"


def gpu_ground(tmp_path: Path, *, card: bool, log: str, **engine: object) -> Ground:
    files = {"proc/cpuinfo": "flags : avx\n"}
    if card:
        place = "sys/bus/pci/devices/0000:01:00.0"
        files |= {f"{place}/vendor": "0x10de\n", f"{place}/class": "0x030200\n"}
    ground = make_ground(tmp_path, root=machine(tmp_path / "root", files), engine=engine)
    ground.__dict__["engine"] = EngineTrial(model="m", layers=30, placed=placement(log))
    return ground


def on(device: str, layers: range) -> str:
    return "".join(
        f"load_tensors: layer {n:3} assigned to device {device}, is_swa = 0\n" for n in layers
    )


def test_missing_driver_of_a_card_that_is_there_fails_a_cuda_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = gpu_ground(tmp_path, card=True, log=on("CPU", range(31)))
    assert only(gpu.look(ground, FakeDriver(None)), "gpu.driver").level == "warn"
    cuda = buildinfo.BuildInfo(backend="cuda")
    monkeypatch.setattr(buildinfo, "installed", lambda: cuda)
    found = only(gpu.look(ground, FakeDriver(None)), "gpu.driver")
    assert found.level == "fail"
    assert "0000:01:00.0" in found.found


def test_cuda_build_without_a_gpu_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buildinfo, "installed", lambda: buildinfo.BuildInfo(backend="cuda"))
    ground = gpu_ground(tmp_path, card=False, log=on("CPU", range(31)))
    found = levels(gpu.look(ground, FakeDriver(None)))
    assert found == {"gpu.driver": "warn", "gpu.layers": "warn"}


@pytest.mark.parametrize(
    ("log", "level"),
    [
        (on("CUDA0", range(31)), "ok"),
        (on("CUDA0", range(16)) + on("CUDA1", range(16, 31)), "ok"),
        (on("CPU", range(5)) + on("CUDA0", range(5, 31)), "fail"),
        (on("CPU", range(31)), "fail"),
        ("load_tensors: offloaded 31/31 layers to GPU\n", "ok"),
        ("load_tensors: offloaded 7/31 layers to GPU\n", "fail"),
    ],
    ids=["all", "two devices", "some left out", "none", "a sum", "too small a sum"],
)
def test_layers_count_where_the_log_says_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, level: str
) -> None:
    monkeypatch.setattr(buildinfo, "installed", lambda: buildinfo.BuildInfo(backend="cuda"))
    ground = gpu_ground(tmp_path, card=True, log=log, require_gpu=True)
    assert only(gpu.look(ground, FakeDriver(1)), "gpu.layers").level == level


def test_gpu_that_is_there_and_not_used_is_told(tmp_path: Path) -> None:
    ground = gpu_ground(tmp_path, card=True, log=on("CPU", range(31)))
    found = levels(gpu.look(ground, FakeDriver(1)))
    assert found == {"gpu.driver": "ok", "gpu.layers": "note"}


def test_layers_that_were_not_tried_are_labelled_as_the_boxs_word(tmp_path: Path) -> None:
    box = TellingBox({"/props": (200, {"engine": {"layers_offloaded": 31}})})
    ground = make_ground(tmp_path, box=box)
    ground.__dict__["engine"] = EngineTrial(skipped="the GPU is full")
    found = only(gpu.look(ground, FakeDriver(1)), "gpu.layers")
    assert found.level == "note"
    assert "the box says" in found.found


# -- NVML ------------------------------------------------------------------------------------------


def nvml(status: int = 0) -> Library:
    """The driver's library with one GPU, as its header declares it."""

    def memory_info(_: Any, into: Any) -> int:
        into._obj.total, into._obj.free, into._obj.used = 80 * GIB, 70 * GIB, 10 * GIB
        return status

    def version(into: Any, length: Any) -> int:
        into.value = b"570.86.15"
        assert length.value >= len(into.value)
        return status

    def count(into: Any) -> int:
        into._obj.value = 1
        return 0

    def name(_: Any, into: Any, length: Any) -> int:
        into.value = b"H100"
        return 0

    def refusal(_: int) -> bytes:
        return b"Not Supported"

    library = Library()
    library._lib = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=count,
        nvmlDeviceGetHandleByIndex_v2=lambda index, into: 0,
        nvmlDeviceGetName=name,
        nvmlDeviceGetMemoryInfo=memory_info,
        nvmlSystemGetDriverVersion=version,
        nvmlErrorString=refusal,
    )
    return library


def test_memory_and_driver_are_read_from_the_drivers_own_library() -> None:
    library = nvml()
    assert library.start() == 1
    assert library.memory(0) == (80 * GIB, 70 * GIB)
    assert library.driver() == "570.86.15"


def test_driver_that_refuses_says_why(tmp_path: Path) -> None:
    library = nvml(status=3)
    library.start()
    with pytest.raises(NvmlError, match="not supported"):
        library.memory(0)
    ground = gpu_ground(tmp_path, card=True, log=on("CPU", range(31)))
    assert "not supported" in only(gpu.look(ground, library), "gpu.driver").found


@pytest.mark.parametrize(("context", "level"), [(1024, "ok"), (16_000_000, "warn")])
def test_model_that_does_not_fit_into_the_gpu_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: int, level: str
) -> None:
    monkeypatch.setattr(buildinfo, "installed", lambda: buildinfo.BuildInfo(backend="cuda"))
    monkeypatch.setattr(memory, "Library", nvml)
    ground = make_ground(tmp_path, engine={"context": context})
    assert only(memory.look(ground), "memory.gpu").level == level
