"""The network as ONNX: the same numbers, and never on a provider that does not run."""

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from appliance.forecast import export, onnxgraph, quantize, sessions
from appliance.forecast.hazard import BINS, hazards_of, survivals
from appliance.forecast.network import OUTPUTS, Network
from appliance.forecast.onnxgraph import INPUT, OUTPUT, BadGraph
from tests.unit.bundle_parts import make_bundle, make_network

Floats32 = NDArray[np.float32]

INPUTS = 50
NETWORK = make_network(INPUTS)
ROWS = np.random.default_rng(1).normal(size=(400, INPUTS)).astype(np.float32)
MODELS = {"fp32": export.fp32(NETWORK), "int8": quantize.int8(NETWORK, ROWS)}


# Export


def test_fp32_model_computes_what_numpy_does() -> None:
    running = sessions.start(NETWORK, MODELS, providers=["cpu"])
    assert (running.provider, running.precision, running.degraded) == (sessions.CPU, "fp32", "")
    assert running.logits(ROWS) == pytest.approx(NETWORK.forward(ROWS), abs=1e-4)


def test_one_row_and_many_give_the_same() -> None:
    running = sessions.start(NETWORK, MODELS, providers=["cpu"])
    assert running.logits(ROWS[:1])[0] == pytest.approx(running.logits(ROWS)[0], abs=1e-4)


def test_int8_model_loses_less_than_one_percent_of_crps() -> None:
    running = sessions.start(NETWORK, MODELS, providers=["cpu"], precision="int8")
    assert (running.precision, running.degraded) == ("int8", "")
    rng = np.random.default_rng(2)
    whole = hazards_of(NETWORK.forward(ROWS)[:, :BINS])
    lengths = drawn(rng, whole)
    lost = crps(hazards_of(running.logits(ROWS)[:, :BINS]), lengths) / crps(whole, lengths)
    assert lost == pytest.approx(1.0, abs=0.01)


def test_int8_quality_logit_is_off_by_less_than_its_share() -> None:
    running = sessions.start(NETWORK, MODELS, providers=["cpu"], precision="int8")
    here, there = NETWORK.forward(ROWS)[:, BINS], running.logits(ROWS)[:, BINS]
    chances = [1 / (1 + np.exp(-z)) for z in (here, there)]
    assert np.sqrt(np.mean((chances[0] - chances[1]) ** 2)) < 0.01


def test_int8_weights_have_a_scale_for_each_output_and_zero_points_of_zero() -> None:
    model = onnx.load_from_string(MODELS["int8"])
    held = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    assert held["wq1"].dtype == np.int8
    assert held["ws1"].shape == (64,)
    assert not any(held[name].any() for name in held if name.startswith(("z", "wz")))


def test_files_are_of_versions_that_the_oldest_runtimes_read() -> None:
    for data in MODELS.values():
        model = onnx.load_from_string(data)
        assert (model.ir_version, model.opset_import[0].version) == (8, 17)
        assert model.graph.input[0].name == INPUT
        assert model.graph.output[0].name == OUTPUT


def drawn(rng: np.random.Generator, hazards: NDArray[np.float64]) -> NDArray[np.int64]:
    """An answer from each distribution, 2000 tokens at most."""
    left = survivals(hazards, np.arange(2000))
    return np.asarray((left > rng.uniform(size=(len(hazards), 1))).sum(axis=1), dtype=np.int64)


def crps(hazards: NDArray[np.float64], lengths: NDArray[np.int64]) -> float:
    below = 1.0 - survivals(hazards, np.arange(2000))
    reached = np.arange(2000) >= lengths[:, None]
    return float(((below - reached) ** 2).sum(axis=1).mean())


# Which provider runs


