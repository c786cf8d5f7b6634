"""A network with INT8 weights and activations: static, QDQ, as ONNX Runtime and TensorRT fuse it.

Weights have one scale for each output, activations one for each layer, all symmetric about 0
(TensorRT takes no other). Scales come from training rows: for each layer the one with the least
squared error of what it multiplies. Only calibration imports this.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from appliance.forecast.export import dense, layers, serialized
from appliance.forecast.network import Network
from appliance.forecast.onnxgraph import INPUT

Floats32 = NDArray[np.float32]

STEPS = 127
_SHARES = np.linspace(0.4, 1.0, 25)
"""Of the largest activation: which one is tried as the largest that is told apart."""


def int8(network: Network, rows: Floats32) -> bytes:
    """`rows` [n, F]: features that the network is to be used on, the training ones."""
    nodes: list[Any] = []
    arrays: dict[str, NDArray[Any]] = {}
    source, x = INPUT, np.asarray(rows, dtype=np.float32)
    for index, (w, b) in enumerate(layers(network), 1):
        arrays |= _quantized_weights(w, index) | {f"b{index}": b}
        arrays[f"s{index}"] = np.array(activation_scale(x, w), dtype=np.float32)
        arrays[f"z{index}"] = np.array(0, dtype=np.int8)
        source = dense(nodes, *_rounded(nodes, source, index), index)
        x = np.maximum(x @ w + b, 0.0)
    return serialized(nodes, arrays, network.inputs)


def _rounded(nodes: list[Any], source: str, index: int) -> tuple[str, str]:
    """Appends the rounding of activations and the reading of weights; the names of both."""
    scale = [f"s{index}", f"z{index}"]
    nodes.append(helper.make_node("QuantizeLinear", [source, *scale], [f"q{index}"]))
    nodes.append(helper.make_node("DequantizeLinear", [f"q{index}", *scale], [f"x{index}"]))
    weight = [f"wq{index}", f"ws{index}", f"wz{index}"]
    nodes.append(helper.make_node("DequantizeLinear", weight, [f"w{index}"], axis=1))
    return f"x{index}", f"w{index}"


def _quantized_weights(w: Floats32, index: int) -> dict[str, NDArray[Any]]:
    scales = weight_scales(w)
    whole = np.clip(np.rint(w / scales), -STEPS, STEPS).astype(np.int8)
    zeros = np.zeros(w.shape[1], dtype=np.int8)
    return {f"wq{index}": whole, f"ws{index}": scales, f"wz{index}": zeros}


def weight_scales(w: Floats32) -> Floats32:
    """One for each column of w[in, out]."""
    return np.asarray(np.maximum(np.abs(w).max(axis=0), 1e-8) / STEPS, dtype=np.float32)


def activation_scale(x: Floats32, w: Floats32) -> float:
    """The scale with the least squared error of x w over the rows."""
    largest = max(float(np.abs(x).max(initial=0.0)), 1e-6)
    tried = largest * _SHARES / STEPS
    errors = [float((((rounded(x, scale) - x) @ w) ** 2).mean()) for scale in tried]
    return float(tried[int(np.argmin(errors))])


def rounded(x: Floats32, scale: float) -> Floats32:
    """x as INT8 holds it."""
    whole = np.clip(np.rint(x / np.float32(scale)), -STEPS - 1, STEPS)
    return np.asarray(whole * np.float32(scale), dtype=np.float32)
