"""What the engine's build is: when it is made anew, what it is compiled from, and its own test."""

import json
import signal
from pathlib import Path

import pytest

from appliance import buildinfo
from appliance.engine import build, toolchain, wheel
from appliance.engine.toolchain import Compiler, Cpu
from appliance.engine.wheel import BuildError, Plan, Target

AMX = Cpu("x86_64", frozenset({"fpu", "avx2", "amx_tile", "amx_int8"}))
PLAIN = Cpu("x86_64", frozenset({"fpu", "avx2"}))
GCC_12 = Compiler("gcc", "g++", "gcc 12.2.0", "dropped", openmp=True)
CLANG = Compiler("clang-19", "clang++-19", "clang 19.1.7", "kept", openmp=False)
INFO_WITH_AMX = "CPU : AVX2 = 1 | AMX_INT8 = 1 | OPENMP = 1\noffload: False\n"


def make_plan(cpu: Cpu = PLAIN, compiler: Compiler = GCC_12, **env: str) -> Plan:
    return Plan(Target.read(env, cpu), toolchain.choose(cpu, [compiler]))


def put_wheel(folder: Path, content: bytes = b"a wheel") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "some.whl"
    file.write_bytes(content)
    record = {"wheel": file.name, "sha256": wheel.sha256_of(file)}
    (folder / buildinfo.RECORD_NAME).write_text(json.dumps(record))
    return file


def test_the_fingerprint_changes_with_everything_that_changes_the_code():
    newer = Compiler("gcc", "g++", "gcc 12.3.0", "dropped", openmp=True)
    plans = [
        make_plan(),
        make_plan(AMX),
        make_plan(AMX, CLANG),
        make_plan(compiler=newer),
        make_plan(STEELYARD_BACKEND="cuda"),
    ]
    assert len({plan.fingerprint() for plan in plans}) == len(plans)
    assert make_plan().fingerprint() == make_plan().fingerprint()


def test_features_that_no_compiler_uses_do_not_change_the_target():
    after_a_kernel_update = Cpu("x86_64", PLAIN.features | {"ibpb", "constant_tsc"})
    assert make_plan(after_a_kernel_update).target == make_plan().target


def test_where_no_feature_is_known_all_count():
    arm = Cpu("aarch64", frozenset({"asimd", "sve"}))
    assert wheel.instructions(arm) == ("aarch64", "asimd", "sve")


def test_the_lock_pins_one_sdist_by_its_hash():
    version, sha256 = wheel.locked_sdist(wheel.LOCK.read_text())
    assert version.count(".") == 2
    assert len(sha256) == 64


def test_a_lock_without_a_hash_is_refused():
    with pytest.raises(BuildError, match="make lock"):
        wheel.locked_sdist("llama-cpp-python==0.3.36\n")


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(BuildError, match="'opencl'; it can be cpu or cuda"):
        make_plan(STEELYARD_BACKEND="opencl")


def test_the_cuda_backend_without_nvcc_says_what_is_missing(tmp_path):
    env = {"STEELYARD_BACKEND": "cuda", "PATH": str(tmp_path)}
    with pytest.raises(BuildError, match="CUDA toolkit"):
        build.ensure(env, tmp_path)


def test_no_compiler_is_an_error_before_anything_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "installed", dict)
    with pytest.raises(toolchain.NoCompiler, match=r"apt install g\+\+"):
        build.ensure({"PATH": str(tmp_path)}, tmp_path)


def test_the_guard_reaches_both_compilers_and_cmake(tmp_path):
    env = wheel.build_env(
        make_plan(AMX), tmp_path, tmp_path / "bin", {"CFLAGS": "-g", "PATH": "/x"}
    )
    for name in ("CFLAGS", "CXXFLAGS"):
        assert env[name].endswith("-mno-amx-tile -mno-amx-int8")
    assert env["CFLAGS"].startswith("-g ")
    assert "-DGGML_AMX_TILE=OFF" in env["CMAKE_ARGS"]
    assert (env["CC"], env["CXX"]) == ("gcc", "g++")
    assert env["PATH"].startswith(str(tmp_path / "bin"))
    assert int(env["CMAKE_BUILD_PARALLEL_LEVEL"]) >= 1


