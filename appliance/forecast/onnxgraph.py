"""What an ONNX file would do, looked at before ONNX Runtime opens it: a model file is a program.

Reads just enough of the protobuf (onnx.proto; field numbers below) to tell which operators run,
what goes in and out, and that nothing lies in other files. The daemon needs no onnx package.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.forecast.network import OUTPUTS

MAX_ONNX = 1024 * 1024
"""Bytes. A forecaster's network takes 40 KB."""
INPUT, OUTPUT = "features", "logits"
OPERATORS = frozenset({"MatMul", "Add", "Relu", "Gemm", "QuantizeLinear", "DequantizeLinear"})
"""Of the default domain. None loops, branches, reads a file or asks for memory of its own."""
MOST_NODES = 64
FLOAT = 1
"""TensorProto.DataType."""

_GRAPH, _TRAINING, _FUNCTIONS = 7, 20, 25  # of ModelProto
_NODE, _INITIALIZER, _SPARSE, _INPUT, _OUTPUT = 1, 5, 15, 11, 12  # of GraphProto
_OPERATOR, _DOMAIN = 4, 7  # of NodeProto
_EXTERNAL = 13  # of TensorProto
_NAME, _TYPE = 1, 2  # of ValueInfoProto; TypeProto.tensor_type, and its shape and dim, are 1, 2, 1


class BadGraph(ValueError):
    """Not a network that a forecaster may have: says why."""


@dataclass(frozen=True, slots=True)
class Value:
    """An input or an output."""

    name: str
    element: int
    shape: tuple[int, ...]
    """-1: not fixed."""


def check(data: bytes, inputs: int) -> None:
    """One input `features` [n, inputs], one output `logits` [n, 25], known operators only, all
    weights inside. Raises BadGraph."""
    if len(data) > MAX_ONNX:
        raise BadGraph(f"is larger than {MAX_ONNX} bytes")
    try:
        _check_model(data, inputs)
    except (IndexError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadGraph("is not a whole ONNX file") from error


def _check_model(data: bytes, inputs: int) -> None:
    fields = list(_fields(data))
    graphs = [part for number, part in fields if number == _GRAPH]
    if any(number in (_TRAINING, _FUNCTIONS) for number, _ in fields) or len(graphs) != 1:
        raise BadGraph("is not one plain ONNX graph")
    graph = list(_fields(_bytes(graphs[0])))
    _check_nodes([_bytes(part) for number, part in graph if number == _NODE])
    for number, part in graph:
        if number == _SPARSE or (number == _INITIALIZER and _is_outside(_bytes(part))):
            raise BadGraph("keeps weights outside itself, which is not read here")
    _check_value(graph, _INPUT, Value(INPUT, FLOAT, (-1, inputs)))
    _check_value(graph, _OUTPUT, Value(OUTPUT, FLOAT, (-1, OUTPUTS)))


def _check_nodes(nodes: list[bytes]) -> None:
    if not 0 < len(nodes) <= MOST_NODES:
        raise BadGraph(f"has {len(nodes)} operators, not 1 to {MOST_NODES}")
    for node in nodes:
        parts = dict(_fields(node))
        operator = _text(parts.get(_OPERATOR, b""))
        if operator not in OPERATORS or _text(parts.get(_DOMAIN, b"")) not in ("", "ai.onnx"):
            raise BadGraph(f"runs {operator[:40]!r}, which no forecaster needs")


def _is_outside(tensor: bytes) -> bool:
    return any(number == _EXTERNAL for number, _ in _fields(tensor))


def _check_value(graph: list[tuple[int, "bytes | int"]], field: int, wanted: Value) -> None:
    found = [_value(_bytes(part)) for number, part in graph if number == field]
    if len(found) != 1 or found[0] != wanted:
        side = "in" if field == _INPUT else "out"
        shown = ", ".join(f"{one.name[:40]} {list(one.shape)}" for one in found) or "nothing"
        raise BadGraph(
            f"takes or gives {shown} as its {side}put, not {wanted.name} {list(wanted.shape)}"
        )


def _value(data: bytes) -> Value:
    parts = dict(_fields(data))
    tensor = dict(_fields(_bytes(dict(_fields(_bytes(parts.get(_TYPE, b"")))).get(1, b""))))
    element = tensor.get(1, 0)
    dims = [_bytes(dim) for number, dim in _fields(_bytes(tensor.get(2, b""))) if number == 1]
    sizes = [dict(_fields(dim)).get(1, -1) for dim in dims]
    shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
    return Value(_text(parts.get(_NAME, b"")), element if isinstance(element, int) else 0, shape)


def _fields(data: bytes) -> Iterator[tuple[int, "bytes | int"]]:
    """(number, value) of one protobuf message. Raises IndexError or BadGraph where it is none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise BadGraph("is not a whole ONNX file")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadGraph("is not a whole ONNX file")


def _bytes(part: "bytes | int") -> bytes:
    if isinstance(part, int):
        raise BadGraph("is not an ONNX file")
    return part


def _text(part: "bytes | int") -> str:
    return _bytes(part).decode()
