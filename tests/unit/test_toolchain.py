"""Which compiler builds the engine, and what it must not do on this CPU."""

import os
import shutil

import pytest

from appliance.engine import toolchain
from appliance.engine.toolchain import NO_AMX_FLAGS, NO_AMX_OPTIONS, Compiler, Cpu

AMX = Cpu("x86_64", frozenset({"avx2", "avx512f", "amx_tile", "amx_int8"}))
PLAIN = Cpu("x86_64", frozenset({"avx2"}))
GCC_12 = Compiler("gcc", "g++", "gcc 12.2.0", "dropped", openmp=True)
GCC_SOUND = Compiler("gcc-99", "g++-99", "gcc 99.0.0", "kept", openmp=True)
GCC_OLD = Compiler("gcc-9", "g++-9", "gcc 9.4.0", "unsupported", openmp=True)
CLANG = Compiler("clang-19", "clang++-19", "clang 19.1.7", "kept", openmp=False)
CLANG_OPENMP = Compiler("clang-18", "clang++-18", "clang 18.1.8", "kept", openmp=True)


def test_amx_with_gcc_12_alone_is_switched_off():
    choice = toolchain.choose(AMX, [GCC_12])
    assert choice.amx == "off"
    assert (choice.flags, choice.options) == (NO_AMX_FLAGS, NO_AMX_OPTIONS)
    assert "apt install clang" in choice.line()


def test_amx_prefers_a_compiler_that_sets_tiles_up_right():
    choice = toolchain.choose(AMX, [GCC_12, CLANG])
    assert (choice.compiler, choice.amx, choice.flags, choice.options) == (CLANG, "on", (), ())


def test_a_mended_gcc_is_trusted_by_its_probe_and_not_by_its_version():
    assert toolchain.choose(AMX, [GCC_12, GCC_SOUND]).compiler is GCC_SOUND


def test_of_two_sound_compilers_the_one_with_openmp_is_taken():
    assert toolchain.choose(AMX, [CLANG, CLANG_OPENMP]).compiler is CLANG_OPENMP


def test_without_amx_openmp_decides_and_the_guard_stays_for_a_compiler_with_the_fault():
    choice = toolchain.choose(PLAIN, [CLANG, GCC_12])
    assert (choice.compiler, choice.amx, choice.flags) == (GCC_12, "absent", NO_AMX_FLAGS)


def test_without_amx_a_sound_compiler_needs_no_guard():
    choice = toolchain.choose(PLAIN, [CLANG])
    assert (choice.compiler, choice.amx, choice.flags, choice.options) == (CLANG, "absent", (), ())


@pytest.mark.parametrize("cpu", [AMX, PLAIN])
def test_a_compiler_that_knows_no_amx_gets_no_flags_that_it_would_refuse(cpu):
    choice = toolchain.choose(cpu, [GCC_OLD])
    assert choice.flags == ()
    assert choice.amx == ("off" if cpu.amx else "absent")


def test_no_compiler_at_all_says_what_to_install():
    with pytest.raises(toolchain.NoCompiler, match=r"apt install g\+\+"):
        toolchain.choose(AMX, [])


def test_amx_needs_both_tiles_and_integers():
    assert not Cpu("x86_64", frozenset({"amx_tile"})).amx


def test_cpu_features_are_read_from_the_kernel(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text(
        "processor\t: 0\nflags\t\t: fpu amx_tile amx_int8\n\nprocessor\t: 1\nflags\t\t: x\n"
    )
    assert Cpu.read(file).features == {"fpu", "amx_tile", "amx_int8"}
    file.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert Cpu.read(file).features == {"fp", "asimd", "sve"}
    file.write_text("processor : 0\n")
    assert Cpu.read(file).features == frozenset()


@pytest.mark.parametrize(
    ("cc", "cxx"),
    [
        ("cc", "c++"),
        ("gcc", "g++"),
        ("gcc-13", "g++-13"),
        ("clang", "clang++"),
        ("clang-19", "clang++-19"),
        ("/opt/gcc/bin/x86_64-linux-gnu-gcc-12", "/opt/gcc/bin/x86_64-linux-gnu-g++-12"),
    ],
)
def test_the_cxx_compiler_is_named_after_the_c_compiler(cc, cxx):
    assert toolchain.cxx_of(cc) == cxx


def test_a_compiler_named_in_the_environment_is_the_only_candidate():
    found = toolchain.find_compilers({**os.environ, "CC": "gcc", "CXX": "g++"})
    assert [c.cc for c in found] == ["gcc"]


def test_a_named_compiler_that_does_not_exist_is_no_compiler():
    assert toolchain.find_compilers({**os.environ, "CC": "no-such-cc"}) == []


def test_every_compiler_of_this_machine_is_found_once():
    found = toolchain.find_compilers(os.environ)
    assert found
    assert len({os.path.realpath(shutil.which(c.cc) or "") for c in found}) == len(found)


def test_the_probe_reproduces_the_trap_with_the_compilers_of_this_machine():
    """GCC 12 drops the stores; clang keeps them. Others are judged, whatever the verdict."""
    for compiler in toolchain.find_compilers(os.environ):
        if compiler.name.startswith("gcc 12."):
            assert compiler.tile_config == "dropped"
        if compiler.name.startswith("clang ") and int(compiler.name[6:].split(".")[0]) >= 14:
            assert compiler.tile_config == "kept"
        assert compiler.tile_config in ("kept", "dropped", "unsupported")


def test_the_guard_wins_over_march_native():
    """ggml appends -march=native after our flags; an explicit -mno- must still hold."""
    for compiler in toolchain.find_compilers(os.environ):
        macros = toolchain.run_compiler(
            compiler.cc, "", "-mno-sse4.2", "-march=native", "-x", "c", "-dM", "-E"
        )
        assert macros is not None
        assert "__SSE4_2__" not in macros
