"""The child that runs each network on each ONNX provider of this machine, and prints as JSON where
its nodes really ran and how long it took. A driver may end this process; it ends nothing else."""

import importlib
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from appliance.forecast.bundle import BadForecaster, Bundle
from appliance.forecast.sessions import CPU, PROVIDERS
from appliance.gguf import BadModel
from appliance.models import encoder_files

WARM, RUNS = 3, 21
_TOKENS = 8
"""Of a sequence whose length is free."""
Feed = Mapping[str, Any]


def main() -> int:
    """Argument: the forecaster's file, or nothing where there is none."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return 0
    there = [name for name in PROVIDERS.values() if name in runtime.get_available_providers()]
    trials = []
    for name, model in networks(sys.argv[1]).items():
        if isinstance(model, str):
            trials.append({"network": name, "provider": "", "problem": model})
            continue
        reference: Any = None
        for provider in sorted(there, key=lambda one: one != CPU):  # the CPU first, to compare
            trial, outputs = attempt(runtime, model, provider)
            reference = outputs if provider == CPU else reference
            if outputs is not None and reference is not None:
                trial["distance"] = distance(outputs, reference)
            trials.append({"network": name, "provider": provider, **trial})
    print(json.dumps({"version": runtime.__version__, "providers": there, "trials": trials}))
    return 0


def networks(forecaster: str) -> dict[str, bytes | str]:
    """ONNX models by name, or why one is not there."""
    found: dict[str, bytes | str] = {}
    if forecaster:
        try:
            bundle = Bundle.read(Path(forecaster))
            int8 = bundle.manifest.precision == "int8" and bundle.int8
            found["forecaster"] = int8 or bundle.fp32
        except BadForecaster as error:
            found["forecaster"] = str(error)
    try:
        found["encoder"] = encoder_files().model.read_bytes()
    except (BadModel, OSError) as error:
        found["encoder"] = str(error)
    return found


def attempt(runtime: Any, model: bytes, provider: str) -> tuple[dict[str, Any], Any]:
    """What is found, and the outputs; None where it did not run."""
    try:
        session = open_session(runtime, model, provider, "")
        used = list(session.get_providers())
        if not used or used[0] != provider:
            return {"problem": f"ONNX Runtime chose {', '.join(used) or 'nothing'} instead"}, None
        feed = inputs(session)
        outputs = session.run(None, feed)
        took = [timed(session, feed) for _ in range(WARM + RUNS)][WARM:]
        nodes = placed(runtime, model, provider, feed)
    except Exception as error:  # whatever a driver throws
        return {"problem": " ".join(str(error).split())[:300] or type(error).__name__}, None
    return {"ms": statistics.median(took), "slowest_ms": max(took), "nodes": nodes}, outputs


def open_session(runtime: Any, model: bytes, provider: str, profile: str) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    return runtime.InferenceSession(model, options, providers=list({provider: 0, CPU: 0}))


def inputs(session: Any) -> Feed:
    """One row, the same everywhere."""
    chance = np.random.default_rng(0)
    feed = {}
    for one in session.get_inputs():
        free = [i for i, length in enumerate(one.shape) if not isinstance(length, int)]
        shape = [length if isinstance(length, int) else 1 for length in one.shape]
        if len(free) > 1:
            shape[free[-1]] = _TOKENS
        whole = "int" in one.type
        kind = np.int32 if "int32" in one.type else np.int64
        feed[one.name] = (
            np.ones(shape, kind) if whole else chance.normal(size=shape).astype(np.float32)
        )
    return feed


def timed(session: Any, feed: Feed) -> float:
    began = time.perf_counter()
    session.run(None, feed)
    return (time.perf_counter() - began) * 1e3


def placed(runtime: Any, model: bytes, provider: str, feed: Feed) -> dict[str, int]:
    """Nodes by the provider that computed them, by ONNX Runtime's own profile of a run."""
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(runtime, model, provider, f"{folder}/profile")
        session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_bytes())
    nodes = {
        event["name"]: event["args"]["provider"]
        for event in events
        if event.get("cat") == "Node" and event.get("args", {}).get("provider")
    }
    return dict(Counter(nodes.values()))


def distance(outputs: Any, reference: Any) -> float:
    """Mean distance, in parts of what the numbers are like."""
    apart = [float(np.abs(a - b).mean()) for a, b in zip(outputs, reference, strict=True)]
    like = [float(np.abs(b).mean()) for b in reference]
    return max(a / max(b, 1e-6) for a, b in zip(apart, like, strict=True))


if __name__ == "__main__":
    sys.exit(main())