class Scripted:
    """An ONNX Runtime with the providers it is given."""

    SessionOptions = SimpleNamespace

    def __init__(
        self,
        available: Sequence[str],
        *,
        broken: Sequence[str] = (),
        falls_back: Sequence[str] = (),
        wrong: Sequence[str] = (),
        network: Network = NETWORK,
    ) -> None:
        self._available = list(available)
        self._broken, self._falls_back, self._wrong = broken, falls_back, wrong
        self._network = network
        self.opened: list[tuple[str, int]] = []

    def get_available_providers(self) -> list[str]:
        return self._available

    def InferenceSession(self, model: bytes, options: Any, providers: list[str]) -> Any:  # noqa: N802
        first = providers[0]
        self.opened.append((first, options.intra_op_num_threads))
        if first in self._broken:
            raise RuntimeError(f"{first}: no such device\nsecond line")
        in_use = [sessions.CPU] if first in self._falls_back else providers
        off = np.float32(5.0 if first in self._wrong else 0.0)
        return SimpleNamespace(
            get_providers=lambda: in_use,
            run=lambda names, feeds: [self._network.forward(feeds[INPUT]) + off],
        )


TRT, CUDA, CPU = sessions.PROVIDERS.values()


def started(runtime: Scripted, *providers: str) -> sessions.Running:
    return sessions.start(NETWORK, MODELS, providers=providers, runtime=runtime)


def test_tensorrt_goes_before_cuda_and_cuda_before_cpu() -> None:
    assert started(Scripted([CPU, CUDA, TRT])).provider == TRT
    assert started(Scripted([CPU, CUDA])).provider == CUDA
    assert started(Scripted([CPU])).provider == CPU


def test_what_the_build_does_not_have_is_no_fault_unless_asked_for() -> None:
    assert started(Scripted([CPU])).degraded == ""
    asked = started(Scripted([CPU]), "cuda")
    assert asked.provider == CPU
    assert "cuda does not run" in asked.degraded
    assert "forecast.providers" in asked.degraded


def test_provider_that_breaks_is_told_and_the_next_one_runs() -> None:
    found = started(Scripted([TRT, CUDA, CPU], broken=[TRT]))
    assert found.provider == CUDA
    assert "tensorrt does not run" in found.degraded
    assert "no such device second line" in found.degraded


def test_silent_fallback_of_the_runtime_is_seen_and_told() -> None:
    found = started(Scripted([CUDA, CPU], falls_back=[CUDA]), "cuda")
    assert found.provider == CPU
    assert "ONNX Runtime chose CPUExecutionProvider instead" in found.degraded


def test_provider_that_computes_something_else_is_not_used() -> None:
    found = started(Scripted([CUDA, CPU], wrong=[CUDA]))
    assert found.provider == CPU
    assert "off those of the weights beside it" in found.degraded


def test_provider_that_was_forced_is_the_only_one_tried_before_the_cpu() -> None:
    runtime = Scripted([TRT, CUDA, CPU], broken=[CUDA])
    assert started(runtime, "cuda").provider == CPU
    assert [name for name, _ in runtime.opened] == [CUDA, CPU]
    assert started(Scripted([TRT, CUDA, CPU]), "cpu").degraded == ""


def test_providers_are_tried_in_the_order_asked_for() -> None:
    assert started(Scripted([TRT, CUDA, CPU]), "cuda", "tensorrt").provider == CUDA
    found = started(Scripted([TRT, CUDA, CPU], broken=[CUDA]), "cuda", "tensorrt")
    assert found.provider == TRT
    assert "cuda does not run" in found.degraded


def test_sessions_compute_with_one_thread() -> None:
    runtime = Scripted([CPU])
    started(runtime)
    assert runtime.opened == [(CPU, 1)]


def test_numpy_computes_where_no_session_starts() -> None:
    found = started(Scripted([CPU], broken=[CPU]))
    assert found.provider == sessions.NUMPY
    assert "NumPy computes" in found.degraded
    assert found.logits(ROWS[:3]) == pytest.approx(NETWORK.forward(ROWS[:3]))


def test_numpy_computes_where_onnxruntime_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_installed", lambda: None)
    found = sessions.start(NETWORK, MODELS)
    assert found.provider == sessions.NUMPY
    assert "steelyard[cpu]" in found.degraded


