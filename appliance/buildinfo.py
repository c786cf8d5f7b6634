"""What the installed llama.cpp library is: the record that its build wrote into its wheel.

A library that `appliance.engine.build` did not build has no record, and is then reported as
"unknown" rather than guessed at.
"""

import importlib.util
import json
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

RECORD_NAME = "build.json"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The facts of one build of the library, as its record tells them."""

    package_version: str = UNKNOWN
    """Of llama-cpp-python."""
    llama_commit: str = UNKNOWN
    """The llama.cpp commit that the package carries."""
    backend: str = UNKNOWN
    """`cpu` or `cuda`."""
    compiler: str = UNKNOWN
    flags: str = UNKNOWN
    amx: str = UNKNOWN
    """`on`, `off` (the CPU has AMX, the build does not use it), `absent`, or `variants`: the engine
    takes what the CPU has when it starts."""
    openmp: str = UNKNOWN
    """`ON`, or `OFF`: then ggml uses threads of its own."""
    kernels: str = UNKNOWN
    """`on`: with our own in ggml's sources; `off`: they failed the self-test here."""
    fingerprint: str = UNKNOWN
    """Names the wheel in the cache."""

    def summary(self) -> str:
        """One line for `--version`, logs and `/props`."""
        return (
            f"llama.cpp {self.llama_commit} (llama-cpp-python {self.package_version}, "
            f"{self.backend}, {self.compiler}, AMX {self.amx}, OpenMP {self.openmp}, "
            f"kernels {self.kernels})"
        )


def record_path() -> Path | None:
    """Where the record of the installed library lies; None when no library is installed."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / RECORD_NAME


def parse(text: str) -> BuildInfo:
    """The record's known members; a damaged record is no record."""
    try:
        record = json.loads(text)
    except ValueError:
        return BuildInfo()
    if not isinstance(record, dict):
        return BuildInfo()
    known = {field.name for field in fields(BuildInfo)}
    return BuildInfo(**{k: v for k, v in record.items() if k in known and isinstance(v, str)})


@cache
def installed() -> BuildInfo:
    """The library that this process would load."""
    path = record_path()
    if path is None or not path.is_file():
        return BuildInfo()
    return parse(path.read_text(encoding="utf-8"))
