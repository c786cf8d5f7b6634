"""What the doctor tries in a child: the engine with the default model, networks on ONNX Runtime."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.doctor import child, engine, enginetrial, model, onnx
from appliance.doctor.enginetrial import EngineTrial, try_engine
from appliance.doctor.loadlog import placement
from appliance.doctor.running import Box
from appliance.models import locate
from appliance.models.memory import Available
from tests.unit.doctor_parts import TellingBox, levels, make_config, make_ground, only

ONE_THREAD = {"threads": 1, "context": 512, "batch": 64, "ubatch": 64, "prefill_tokens": 64}
LOG = """\
load_tensors: layer   0 assigned to device CPU, is_swa = 0
load_tensors: layer   1 assigned to device CUDA0, is_swa = 0
load_tensors: layer   2 assigned to device CUDA0, is_swa = 0
load_tensors: offloading 2 repeating layers to GPU
load_tensors: offloaded 2/3 layers to GPU
load_tensors:        CUDA0 model buffer size =    60.00 MiB
load_tensors:   CPU_Mapped model buffer size =    30.50 MiB
llama_kv_cache:      CUDA0 KV buffer size =    11.25 MiB
sched_reserve:        CPU compute buffer size =    12.00 MiB
"""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> EngineTrial:
    """The default model, really loaded."""
    config = make_config(tmp_path_factory.mktemp("trial"), engine=ONE_THREAD)
    return try_engine(config, Box.none())


# -- the log of a load -----------------------------------------------------------------------------


def test_log_tells_where_each_layer_and_buffer_lies() -> None:
    found = placement(LOG)
    assert found.layers == {"CPU": 1, "CUDA0": 2}
    assert (found.on_devices, found.total) == (2, 3)
    assert found.bytes_of("model") == round(90.5 * (1 << 20))
    assert str(found) == "1 on CPU, 2 on CUDA0"


def test_log_without_layers_tells_nothing() -> None:
    assert placement("nothing of it").total == 0
    assert str(placement("")) == "no layer was named"


# -- the model -------------------------------------------------------------------------------------


def test_default_model_and_its_template_are_well(tmp_path: Path) -> None:
    ground = make_ground(tmp_path)
    found = list(model.look(ground))
    assert levels(found) == {"model.file": "ok", "model.template": "ok"}
    assert ground.model_sha256 in only(found, "model.file").found
    assert not ground.state_dir.exists(), "nothing is made by looking"


def test_template_that_drops_the_system_message_is_told(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("{% for m in messages if m.role != 'system' %}{{ m.content }}\n{% endfor %}>")
    ground = make_ground(tmp_path, model={"chat_template": str(file)})
    found = only(model.look(ground), "model.template")
    assert (found.level, "drops system messages" in found.found) == ("warn", True)


def test_model_that_is_not_the_one_it_should_be_fails(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, model={"sha256": "0" * 64})
    assert levels(model.look(ground)) == {"model.file": "fail"}
    assert ground.model_sha256 == ""


# -- the engine ------------------------------------------------------------------------------------


def test_default_model_decodes_and_its_log_names_every_layer(trial: EngineTrial) -> None:
    assert trial.problem == ""
    assert trial.decoded
    assert trial.placed.total == trial.layers + 1, "the output layer counts as one"
    assert trial.placed.bytes_of("model") > 50 << 20
    assert trial.placed.bytes_of("KV") > 0
    assert trial.decode_ms > 0
    assert "SSE3" in trial.system_info or "NEON" in trial.system_info


def test_engine_that_decodes_is_well(tmp_path: Path, trial: EngineTrial) -> None:
    ground = make_ground(tmp_path)
    ground.__dict__["engine"] = trial
    assert levels(engine.look(ground)) == {"engine.decode": "ok"}


def test_truncated_model_fails_before_a_child_opens_it(tmp_path: Path) -> None:
    whole = locate(make_config(tmp_path).model).read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) // 2])
    found = only(engine.look(make_ground(tmp_path, model={"path": str(cut)})), "engine.decode")
    assert found.level == "fail"
    assert str(cut) in found.found
    assert found.do


def test_settings_that_llama_cpp_refuses_fail_with_its_words(tmp_path: Path) -> None:
    refused = {**ONE_THREAD, "kv_type": "q4_0", "flash_attention": "off"}
    found = only(engine.look(make_ground(tmp_path, engine=refused)), "engine.decode")
    assert (found.level, "cannot make a context" in found.found) == ("fail", True)


def test_model_on_a_vanished_disk_fails_without_a_child(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, model={"path": str(tmp_path / "gone/model.gguf")})
    found = only(engine.look(ground), "engine.decode")
    assert (found.level, "no such file" in found.found) == ("fail", True)


def test_second_copy_is_not_forced_onto_a_gpu_that_a_box_uses(tmp_path: Path) -> None:
    box = TellingBox({"/props": (200, {"engine": {"layers_offloaded": 31}})})
    found = try_engine(make_config(tmp_path, engine=ONE_THREAD), box)
    assert found.skipped, "no driver here, or no room: either way it is not tried unseen"
    assert not found.decoded


def test_model_is_not_tried_where_others_would_be_ended_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enginetrial, "available", lambda: Available(8 << 30, 200 << 20))
    ground = make_ground(tmp_path, engine=ONE_THREAD)
    found = only(engine.look(ground), "engine.decode")
    assert found.level == "note"
    assert "200 MiB of memory are free" in found.found


# -- children --------------------------------------------------------------------------------------


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    (tmp_path / "trial_module.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "trial_module"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ended by SIGILL"),
        ("import sys; print('{}'); sys.stderr.write('bad luck\\n'); sys.exit(3)", "bad luck"),
        ("print('no object')", "told nothing"),
        ("print('[1]')", "told nothing"),
    ],
)
def test_child_that_fails_is_a_problem_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    ran = child.run(module(tmp_path, monkeypatch, body), [], timeout_s=60)
    assert said in ran.problem
    assert ran.told == {}


def test_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "import signal; signal.pause()")
    assert "not done within" in child.run(name, [], timeout_s=0.2).problem


def test_child_takes_no_module_from_the_folder_that_the_operator_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('planted')")
    (tmp_path / "appliance").mkdir()
    (tmp_path / "appliance/__init__.py").write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path)
    ran = child.run("appliance.doctor.onnxprobe", [""], timeout_s=120)
    assert ran.problem == ""
    assert "planted" not in ran.log


def test_child_tells_its_last_line_and_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "import sys; print('noise'); print('{\"a\": 1}'); sys.stderr.write(sys.argv[1])"
    ran = child.run(module(tmp_path, monkeypatch, body), ["log"], timeout_s=60)
    assert (ran.told, ran.log, ran.problem) == ({"a": 1}, "log", "")


# -- ONNX ------------------------------------------------------------------------------------------


def test_both_networks_run_on_the_cpu_with_all_their_nodes(tmp_path: Path) -> None:
    found = list(onnx.look(make_ground(tmp_path)))
    assert set(levels(found).values()) == {"ok"}
    for id in ("onnx.forecaster", "onnx.encoder"):
        told = next(one.found for one in found if one.id == id and "on cpu" in one.found)
        here, total = told.partition(" ms a run, ")[2].removesuffix(" nodes there").split(" of ")
        assert here == total


def run_of(network: str, provider: str, **more: Any) -> dict[str, Any]:
    return {"network": network, "provider": provider, "ms": 0.1, "nodes": {provider: 5}, **more}


CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@pytest.mark.parametrize(
    ("trial", "level"),
    [
        (run_of("encoder", CUDA, distance=0.01), "ok"),
        (run_of("encoder", CUDA, nodes={CPU: 5}, distance=0.0), "warn"),
        (run_of("encoder", CUDA, distance=3.0), "warn"),
        (run_of("encoder", CUDA, distance=float("nan")), "warn"),
        ({"network": "encoder", "provider": CUDA, "problem": "chose CPU instead"}, "warn"),
        ({"network": "encoder", "provider": CPU, "problem": "broken"}, "fail"),
        ({"network": "encoder", "provider": "", "problem": "not installed"}, "warn"),
    ],
    ids=["runs", "named only", "wrong", "no number", "falls back", "not even the CPU", "missing"],
)
def test_provider_counts_only_where_it_computed(trial: dict[str, Any], level: str) -> None:
    told = {"version": "1", "providers": [CUDA, CPU], "trials": [trial]}
    assert levels(onnx.judged(json.loads(json.dumps(told)), ()))["onnx.encoder"] == level


def test_provider_that_is_asked_for_and_not_built_in_is_told() -> None:
    told = {"version": "1", "providers": [CPU], "trials": []}
    assert levels(onnx.judged(told, ("tensorrt",)))["onnx.providers"] == "warn"


def test_machine_without_a_forecaster_for_its_model_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = make_ground(tmp_path)
    ground.__dict__["model_sha256"] = "0" * 64
    monkeypatch.setattr(child, "run", lambda *_, **__: child.Ran({"missing": "not there"}, ""))
    found = levels(onnx.look(ground))
    assert found == {"onnx.forecaster": "note", "onnx.runtime": "warn"}