def test_precision_that_the_forecaster_does_not_have_is_told() -> None:
    found = sessions.start(NETWORK, {"fp32": MODELS["fp32"]}, providers=["cpu"], precision="int8")
    assert found.precision == "fp32"
    assert "no int8 model" in found.degraded


def test_model_of_another_network_is_foreign() -> None:
    foreign = {"fp32": export.fp32(make_network(INPUTS, seed=9))}
    with pytest.raises(sessions.Foreign, match="off those"):
        sessions.start(NETWORK, foreign, providers=["cpu"])


def test_weights_that_are_no_numbers_are_foreign() -> None:
    spoilt = make_network(INPUTS)
    spoilt.w2[3, 3] = np.nan
    with pytest.raises(sessions.Foreign, match="nan"):
        sessions.start(NETWORK, {"fp32": export.fp32(spoilt)}, providers=["cpu"])


# What an ONNX file may be


def graph_of(
    nodes: Sequence[Any], *, width: int = INPUTS, name: str = INPUT, domain: str = ""
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", OUTPUTS])],
    )
    data: bytes = helper.make_model(graph).SerializeToString()
    return data


def test_our_own_models_pass() -> None:
    for data in MODELS.values():
        onnxgraph.check(data, INPUTS)


@pytest.mark.parametrize("operator", ["Loop", "If", "Scan", "Tile", "Expand", "Sigmoid"])
def test_operator_that_no_forecaster_needs_is_refused(operator: str) -> None:
    with pytest.raises(BadGraph, match=operator):
        onnxgraph.check(graph_of([helper.make_node(operator, [INPUT], [OUTPUT])]), INPUTS)


def test_operator_of_a_foreign_domain_is_refused() -> None:
    node = helper.make_node("Relu", [INPUT], [OUTPUT], domain="com.microsoft")
    with pytest.raises(BadGraph, match="Relu"):
        onnxgraph.check(graph_of([node]), INPUTS)


def test_model_with_other_inputs_is_refused() -> None:
    node = helper.make_node("Relu", [INPUT], [OUTPUT])
    with pytest.raises(BadGraph, match=r"input, not features \[-1, 50\]"):
        onnxgraph.check(graph_of([node], width=7), INPUTS)
    with pytest.raises(BadGraph, match="pixels"):
        onnxgraph.check(graph_of([node], name="pixels"), INPUTS)


def test_weights_in_other_files_are_refused() -> None:
    model = onnx.load_from_string(MODELS["fp32"])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    with pytest.raises(BadGraph, match="outside"):
        onnxgraph.check(model.SerializeToString(), INPUTS)


def test_functions_of_its_own_are_refused() -> None:
    model = onnx.load_from_string(MODELS["fp32"])
    model.functions.add(name="Relu")
    with pytest.raises(BadGraph, match="plain"):
        onnxgraph.check(model.SerializeToString(), INPUTS)


def test_model_of_many_megabytes_is_refused_unread() -> None:
    with pytest.raises(BadGraph, match="larger"):
        onnxgraph.check(b"\0" * (onnxgraph.MAX_ONNX + 1), INPUTS)


@given(st.binary(max_size=400))
def test_garbage_raises_only_our_error(data: bytes) -> None:
    with pytest.raises(BadGraph):
        onnxgraph.check(data, INPUTS)


@given(st.integers(0, len(MODELS["fp32"]) - 1), st.integers(0, 255))
def test_spoilt_byte_raises_only_our_error(at: int, byte: int) -> None:
    data = bytearray(MODELS["fp32"])
    data[at] = byte
    for spoilt in (bytes(data), bytes(data[:at])):
        with suppress(BadGraph):  # any other exception fails here
            onnxgraph.check(spoilt, INPUTS)


def test_bundle_of_the_tests_runs_in_both_precisions() -> None:
    bundle = make_bundle()
    assert bundle.int8 is not None
    models = {"fp32": bundle.fp32, "int8": bundle.int8}
    for precision in models:
        found = sessions.start(bundle.network, models, providers=["cpu"], precision=precision)
        assert (found.precision, found.degraded) == (precision, "")
