"""A network as an ONNX file, for ONNX Runtime 1.18 and later and for TensorRT.

Only calibration imports this: the box that serves needs no onnx package.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from appliance.forecast.network import OUTPUTS, Network
from appliance.forecast.onnxgraph import INPUT, OUTPUT

OPSET = 17
IR_VERSION = 8
"""What ONNX Runtime 1.18 and TensorRT 8.6 read, and all since."""


def fp32(network: Network) -> bytes:
    """The network as it is: features [n, F] -> logits [n, 25]."""
    nodes: list[Any] = []
    weights: dict[str, NDArray[Any]] = {}
    source = INPUT
    for index, (w, b) in enumerate(layers(network), 1):
        weights |= {f"w{index}": w, f"b{index}": b}
        source = dense(nodes, source, f"w{index}", index)
    return serialized(nodes, weights, network.inputs)


def layers(network: Network) -> Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    return ((network.w1, network.b1), (network.w2, network.b2), (network.w3, network.b3))


def dense(nodes: list[Any], source: str, weight: str, index: int) -> str:
    """Appends x w + b, then relu but for the last. Returns the name of what comes out. MatMul and
    Add, not Gemm: TensorRT takes no quantised bias, and needs none so."""
    last = index == 3
    out = OUTPUT if last else f"sum{index}"
    nodes.append(helper.make_node("MatMul", [source, weight], [f"product{index}"]))
    nodes.append(helper.make_node("Add", [f"product{index}", f"b{index}"], [out]))
    if not last:
        nodes.append(helper.make_node("Relu", [out], [f"hidden{index}"]))
    return out if last else f"hidden{index}"


def serialized(nodes: list[Any], weights: dict[str, NDArray[Any]], inputs: int) -> bytes:
    """The file's bytes, after onnx's own checker."""
    graph = helper.make_graph(
        nodes,
        "forecaster",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", inputs])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", OUTPUTS])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    model.producer_name = "steelyard"
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString(deterministic=True)
    return data