def test_a_sound_compiler_is_given_no_guard(tmp_path):
    env = wheel.build_env(make_plan(AMX, CLANG), tmp_path, tmp_path, {})
    assert "amx" not in (env["CFLAGS"] + env["CXXFLAGS"] + env["CMAKE_ARGS"]).lower()
    assert "-DGGML_OPENMP=OFF" in env["CMAKE_ARGS"]


def test_the_cuda_backend_asks_ggml_for_cuda():
    assert "-DGGML_CUDA=ON" in make_plan(STEELYARD_BACKEND="cuda").options()


def test_a_wheel_is_taken_from_the_cache_while_its_hash_is_right(tmp_path):
    file = put_wheel(tmp_path)
    assert wheel.cached(tmp_path) == file
    file.write_bytes(b"another")
    assert wheel.cached(tmp_path) is None


@pytest.mark.parametrize("record", [None, "", "[]", "{}", '{"wheel": "absent.whl", "sha256": "0"}'])
def test_a_cut_or_damaged_record_is_no_cached_wheel(tmp_path, record):
    if record is not None:
        (tmp_path / buildinfo.RECORD_NAME).write_text(record)
    assert wheel.cached(tmp_path) is None


def test_the_cache_lies_where_the_environment_says():
    assert wheel.cache_root({"STEELYARD_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert wheel.cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/steelyard")
    assert wheel.cache_root({}) == Path.home() / ".cache/steelyard"


def test_an_installed_build_is_current_until_the_target_changes():
    plan = make_plan()
    assert build.is_current(plan.record(), plan.target, PLAIN)
    assert not build.is_current(plan.record(), make_plan(CC="clang").target, PLAIN)
    assert not build.is_current({}, plan.target, PLAIN)


def test_a_build_that_leaves_amx_unused_looks_again_for_a_better_compiler():
    off, on = make_plan(AMX), make_plan(AMX, CLANG)
    assert not build.is_current(off.record(), off.target, AMX)
    assert build.is_current(on.record(), on.target, AMX)


def test_a_crash_with_amx_falls_back_to_the_same_compiler_without_it():
    first, second = build.attempts(toolchain.choose(AMX, [CLANG]))
    assert (first.amx, second.amx) == ("on", "off")
    assert second.compiler is CLANG
    assert second.flags == toolchain.NO_AMX_FLAGS


def test_without_amx_there_is_nothing_to_fall_back_to():
    assert len(list(build.attempts(toolchain.choose(PLAIN, [GCC_12])))) == 1


def test_a_crash_of_the_self_test_is_named_by_its_signal():
    choice = make_plan().choice
    assert build.fault_of(-signal.SIGSEGV, "", "", choice, "cpu") == "it crashed with SIGSEGV"
    assert "no room" in (build.fault_of(1, "", "no room", choice, "cpu") or "")


def test_a_library_that_uses_amx_against_its_record_is_rejected():
    guarded, free = make_plan(AMX).choice, make_plan(AMX, CLANG).choice
    assert "told not to" in (build.fault_of(0, INFO_WITH_AMX, "", guarded, "cpu") or "")
    assert build.fault_of(0, INFO_WITH_AMX, "", free, "cpu") is None


def test_a_gpu_build_that_cannot_offload_is_rejected():
    choice = make_plan().choice
    assert "GPU" in (build.fault_of(0, "offload: False", "", choice, "cuda") or "")
    assert build.fault_of(0, "offload: True", "", choice, "cuda") is None


class Machine:
    """Stands in for pip and the self-test, which crashes for the builds named."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, cpu: Cpu, crashing: tuple[str, ...]
    ) -> None:
        self.record: dict[str, str] = {}
        self.tests: list[str] = []
        self._crashing = crashing
        monkeypatch.setattr(Cpu, "read", classmethod(lambda cls: cpu))
        monkeypatch.setattr(toolchain, "find_compilers", lambda env: [CLANG])
        monkeypatch.setattr(wheel, "tools", lambda cache: cache)
        monkeypatch.setattr(wheel, "compile_into", self._compile)
        monkeypatch.setattr(build, "installed", lambda: self.record)
        monkeypatch.setattr(build, "_install", self._install)
        monkeypatch.setattr(build, "_reject", lambda fault: self.record.clear())
        monkeypatch.setattr(build, "self_test", self._test)

    def _compile(self, folder: Path, plan: Plan, tools: Path, env: dict[str, str]) -> Path:
        file = put_wheel(folder)
        (folder / "plan.json").write_text(json.dumps(plan.record()))
        return file

    def _install(self, file: Path) -> None:
        self.record = json.loads((file.parent / "plan.json").read_text())

    def _test(self, choice: toolchain.Choice, backend: str) -> str | None:
        self.tests.append(choice.amx)
        return "it crashed with SIGILL" if choice.amx in self._crashing else None


def test_a_build_with_amx_that_crashes_is_replaced_and_not_tried_again(tmp_path, monkeypatch):
    machine = Machine(monkeypatch, AMX, crashing=("on",))
    build.ensure({}, tmp_path)
    assert (machine.record["amx"], machine.tests) == ("off", ["on", "on", "off"])
    build.ensure({}, tmp_path)
    assert machine.tests == ["on", "on", "off"]


def test_kernels_that_fail_on_this_cpu_are_left_out(tmp_path, monkeypatch):
    machine = Machine(monkeypatch, PLAIN, crashing=("absent",))
    answers = iter(["our kernels compute logits that are off by 3.000 on this CPU", None])
    monkeypatch.setattr(build, "self_test", lambda choice, backend: next(answers))
    build.ensure({}, tmp_path)
    assert machine.record["kernels"] == "off"


def test_logits_that_differ_by_rounding_agree_and_others_do_not():
    stock = "llama.cpp says\nlogits: 1.0 -2.0 4.0\nlogits: 0.5 1.5 -3.0\n"
    rounded = "logits: 1.2 -2.3 4.1\nlogits: 0.5 1.4 -3.2\n"
    assert build.disagreement(rounded, stock) is None
    for wrong in ("1.0 4.0 -2.0", "1.0 -2.0 nan", "1.0 -2.0 inf"):
        found = build.disagreement(f"logits: 1.0 -2.0 4.0\nlogits: {wrong}\n", stock)
        assert found is not None


def test_a_self_test_that_compares_nothing_is_no_proof():
    empty = "logits: 0.0 0.0 0.0\n"
    assert "same logit" in (build.disagreement(empty, empty) or "")
    with pytest.raises(AssertionError):
        build.disagreement("", "")


def test_the_self_test_computes_logits_that_tell_tokens_apart():
    choice = toolchain.Choice(Compiler("cc", "c++", "cc", "kept", True), "absent", "")
    assert build.self_test(choice, "cpu") is None


def test_a_build_that_never_works_is_an_error_and_is_not_left_installed(tmp_path, monkeypatch):
    machine = Machine(monkeypatch, PLAIN, crashing=("absent",))
    with pytest.raises(BuildError, match="self-test"):
        build.ensure({}, tmp_path)
    assert machine.record == {}


def test_another_checkout_reuses_the_cached_wheel(tmp_path, monkeypatch, capsys):
    machine = Machine(monkeypatch, PLAIN, crashing=())
    build.ensure({}, tmp_path)
    machine.record = {}
    build.ensure({}, tmp_path)
    assert capsys.readouterr().out.count("compiling") == 1
    assert machine.record["amx"] == "absent"
