"""Models in several files: read as one, and refused when the files do not belong together."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from appliance.forecast.encoder import EncoderError
from appliance.forecast.tokentable import TokenTable
from appliance.gguf import BadModel, paths_of, read, stem_of
from appliance.gguf.parts import part_with
from tests.unit.model_parts import U16, gguf_bytes, pairs, tensors, write_mite, write_parts
from tests.unit.test_gguf import I32, U32


def test_a_model_in_parts_has_the_facts_of_the_whole(tmp_path: Path) -> None:
    whole = read(write_mite(tmp_path / "whole.gguf"))
    parts = write_parts(tmp_path)
    header = read(parts[0])
    assert header.parts == len(parts) == 3
    assert header.n_params == whole.n_params
    assert header.tensor_bytes == whole.tensor_bytes
    assert header.quantization == whole.quantization
    assert header.file_size == sum(part.stat().st_size for part in parts)
    assert header.chat_template == whole.chat_template


def test_the_paths_of_all_parts_follow_from_the_first(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    assert paths_of(parts[0], 3) == tuple(parts)
    assert paths_of(tmp_path / "one.gguf", 1) == (tmp_path / "one.gguf",)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("big-00001-of-00012.gguf", "big"),
        ("big.gguf", "big"),
        ("big-1-of-2.gguf", "big-1-of-2"),
        ("a-00001-of-00002-00003-of-00004.gguf", "a-00001-of-00002"),
    ],
)
def test_the_stem_has_no_number_of_a_part(name: str, stem: str) -> None:
    assert stem_of(Path(name)) == stem


def test_missing_parts_are_counted_and_named(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    parts[2].unlink()
    with pytest.raises(
        BadModel, match=rf"^{parts[0]}: 1 of its 3 parts is missing.*00003-of-00003"
    ):
        read(parts[0])
    parts[1].unlink()
    with pytest.raises(BadModel, match=r"2 of its 3 parts are missing.*00002-of-00003"):
        read(parts[0])


def test_another_part_than_the_first_names_the_first(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    body = gguf_bytes(pairs() | {"split.no": (U16, 1), "split.count": (U16, 3)}, tensors())
    parts[1].write_bytes(body)
    with pytest.raises(BadModel, match=rf"part 2 of 3: name the first one, {parts[0].name}"):
        read(parts[1])


def test_a_truncated_part_is_named_itself(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    parts[1].write_bytes(parts[1].read_bytes()[:-1])
    with pytest.raises(BadModel, match=rf"^{parts[1]}: the file is truncated"):
        read(parts[0])


def test_mixed_up_parts_are_refused(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    shutil.copy(parts[1], parts[2])
    with pytest.raises(
        BadModel, match=rf"^{parts[2]}: it says that it is part 2 of 3, and its name"
    ):
        read(parts[0])


def test_a_part_of_another_model_is_refused_by_the_count_of_tensors(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    split = {"split.no": (U16, 2), "split.count": (U16, 3), "split.tensors.count": (I32, 11)}
    parts[2].write_bytes(gguf_bytes(split, tensors()[:2]))
    with pytest.raises(BadModel, match=r"its parts hold \d+ tensors, and it says 11"):
        read(parts[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, count=2)
    both = {"split.no": (U16, 0), "split.count": (U16, 2)}
    parts[0].write_bytes(gguf_bytes(pairs() | both, tensors()[:1]))
    with pytest.raises(BadModel, match="a tensor is in two of its parts"):
        read(parts[0])


def test_an_impossible_number_of_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "many-00001-of-50000.gguf"
    path.write_bytes(gguf_bytes(pairs(split__count=(U32, 50_000)), tensors()))
    with pytest.raises(BadModel, match="claims 50000 parts"):
        read(path)


def test_the_token_table_is_found_in_the_part_that_holds_it(tmp_path: Path) -> None:
    whole = write_mite(tmp_path / "whole.gguf")
    parts = write_parts(tmp_path)
    assert part_with(parts[0], "token_embd.weight") == parts[1]
    assert part_with(parts[0], "output_norm.weight") == parts[2]
    assert part_with(whole, "token_embd.weight") == whole
    with closing(TokenTable(parts[0])) as found, closing(TokenTable(whole)) as wanted:
        assert (found.rows([0, 7, 266]) == wanted.rows([0, 7, 266])).all()
    parts[1].unlink()
    with pytest.raises(EncoderError, match="cannot be read"):
        TokenTable(parts[0])
