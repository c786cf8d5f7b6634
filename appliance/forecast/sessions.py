"""Runs a network on ONNX Runtime: TensorRT, then CUDA, then the CPU, whichever is there and proves
itself. What runs is read back from the session and compared with the same network in NumPy, so that
nothing is shown which does not compute.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.network import OUTPUTS, Network
from appliance.forecast.onnxgraph import INPUT, OUTPUT

Floats32 = NDArray[np.float32]
Logits = Callable[[Floats32], Floats32]

PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
"""As configured, in order of preference; and as ONNX Runtime names them."""
CPU = PROVIDERS["cpu"]
NUMPY = "numpy"
TOLERANCE = {"fp32": 0.02, "int8": 0.5}
"""Mean distance of logits from NumPy's FP32 that still is the same network. A GPU's short floats
stay below the first, INT8 below the second; another network is at 1 and above."""
PROOF_ROWS = 8


class Foreign(Exception):
    """The ONNX model does not compute what the weights beside it do."""


@dataclass(frozen=True, slots=True)
class Running:
    """A network that was seen to compute."""

    logits: Logits
    """[n, F] -> [n, 25]. One thread at a time."""
    provider: str
    precision: str
    degraded: str = ""
    """What was asked for and is not what runs, why, and what to do; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class _Failed:
    provider: str
    why: str


def start(
    network: Network,
    models: Mapping[str, bytes],
    *,
    providers: Sequence[str] = (),
    precision: str = "fp32",
    runtime: Any = None,
) -> Running:
    """`models`: ONNX files by precision, fp32 among them. `providers`: keys of PROVIDERS, first
    choice first; none: what this ONNX Runtime has. The CPU is always the last resort. `runtime`:
    the onnxruntime module; None: the installed one. Raises Foreign."""
    notes = []
    if precision not in models:
        notes.append(f"this forecaster has no {precision} model, so fp32 runs: calibrate again")
        precision = "fp32"
    runtime = runtime if runtime is not None else _installed()
    if runtime is None:
        notes.append("ONNX Runtime is not installed, so NumPy computes: install steelyard[cpu]")
        return Running(network.forward, NUMPY, "fp32", "; ".join(notes))
    found, failed = _first_that_runs(runtime, network, models[precision], precision, providers)
    notes += [_told(one) for one in failed]
    if found is None:
        notes.append("no ONNX session starts, so NumPy computes: install onnxruntime again")
        return Running(network.forward, NUMPY, "fp32", "; ".join(notes))
    logits, running = found
    return Running(logits, running, precision, "; ".join(notes))


def _installed() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None


def _first_that_runs(
    runtime: Any, network: Network, model: bytes, precision: str, asked: Sequence[str]
) -> tuple[tuple[Logits, str] | None, list[_Failed]]:
    there = runtime.get_available_providers()
    failed = []
    for name in _wanted(asked, there):
        if name not in there:
            failed.append(_Failed(name, "this ONNX Runtime was built without it"))
            continue
        try:
            session = _session(runtime, model, name)
            logits = _caller(session)
            if name == CPU and hasattr(session, "io_binding"):
                logits = _bound(runtime, session, network.inputs)
            _prove(logits, network, precision)
            return (logits, name), failed
        except Foreign as error:
            if name == CPU:
                raise
            failed.append(_Failed(name, str(error)))
        except Exception as error:  # whatever a driver throws, the next one is tried
            failed.append(_Failed(name, _short(error)))
    return None, failed


def _wanted(asked: Sequence[str], there: list[str]) -> list[str]:
    """What to try, in order. What is not in the build counts as missing only where asked for."""
    if not asked:
        return [name for name in PROVIDERS.values() if name in there]
    return list(dict.fromkeys([*(PROVIDERS.get(name, name) for name in asked), CPU]))


def _session(runtime: Any, model: bytes, provider: str) -> Any:
    """Raises RuntimeError where ONNX Runtime quietly fell back to another provider."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # megabytes, for a network of kilobytes
    options.enable_mem_pattern = False
    session = runtime.InferenceSession(model, options, providers=list({provider: 0, CPU: 0}))
    in_use = list(session.get_providers())
    if not in_use or in_use[0] != provider:
        raise RuntimeError(f"ONNX Runtime chose {', '.join(in_use) or 'nothing'} instead")
    return session


def _prove(logits: Logits, network: Network, precision: str) -> None:
    """Rows that are the same everywhere, together and one alone. Raises Foreign."""
    rows = np.random.default_rng(0).normal(size=(PROOF_ROWS, network.inputs)).astype(np.float32)
    there, here = logits(rows), network.forward(rows)
    if there.shape != here.shape:
        raise Foreign(f"it gives {list(there.shape)} numbers instead of {list(here.shape)}")
    there[-1:] = logits(rows[-1:])
    distance = float(np.abs(there - here).mean())
    scale = max(1.0, float(np.abs(here).mean()))
    if not distance <= TOLERANCE[precision] * scale:  # also where it is no number
        raise Foreign(f"its logits are {distance:.3g} off those of the weights beside it")


def _caller(session: Any) -> Logits:
    def logits(x: Floats32) -> Floats32:
        found: Floats32 = session.run([OUTPUT], {INPUT: x})[0]
        return found

    return logits


def _bound(runtime: Any, session: Any, inputs: int) -> Logits:
    """As `_caller`; a row alone goes through arrays that the session knows, in one call."""
    many = _caller(session)
    row = np.zeros((1, inputs), dtype=np.float32)
    found = np.zeros((1, OUTPUTS), dtype=np.float32)
    binding, run = session.io_binding(), session.run_with_iobinding
    binding.bind_ortvalue_input(INPUT, runtime.OrtValue.ortvalue_from_numpy(row))
    binding.bind_ortvalue_output(OUTPUT, runtime.OrtValue.ortvalue_from_numpy(found))

    def logits(x: Floats32) -> Floats32:
        if len(x) != 1:
            return many(x)
        row[:] = x
        run(binding)
        return found.copy()

    return logits


def _told(failed: _Failed) -> str:
    short = next(
        (key for key, name in PROVIDERS.items() if name == failed.provider), failed.provider
    )
    return (
        f"{short} does not run ({failed.why}): install what it needs, or set forecast.providers "
        "to what does"
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
