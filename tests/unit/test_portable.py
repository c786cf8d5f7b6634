"""The engine for every CPU: what is changed in llama.cpp's build, and that nothing else is."""

import os
from pathlib import Path

import pytest

from appliance.engine import portable, toolchain, wheel
from appliance.engine.portable import Changed
from appliance.engine.toolchain import Compiler, Cpu
from appliance.engine.wheel import Plan, Target

GCC_12 = Compiler("gcc", "g++", "gcc 12.2.0", "dropped", openmp=True)
CLANG = Compiler("clang-19", "clang++-19", "clang 19.1.7", "kept", openmp=True)
PLAIN = Cpu("x86_64", frozenset({"fpu", "avx2"}))

CMAKE = "".join(
    f"        ggml_add_cpu_backend_variant({name} SSE42 AVX)\n"
    for name in ("sandybridge", *portable.VARIANTS[:-1])
)
CMAKE += """\
            ggml_add_cpu_backend_variant(sapphirerapids SSE42 AVX512_BF16 AMX_TILE AMX_INT8)
    elseif(GGML_SYSTEM_ARCH STREQUAL "ARM")
            ggml_add_cpu_backend_variant(armv8.2_1    DOTPROD)
"""
INIT = '#include "llama.h"\n' + 3 * "    if (!n) {\n        ggml_backend_load_all();\n    }\n"


def plan(compiler: Compiler = GCC_12, *, any_cpu: bool) -> Plan:
    target = Target.portable({}) if any_cpu else Target.read({}, PLAIN)
    return Plan(target, toolchain.choose(PLAIN, [compiler]), portable=any_cpu)


def sources(folder: Path, cmake: str = CMAKE, init: str = INIT) -> Path:
    for file, text in ((portable.CMAKE, cmake), (portable.INIT, init)):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def test_ours_stay_of_all_variants(tmp_path: Path) -> None:
    portable.apply(sources(tmp_path), amx=True)
    cmake = (tmp_path / portable.CMAKE).read_text()
    assert "sandybridge" not in cmake
    assert all(f"variant({name} " in cmake for name in portable.VARIANTS)
    assert "AMX_TILE AMX_INT8)" in cmake
    assert "armv8.2_1" in cmake


def test_a_compiler_that_breaks_amx_makes_a_variant_without_it(tmp_path: Path) -> None:
    portable.apply(sources(tmp_path), amx=False)
    assert "sapphirerapids SSE42 AVX512_BF16)" in (tmp_path / portable.CMAKE).read_text()
    assert " off\n" in wheel.hook_of(plan(any_cpu=True), tmp_path)
    assert " on\n" in wheel.hook_of(plan(CLANG, any_cpu=True), tmp_path)


def test_variants_are_loaded_from_beside_the_library_alone(tmp_path: Path) -> None:
    portable.apply(sources(tmp_path), amx=True)
    once = (tmp_path / portable.INIT).read_text()
    assert "ggml_backend_load_all()" not in once
    assert once.count("        steelyard_load_beside();\n") == 3
    portable.apply(tmp_path, amx=True)
    assert (tmp_path / portable.INIT).read_text() == once


@pytest.mark.parametrize(
    ("cmake", "init"),
    [
        (CMAKE.replace("(zen4 ", "(zen5 "), INIT),
        (CMAKE.replace('"ARM"', '"arm"'), INIT),
        (CMAKE, INIT.replace("ggml_backend_load_all()", "ggml_load()", 1)),
        (CMAKE, INIT.replace('"llama.h"', '"llama2.h"')),
    ],
)
def test_another_llama_cpp_stops_the_build(tmp_path: Path, cmake: str, init: str) -> None:
    with pytest.raises(Changed):
        portable.apply(sources(tmp_path, cmake, init), amx=True)


def test_the_build_for_this_cpu_is_as_it_was(tmp_path: Path) -> None:
    native, every = plan(any_cpu=False), plan(any_cpu=True)
    assert wheel.NATIVE in native.options()
    assert not set(portable.OPTIONS) & set(native.options())
    assert "portable" not in wheel.hook_of(native, tmp_path)
    assert wheel.NATIVE not in every.options()
    assert set(portable.OPTIONS) < set(every.options())
    assert every.flags() == ()
    assert native.fingerprint() != every.fingerprint()
    assert every.record()["amx"] == "variants"


def test_the_libraries_go_where_llama_cpp_is(tmp_path: Path) -> None:
    env = wheel.build_env(plan(any_cpu=True), tmp_path, tmp_path, dict(os.environ))
    assert env["SKBUILD_WHEEL_EXCLUDE"] == "bin/**;lib/**;include/**"
    env = wheel.build_env(plan(any_cpu=False), tmp_path, tmp_path, dict(os.environ))
    assert env["SKBUILD_WHEEL_EXCLUDE"] == "lib/**;include/**"
