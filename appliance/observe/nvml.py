"""NVML: power, energy and temperature of NVIDIA GPUs, from the driver's own library by ctypes.

Every GPU of the machine counts, whether the engine uses it or not. One without an energy counter
(older than Volta) gives power, from which energy is reckoned. A GPU's name is its place and model.
"""

import ctypes
from typing import Any, Protocol

from appliance.observe.readings import Draw, EnergyCounter, Found, Reading

SOURCE = "NVML"
LIBRARY = "libnvidia-ml.so.1"
_GPU_TEMPERATURE = 0
_SLOWDOWN = 1
"""nvmlTemperatureThresholds_t: at this the GPU throttles."""
MOST_GPUS = 64
_RETRY_S = 30.0
"""Between two attempts to start NVML: a driver may be loaded late, or lose its GPU."""


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class NvmlError(Exception):
    """What NVML could not do; the message is for the operator."""


class Driver(Protocol):
    """NVML with its numbers made Python's; raises NvmlError. `Library` is the real one."""

    def start(self) -> int:
        """How many GPUs there are."""
        ...

    def name(self, gpu: int) -> str: ...

    def milliwatts(self, gpu: int) -> int: ...

    def millijoules(self, gpu: int) -> int: ...

    def celsius(self, gpu: int) -> int: ...

    def slowdown_celsius(self, gpu: int) -> int: ...


class Library:
    """libnvidia-ml, loaded at `start`."""

    def __init__(self, path: str = LIBRARY) -> None:
        self._path = path
        self._lib: Any = None
        self._handles: list[ctypes.c_void_p] = []

    def start(self) -> int:
        try:
            self._lib = self._lib or ctypes.CDLL(self._path)
        except OSError as error:
            raise NvmlError("no NVIDIA driver") from error
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._handles = [self._handle(gpu) for gpu in range(min(count.value, MOST_GPUS))]
        return len(self._handles)

    def name(self, gpu: int) -> str:
        text = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetName", self._handles[gpu], text, ctypes.c_uint(96))
        return text.value.decode("ascii", "replace")

    def milliwatts(self, gpu: int) -> int:
        return self._number("nvmlDeviceGetPowerUsage", gpu, ctypes.c_uint())

    def millijoules(self, gpu: int) -> int:
        return self._number("nvmlDeviceGetTotalEnergyConsumption", gpu, ctypes.c_ulonglong())

    def celsius(self, gpu: int) -> int:
        kind = ctypes.c_int(_GPU_TEMPERATURE)
        return self._number("nvmlDeviceGetTemperature", gpu, ctypes.c_uint(), kind)

    def slowdown_celsius(self, gpu: int) -> int:
        kind = ctypes.c_int(_SLOWDOWN)
        return self._number("nvmlDeviceGetTemperatureThreshold", gpu, ctypes.c_uint(), kind)

    def memory(self, gpu: int) -> tuple[int, int]:
        """Bytes in all, and free ones."""
        found = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._handles[gpu], ctypes.byref(found))
        return found.total, found.free

    def driver(self) -> str:
        """The driver's version."""
        text = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(96))
        return text.value.decode("ascii", "replace")

    def _handle(self, gpu: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(gpu), ctypes.byref(handle))
        return handle

    def _number(
        self, function: str, gpu: int, into: ctypes.c_uint | ctypes.c_ulonglong, *more: object
    ) -> int:
        self._call(function, self._handles[gpu], *more, ctypes.byref(into))
        return into.value

    def _call(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self._lib, function)(*arguments)
        except AttributeError:
            raise NvmlError("the driver is too old to tell it") from None
        if status:
            self._lib.nvmlErrorString.restype = ctypes.c_char_p
            said = self._lib.nvmlErrorString(status)
            raise NvmlError((said or b"NVML refuses").decode("ascii", "replace").lower())


class Nvml:
    """Reads all GPUs; nothing where there is no driver."""

    def __init__(self, driver: Driver | None = None) -> None:
        self._driver = driver or Library()
        self._gpus: list[str] = []
        self._limits: list[float | None] = []
        self._started = False
        self._retry_at = 0.0

    def read(self, now: float) -> Found:
        if not self._started and now >= self._retry_at:
            self._start(now)
        if not self._started:
            return Found()
        found = Found()
        for gpu in range(len(self._gpus)):
            found += self._read_gpu(gpu, now)
        if all(reading.quality == "unknown" for reading in found.readings):
            self._started, self._retry_at = False, now + _RETRY_S  # the driver may come again
        return found

    def _start(self, now: float) -> None:
        self._retry_at = now + _RETRY_S
        try:
            count = self._driver.start()
            self._gpus = [f"gpu{gpu} {self._driver.name(gpu)}" for gpu in range(count)]
        except NvmlError:
            return
        self._limits = [self._limit(gpu) for gpu in range(count)]
        self._started = count > 0

    def _limit(self, gpu: int) -> float | None:
        try:
            return float(self._driver.slowdown_celsius(gpu)) or None
        except NvmlError:
            return None

    def _read_gpu(self, gpu: int, now: float) -> Found:
        power = self._power(gpu, now)
        readings = (power, self._temperature(gpu, now))
        try:
            uj = self._driver.millijoules(gpu) * 1000
        except NvmlError:
            if power.value is None:
                return Found(readings=readings)
            draw = Draw(name=self._gpus[gpu], source=SOURCE, watts=power.value, at=now)
            return Found(readings=readings, draws=(draw,))
        counter = EnergyCounter(name=self._gpus[gpu], source=SOURCE, uj=uj, at=now)
        return Found(readings=readings, counters=(counter,))

    def _power(self, gpu: int, now: float) -> Reading:
        name = f"{self._gpus[gpu]} power"
        try:
            watts = self._driver.milliwatts(gpu) / 1000
        except NvmlError as error:
            return _unknown(name, "W", now, error)
        return Reading(name=name, unit="W", source=SOURCE, quality="ok", at=now, value=watts)

    def _temperature(self, gpu: int, now: float) -> Reading:
        name, limit = f"{self._gpus[gpu]} temperature", self._limits[gpu]
        try:
            value = float(self._driver.celsius(gpu))
        except NvmlError as error:
            return _unknown(name, "C", now, error)
        return Reading(
            name=name, unit="C", source=SOURCE, quality="ok", at=now, value=value,
            hi=limit, crit=limit, chip=True,
        )  # fmt: skip


def _unknown(name: str, unit: str, now: float, error: NvmlError) -> Reading:
    return Reading(
        name=name, unit=unit, source=SOURCE, quality="unknown", at=now, chip=unit == "C",
        why=str(error),
    )  # fmt: skip
