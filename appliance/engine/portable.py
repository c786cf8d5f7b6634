"""An engine for CPUs that are not there when it is compiled: ggml's variants in one wheel.

Each variant is a library of its own, and ggml loads the best that the CPU can run. CMake runs this
on llama.cpp's sources (`python -m appliance.engine.portable FOLDER AMX`, see wheel.py). Standard
library only. An edit names lines that must be there exactly once.
"""

import re
import sys
from pathlib import Path

OPTIONS = ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON")

VARIANTS = (
    "x64",
    "sse42",
    "haswell",
    "skylakex",
    "cascadelake",
    "icelake",
    "alderlake",
    "zen4",
    "sapphirerapids",
)
"""Of those that ggml has: what was sold widely. A CPU between two gets the lower one."""

INSTRUCTIONS = ("x86_64", "any")
"""In place of the features of this machine's CPU."""

HOOK = """
execute_process(
  COMMAND "{python}" -m appliance.engine.portable "${{CMAKE_CURRENT_SOURCE_DIR}}" {amx}
  WORKING_DIRECTORY "{root}" COMMAND_ERROR_IS_FATAL ANY)
function(steelyard_install_variants)
  foreach(variant ${{GGML_AVAILABLE_BACKENDS}})
    if (TARGET ${{variant}})
      set_target_properties(
        ${{variant}} PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH TRUE)
      install(TARGETS ${{variant}} LIBRARY DESTINATION "${{SKBUILD_PLATLIB_DIR}}/llama_cpp/lib")
    endif()
  endforeach()
  execute_process(
    COMMAND "${{CMAKE_C_COMPILER}}" -print-file-name=libgomp.so.1
    OUTPUT_VARIABLE gomp OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH "${{gomp}}" gomp)
  if (EXISTS "${{gomp}}")
    install(FILES "${{gomp}}" DESTINATION "${{SKBUILD_PLATLIB_DIR}}/llama_cpp/lib"
      RENAME libgomp.so.1)
  endif()
endfunction()
cmake_language(DEFER CALL steelyard_install_variants)
"""
"""The OpenMP library goes along: a machine without a compiler may lack it."""

EXCLUDED = ("bin/**", "lib/**", "include/**")
"""Of the wheel: second copies, for C++ projects."""

CMAKE = Path("ggml/src/CMakeLists.txt")
INIT = Path("src/llama.cpp")
AMX = " AMX_TILE AMX_INT8"

# As it stands, llama.cpp looks beside the executable (which is Python) and in the working directory
# (which may belong to anyone).
LOAD = "        ggml_backend_load_all();\n"
LOADS = 3
LOAD_BESIDE = "        steelyard_load_beside();\n"
FIRST_INCLUDE = '#include "llama.h"\n'
BEGINNING = """\
#include "llama.h"

#include "ggml-backend.h"

#include <dlfcn.h>
#include <string>

static void steelyard_load_beside() {
    Dl_info self;
    if (dladdr((void *) &llama_backend_init, &self) && self.dli_fname) {
        std::string folder = self.dli_fname;
        folder.resize(folder.find_last_of('/') + 1);
        ggml_backend_load_all_from_path(folder.c_str());
    }
}
"""


class Changed(Exception):
    """llama.cpp no longer has the lines that an edit needs."""


def chosen(text: str, *, amx: bool) -> str:
    """ggml's list of variants with only ours in it. Raises Changed."""
    left = set(VARIANTS)

    def keep(found: re.Match[str]) -> str:
        if found["name"] not in left:
            return ""
        left.discard(found["name"])
        return found[0] if amx else found[0].replace(AMX, "")

    line = r"^ *ggml_add_cpu_backend_variant\((?P<name>[a-z0-9]+)(?: +[A-Z0-9_ ]+)?\)\n"
    first, mark, rest = text.partition('elseif(GGML_SYSTEM_ARCH STREQUAL "ARM")')
    edited = re.sub(line, keep, first, flags=re.MULTILINE)
    if not mark or left:
        raise Changed(f"{CMAKE}: these variants are not there: {', '.join(sorted(left))}")
    return edited + mark + rest


def loading(text: str) -> str:
    """llama.cpp's start, which loads what lies beside the library itself. Raises Changed."""
    if (text.count(LOAD), text.count(FIRST_INCLUDE)) != (LOADS, 1):
        raise Changed(f"{INIT}: its backends are loaded elsewhere now")
    return text.replace(LOAD, LOAD_BESIDE).replace(FIRST_INCLUDE, BEGINNING)


def apply(root: Path, *, amx: bool) -> None:
    """Edits the sources under `root`; does nothing when they have been edited before."""
    init = (root / INIT).read_text(encoding="utf-8")
    if LOAD_BESIDE in init:
        return
    cmake = (root / CMAKE).read_text(encoding="utf-8")
    (root / CMAKE).write_text(chosen(cmake, amx=amx), encoding="utf-8")
    (root / INIT).write_text(loading(init), encoding="utf-8")


if __name__ == "__main__":
    try:
        apply(Path(sys.argv[1]), amx=sys.argv[2:] == ["on"])
    except Changed as error:
        sys.exit(f"steelyard's portable build does not fit this llama.cpp: {error}")
