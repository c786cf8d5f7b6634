"""Token rows read from a model file: the numbers of ggml, and refusals that say why."""

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.forecast.commontokens import CommonTokens
from appliance.forecast.dequantize import READABLE, dequantize
from appliance.forecast.encoder import EncoderError
from appliance.forecast.tokenrows import TokenRows
from appliance.forecast.tokentable import TokenTable
from appliance.gguf.tables import TENSORS
from tests.unit.test_gguf import PAIRS, make_gguf

TYPES = {name: (number, weights, size) for number, (name, weights, size) in TENSORS.items()}
Opener = Callable[[Path], TokenTable]
QUANTIZED = sorted(READABLE - {"F32", "F16", "BF16"})


def ggml() -> Any:
    """The library itself, as the engine uses it."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return ctypes.CDLL(str(Path(spec.submodule_search_locations[0]) / "lib" / "libggml-base.so"))


def quantized(name: str, weights: NDArray[np.float32]) -> bytes:
    """What ggml makes of the weights, one row."""
    number, per_block, size = TYPES[name]
    out = ctypes.create_string_buffer(weights.size // per_block * size)
    quantize = ggml().ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    source = weights.ctypes.data_as(ctypes.c_void_p)
    none = ctypes.c_void_p(0)
    row = ctypes.c_int64(weights.size)
    quantize(number, source, out, ctypes.c_int64(0), ctypes.c_int64(1), row, none)
    return out.raw


def by_ggml(name: str, raw: bytes, count: int) -> NDArray[np.float32]:
    found = np.empty(count, dtype=np.float32)
    read = getattr(ggml(), f"dequantize_row_{name.lower().replace('_k', '_K')}")
    read(raw, found.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(count))
    return found


@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_are_what_ggml_reads_from_the_same_bytes(name: str) -> None:
    weights = np.random.default_rng(7).normal(0, 1, 1024).astype(np.float32)
    raw = quantized(name, weights)
    blocks = np.frombuffer(raw, dtype=np.uint8).reshape(-1, TYPES[name][2])
    ours = dequantize(name, blocks).ravel()
    np.testing.assert_allclose(ours, by_ggml(name, raw, 1024), rtol=1e-5, atol=1e-6)
    assert np.corrcoef(ours, weights)[0, 1] > 0.98


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens tables and closes them after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(contextlib.closing(TokenTable(path)))


def model(tmp_path: Path, type_name: str, raw: bytes, shape: tuple[int, ...] = (256, 4)) -> Path:
    """A file whose table holds `raw`; the table starts after other data."""
    number = TYPES[type_name][0]
    tensors = [
        ("output_norm.weight", (32,), 0, 0, 128),
        ("token_embd.weight", shape, number, 128, len(raw)),
    ]
    path = tmp_path / "m.gguf"
    whole = make_gguf(PAIRS, tensors)
    path.write_bytes(whole[: len(whole) - len(raw)] + raw)
    return path


def halves(rows: int = 4) -> NDArray[np.float16]:
    return np.random.default_rng(1).normal(0, 1, (rows, 256)).astype(np.float16)


def test_rows_come_by_token_id_and_again_from_memory(tmp_path: Path, opened: Opener) -> None:
    table = halves()
    source = opened(model(tmp_path, "F16", table.tobytes()))
    assert (source.count, source.width) == (4, 256)
    for _ in range(2):
        np.testing.assert_array_equal(source.rows([3, 0, 3]), table[[3, 0, 3]].astype(np.float32))


def test_bf16_is_float32_cut_short(tmp_path: Path, opened: Opener) -> None:
    values = np.arange(-512, 512, dtype=np.float32)
    raw = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    rows = opened(model(tmp_path, "BF16", raw)).rows([0, 1, 2, 3])
    np.testing.assert_allclose(rows.ravel(), values, rtol=2**-7)


def test_ids_outside_the_table_are_not_known(tmp_path: Path, opened: Opener) -> None:
    source = opened(model(tmp_path, "F16", halves().tobytes()))
    assert source.known([-1, 4, 2**40]) == []
    assert source.known([-1, 2, 4]) == [2]
    assert source.rows([]).shape == (0, 256)


def test_the_centre_is_the_mean_of_rows_spread_over_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    table = halves()
    path = model(tmp_path, "F16", table.tobytes())
    np.testing.assert_allclose(opened(path).centre(), table.astype(np.float32).mean(0), atol=1e-3)
    monkeypatch.setattr("appliance.forecast.tokentable.SAMPLED", 2)
    expected = table[[0, 2]].astype(np.float32).mean(axis=0)
    np.testing.assert_allclose(opened(path).centre(), expected, atol=1e-3)


def test_sums_are_of_weighed_rows_and_their_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    monkeypatch.setattr("appliance.forecast.tokenrows.KEPT_BYTES", 4 * 2 * 256)
    table = halves(40)
    source = opened(model(tmp_path, "F16", table.tobytes(), (256, 40)))
    common = CommonTokens.of([(1, 2), (1, 3)])
    centre = np.full(256, 0.5, dtype=np.float32)
    rows = TokenRows(source, centre, common, most=4)
    dice = np.random.default_rng(2)
    for _ in range(50):
        ids = dice.integers(0, 40, size=dice.integers(1, 5)).tolist()
        expected = common.weights(ids) @ (table[ids].astype(np.float32) - centre)
        np.testing.assert_allclose(rows.sum((*ids, 99)), expected, atol=1e-4)
        assert len(rows) <= 4


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path, opened: Opener) -> None:
    path = model(tmp_path, "F16", halves().tobytes())
    source = opened(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    with pytest.raises(EncoderError, match="became shorter"):
        source.rows([3])


def test_a_table_of_an_unread_type_is_named(tmp_path: Path) -> None:
    raw = b"\0" * (4 * TYPES["IQ4_XS"][2])
    with pytest.raises(EncoderError, match="IQ4_XS"):
        TokenTable(model(tmp_path, "IQ4_XS", raw))


def test_a_model_without_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(make_gguf(tensors=[("other", (32,), 0, 0, 128)]))
    with pytest.raises(EncoderError, match=r"token_embd\.weight"):
        TokenTable(path)


def test_a_table_that_is_one_row_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no table"):
        TokenTable(model(tmp_path, "F16", halves().tobytes(), (1024,)))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\0" * 1000])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(EncoderError, match="token table cannot be read"):
        TokenTable(path)


def test_a_named_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EncoderError, match="not a regular file"):
        TokenTable(tmp_path / "pipe")


def test_a_missing_file_is_refused_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(EncoderError) as caught:
        TokenTable(tmp_path / "none.gguf")
    assert str(tmp_path) not in str(caught.value)
