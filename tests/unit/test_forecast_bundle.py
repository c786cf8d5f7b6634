"""A forecaster's file: what is read back, and what is refused."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.forecast import archive, bundle, export, features
from appliance.forecast.archive import BadArchive
from appliance.forecast.bundle import MANIFEST, BadForecaster, Bundle, Quality
from appliance.forecast.conformal import Group, Table
from appliance.forecast.neighbours import Neighbours
from tests.unit.bundle_parts import (
    MODEL,
    OTHER_MODEL,
    make_bundle,
    make_first,
    make_network,
    question,
)

PACKED = make_bundle().pack()


def members_of(data: bytes = PACKED) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(members: dict[str, bytes], *, sealed: bool = True, **changes: Any) -> bytes:
    """A file of these members; `sealed`: the manifest has their hashes. `changes`: of it."""
    manifest = json.loads(members[MANIFEST]) | changes
    if sealed:
        others = {name: data for name, data in members.items() if name != MANIFEST}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in others.items()}
        manifest["members"] = hashes
    return archive.pack(members | {MANIFEST: json.dumps(manifest).encode()})


def refused(data: bytes) -> str:
    with pytest.raises(BadForecaster) as caught:
        Bundle.parse(data)
    return str(caught.value)


def with_arrays(change: Callable[[dict[str, Any]], None]) -> bytes:
    members = members_of()
    held = archive.arrays(members["arrays.npz"], bundle.MAX_UNPACKED)
    change(held)
    return packed(members | {"arrays.npz": archive.npz(held)})


# Round trip


def test_what_is_packed_is_read_back() -> None:
    found, made = Bundle.parse(PACKED), make_bundle()
    assert found.manifest.name == made.manifest.name
    assert set(found.manifest.members) == set(bundle.NAMES) - {MANIFEST}
    assert (found.fp32, found.int8) == (made.fp32, made.int8)
    assert found.report_html == b"<p>report</p>"
    assert found.refine is not None
    assert found.refine["weights"].tolist() == [0, 1, 2, 3]
    one = question("List five things")
    embedding = np.ones(12, dtype=np.float32)
    rows = [each.pipeline.row(one, embedding, each.neighbours).values for each in (found, made)]
    assert rows[0] == pytest.approx(rows[1], abs=0.02)  # neighbours are kept as short floats
    assert found.network.forward(rows[0][None]) == pytest.approx(
        made.network.forward(rows[0][None])
    )


def test_same_parts_give_the_same_bytes() -> None:
    assert make_bundle().pack() == PACKED
    assert Bundle.parse(PACKED).pack() == PACKED


def test_only_network_and_arrays_are_needed() -> None:
    bare = replace(make_bundle(), int8=None, refine=None, report_html=b"", report_json=b"")
    found = Bundle.parse(bare.pack())
    assert (found.int8, found.refine, found.report_html) == (None, None, b"")


def test_calibration_travels_with_it() -> None:
    table = Table((Group("", 40, 3, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (True,) * 6),))
    found = Bundle.parse(make_bundle(conformal=table, quality=Quality("quality", 2.0)).pack())
    assert found.manifest.conformal == table
    assert found.manifest.quality.claim == "quality"


def test_numpy_reads_our_arrays() -> None:
    held = np.load(io.BytesIO(members_of()["arrays.npz"]), allow_pickle=False)
    assert "network.w1" in held.files


# Refusals


def test_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadForecaster, match="cannot be read"):
        Bundle.read(tmp_path / "none.forecaster")


@given(st.binary(max_size=300))
def test_garbage_raises_only_our_error(data: bytes) -> None:
    assert "damaged or foreign" in refused(data)


@given(st.integers(0, len(PACKED) - 1), st.integers(1, 255))
def test_spoilt_byte_is_refused_or_changes_nothing(at: int, by: int) -> None:
    data = bytearray(PACKED)
    data[at] = (data[at] + by) % 256
    try:
        found = Bundle.parse(bytes(data))
    except BadForecaster:
        return
    assert found.pack() == PACKED  # a date, or the like


@given(st.integers(0, len(PACKED) - 1))
def test_cut_file_is_refused(at: int) -> None:
    assert "calibrate" in refused(PACKED[:at])


def test_member_with_another_hash_is_refused() -> None:
    members = members_of()
    members["report.html"] += b"<script>"
    assert "report.html is not what manifest.json says" in refused(packed(members, sealed=False))


def test_member_that_the_manifest_does_not_name_is_refused() -> None:
    members = members_of()
    manifest = json.loads(members[MANIFEST])
    del manifest["members"]["refine.npz"]
    assert "refine.npz" in refused(
        archive.pack(members | {MANIFEST: json.dumps(manifest).encode()})
    )


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b", "a\\b", "c:x", "extra.bin", "..", "ü"]
)
def test_member_that_does_not_belong_is_refused(name: str) -> None:
    assert "does not belong" in refused(packed(members_of() | {name: b"x"}))


def test_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = members_of() | {"report.html": b"\0" * (bundle.MAX_UNPACKED + 1)}
    data = packed(bomb)
    assert len(data) < 1024 * 1024
    assert "larger than" in refused(data)


def test_file_that_lies_about_its_sizes_is_refused() -> None:
    data = bytearray(packed(members_of() | {"report.html": b"\0" * (bundle.MAX_UNPACKED + 1)}))
    at = data.rindex(b"report.html") - 46  # its central record; the size is 24 bytes on
    data[at + 24 : at + 28] = (100).to_bytes(4, "little")
    assert "damaged" in refused(bytes(data))


def test_file_beyond_the_limit_is_refused_unread() -> None:
    assert "larger than" in refused(b"\0" * (bundle.MAX_FILE + 1))


def test_member_given_twice_is_refused() -> None:
    buffer = io.BytesIO(PACKED)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(buffer, "a") as file:
        file.writestr("fp32.onnx", b"other")
    assert "twice" in refused(buffer.getvalue())


def test_missing_member_is_named() -> None:
    members = members_of()
    del members["arrays.npz"]
    assert "arrays.npz is missing" in refused(packed(members))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "format 2, and this box reads 1"),
        ({"features": features.VERSION + 1}, "version 2 of the features, and this box has 1"),
        ({"embedder": "minilm-32-16"}, "not of the embedder"),
        ({"inputs": 3}, "manifest.json says 3"),
        ({"name": "../v1"}, "a name or a precision that is none"),
        ({"precision": "fp4"}, "a name or a precision that is none"),
        ({"unknown": 1}, "unknown"),
        ({"quality": {"claim": "perfect"}}, "claim"),
        ({"conformal": {"groups": [{"route": "", "answers": 1, "cut": 0, "offsets": [0.1],
                                    "bounded": [True]}]}}, "conformal table"),
        ({"format": "one"}, "format"),
    ],
)  # fmt: skip
def test_manifest_that_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refused(packed(members_of(), **changes))


def test_deeply_nested_manifest_is_refused() -> None:
    nested = b'{"format": 1, "scores": ' + b"[" * 100_000
    assert "manifest" in refused(archive.pack(members_of() | {MANIFEST: nested}))


def test_weights_that_are_no_numbers_are_refused() -> None:
    def spoil(held: dict[str, Any]) -> None:
        held["network.w1"][0, 0] = np.nan

    assert "not a finite number" in refused(with_arrays(spoil))


def test_arrays_of_other_shapes_are_refused() -> None:
    def cut(held: dict[str, Any]) -> None:
        held["network.w2"] = held["network.w2"][:, :5]

    assert "do not chain" in refused(with_arrays(cut))


def test_neighbours_of_other_features_are_refused() -> None:
    def other(held: dict[str, Any]) -> None:
        for name, array in Neighbours(3).arrays().items():
            held[f"neighbours.{name}"] = array

    assert "neighbours are not of its features" in refused(with_arrays(other))


def test_missing_array_is_refused() -> None:
    assert "missing" in refused(with_arrays(lambda held: held.pop("network.b3")))


def test_network_of_other_inputs_is_refused() -> None:
    other = replace(make_bundle(), network=make_network(7))
    assert "its network reads 7" in refused(other.pack())


def test_foreign_onnx_is_refused() -> None:
    other = replace(make_bundle(), int8=export.fp32(make_network(7)))
    assert "int8.onnx takes or gives features [-1, 7]" in refused(other.pack())
    assert "fp32.onnx is not" in refused(replace(make_bundle(), fp32=b"MZ\x90").pack())


def test_refinement_that_is_no_number_is_refused() -> None:
    other = replace(make_bundle(), refine={"weights": np.array([np.inf])})
    assert "refine.npz" in refused(other.pack())


def test_bundle_of_another_model_is_refused_with_both_named() -> None:
    with pytest.raises(BadForecaster, match=r"'tiny'.*abababababab.*cdcdcdcdcdcd.*calibrate"):
        make_bundle().require_model(OTHER_MODEL)
    make_bundle().require_model(MODEL)


# Arrays


def npy(header: bytes, data: bytes) -> bytes:
    whole = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(whole).to_bytes(2, "little") + whole + data


@pytest.mark.parametrize(
    "member",
    [
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\nsystem\n"),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", b"\0" * 8),
        npy(b"{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1), }", b"\0" * 8),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", b"\0" * 8),
        npy(b"__import__('os').getcwd()", b""),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }" + b" " * 2000, b"\0" * 8),
        b"\x93NUMPY\x03\x00",
        b"",
    ],
)
def test_array_that_lies_is_refused(member: bytes) -> None:
    with pytest.raises(BadArchive):
        archive.arrays(archive.pack({"a.npy": member}), 1 << 20)


@pytest.mark.parametrize(
    "array",
    [np.array("minilm"), np.array(3), np.zeros((0, 4), np.float16), np.array([True, False])],
)
def test_arrays_keep_shape_and_kind(array: np.ndarray) -> None:
    found = archive.arrays(archive.npz({"a": array}), 1 << 20)["a"]
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.tolist() == array.tolist()


def test_a_second_network_of_other_features_is_refused() -> None:
    made = make_bundle()
    other = replace(made, first=make_first(made.network.inputs + 1))
    assert "reads" in refused(other.pack())


def test_a_second_network_without_its_reader_is_refused() -> None:
    assert "lacks weights" in refused(with_arrays(lambda held: held.pop("first_reader.weights")))


def test_a_forecaster_without_a_second_network_is_whole() -> None:
    assert Bundle.parse(replace(make_bundle(), first=None).pack()).first is None
