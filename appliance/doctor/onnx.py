"""Area `onnx`: the forecaster and the sentence encoder on each provider that this machine has,
timed, with the share of their nodes that it really computed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.doctor import child
from appliance.doctor.enginetrial import BEHIND
from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground
from appliance.forecast.sessions import CPU, PROVIDERS
from appliance.forecast.versions import Versions

TIMEOUT_S = 180.0
"""TensorRT compiles a network before its first run."""
APART = 0.5
"""Outputs further off the CPU's than this, in parts of their size, are another network's."""
_SHORT = {name: key for key, name in PROVIDERS.items()}


def look(ground: Ground) -> Iterator[Finding]:
    path = _forecaster(ground)
    if path is None:
        yield note(
            "onnx.forecaster",
            "there is no forecaster for this model",
            "`steelyard calibrate` makes one; till then lengths are learned as answers end",
        )
    ran = child.run(
        "appliance.doctor.onnxprobe",
        [str(path or "")],
        timeout_s=TIMEOUT_S,
        nice=BEHIND if ground.box.runs else 0,
    )
    if ran.problem:
        yield fail(
            "onnx.runtime",
            f"the child that tries the networks failed: {ran.problem}",
            "install onnxruntime again (`make venv`), or a build of it that fits the driver",
        )
    elif "missing" in ran.told:
        yield warn(
            "onnx.runtime",
            f"ONNX Runtime is not installed ({ran.told['missing']}): forecasts are computed by "
            "NumPy, and there are no embeddings",
            "install steelyard[cpu], or steelyard[gpu] for NVIDIA's GPUs",
        )
    else:
        yield from judged(ran.told, ground.config.forecast.providers)
        yield from _in_use(ground, ran.told)


def judged(told: Mapping[str, Any], asked: tuple[str, ...]) -> Iterator[Finding]:
    """What the child found, in words. `asked`: forecast.providers."""
    there = [_SHORT[name] for name in told["providers"]]
    yield ok("onnx.runtime", f"ONNX Runtime {told['version']} with {', '.join(there)}")
    for name in asked:
        if name not in there:
            yield warn(
                "onnx.providers",
                f"forecast.providers names {name}, and this ONNX Runtime was built without it",
                "install steelyard[gpu], or take it out of forecast.providers",
            )
    for trial in told["trials"]:
        yield _trial(trial)


def _trial(trial: Mapping[str, Any]) -> Finding:
    id, provider = f"onnx.{trial['network']}", trial["provider"]
    short = _SHORT.get(provider, provider)
    if "problem" in trial:
        what = f"on {short} it does not run: " if short else "it cannot be read: "
        advice = (
            "install what it needs, or set forecast.providers to what runs"
            if short
            else "`make venv` installs the packaged files again; `steelyard calibrate` makes a "
            "new forecaster"
        )
        return (warn if provider != CPU else fail)(id, what + trial["problem"], advice)
    nodes = trial["nodes"]
    here, total = nodes.get(provider, 0), sum(nodes.values())
    told = f"on {short}: {trial['ms']:.3f} ms a run, {here} of {total} nodes there"
    if not trial.get("distance", 0.0) <= APART:  # also where it is no number
        return warn(
            id,
            f"{told}, and its numbers are {trial['distance']:.2g} off the CPU's",
            "set forecast.providers to what computes right, and update the GPU's driver",
        )
    if provider != CPU and not here:
        return warn(
            id,
            f"{told}: it is named and computes nothing",
            "set forecast.providers to cpu: the detour only costs time",
        )
    return ok(id, told)


def _in_use(ground: Ground, told: Mapping[str, Any]) -> Iterator[Finding]:
    """What the running box uses, against the best that was seen to run."""
    found = ground.box.props.get("forecaster")
    provider = found.get("provider") if isinstance(found, dict) else None
    if not provider:
        return
    runs = [one["provider"] for one in told["trials"] if one["network"] == "forecaster"
            and "problem" not in one]  # fmt: skip
    best = next((name for name in PROVIDERS.values() if name in runs), None)
    if best is not None and provider != best and not ground.config.forecast.providers:
        yield warn(
            "onnx.in_use",
            f"the box computes forecasts on {provider}, and {best} runs here",
            "restart the box; its log says why it took the other",
        )
    else:
        yield ok("onnx.in_use", f"the box computes forecasts on {_SHORT.get(provider, provider)}")


def _forecaster(ground: Ground) -> Path | None:
    """The one in use for this model; None where there is none."""
    if not ground.model_sha256:
        return None
    current = Versions(ground.state_dir, ground.model_sha256).current()
    return current.path if current is not None else None
