"""LoRA adapters: recognised, read, and matched with the models they are for."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.gguf import BadModel, is_adapter, misfit, read, read_adapter
from tests.unit.model_parts import WIDTH, gguf_bytes, write_lora, write_mite, write_parts
from tests.unit.test_gguf import F32, STR

FACTS: dict[str, tuple[int, Any]] = {
    "general.type": (STR, "adapter"),
    "general.architecture": (STR, "llama"),
    "adapter.type": (STR, "lora"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model and an adapter for it."""
    path = tmp_path_factory.mktemp("adapters")
    write_lora(path / "lora.gguf")
    write_mite(path / "mite.gguf")
    return path


def tensor(name: str, *shape: int) -> tuple[str, np.ndarray[Any, np.dtype[np.float32]]]:
    return name, np.zeros(shape, np.float32)


def write(path: Path, facts: dict[str, tuple[int, Any]], *tensors: Any) -> Path:
    path.write_bytes(gguf_bytes(facts, list(tensors)))
    return path


def test_an_adapter_gives_its_facts(tmp_path: Path) -> None:
    path = write_lora(tmp_path / "accent.gguf", rank=2)
    found = read_adapter(path)
    assert is_adapter(path)
    assert (found.architecture, found.name, found.rank, found.alpha) == ("llama", "Accent", 2, 4.0)
    assert found.shapes == {"blk.0.attn_q.weight": (WIDTH, WIDTH)}
    assert found.size == path.stat().st_size


def test_a_model_is_no_adapter_and_an_adapter_no_model(tmp_path: Path) -> None:
    model, lora = write_mite(tmp_path / "mite.gguf"), write_lora(tmp_path / "lora.gguf")
    assert not is_adapter(model)
    with pytest.raises(BadModel, match="not a LoRA adapter"):
        read_adapter(model)
    with pytest.raises(BadModel, match=r"a LoRA adapter \(`steelyard model add`"):
        read(lora)


def test_an_adapter_fits_its_model_in_one_file_and_in_parts(tmp_path: Path) -> None:
    adapter = read_adapter(write_lora(tmp_path / "lora.gguf"))
    assert misfit(adapter, write_mite(tmp_path / "mite.gguf")) == ""
    assert misfit(adapter, write_parts(tmp_path)[0]) == ""


def test_an_adapter_of_another_architecture_or_width_does_not_fit(tmp_path: Path) -> None:
    model = write_mite(tmp_path / "mite.gguf")
    other = read_adapter(write_lora(tmp_path / "a.gguf", architecture="qwen2"))
    assert misfit(other, model) == "it is for qwen2 models, and this one is llama"
    wide = read_adapter(write_lora(tmp_path / "b.gguf", rows=2 * WIDTH))
    assert "is made for 64 x 32, and the model's is 32 x 32" in misfit(wide, model)


def test_an_adapter_for_tensors_that_the_model_lacks_does_not_fit(tmp_path: Path) -> None:
    path = write(
        tmp_path / "deep.gguf",
        FACTS,
        tensor("blk.7.attn_q.weight.lora_a", 2, WIDTH),
        tensor("blk.7.attn_q.weight.lora_b", WIDTH, 2),
    )
    found = misfit(read_adapter(path), write_parts(tmp_path)[0])
    assert found == "it changes the tensor `blk.7.attn_q.weight`, which the model does not have"


def test_the_factors_of_token_embeddings_are_the_other_way_round(tmp_path: Path) -> None:
    path = write(
        tmp_path / "embeddings.gguf",
        FACTS,
        tensor("token_embd.weight.lora_a", 267, 2),
        tensor("token_embd.weight.lora_b", WIDTH, 2),
    )
    found = read_adapter(path)
    assert found.shapes == {"token_embd.weight": (WIDTH, 267)}
    assert misfit(found, write_mite(tmp_path / "mite.gguf")) == ""


@pytest.mark.parametrize(
    ("facts", "tensors", "says"),
    [
        ({"adapter.type": (STR, "control_vector")}, [], "of the kind `control_vector`"),
        ({"general.architecture": (STR, "")}, [], "does not say for which architecture"),
        ({"adapter.lora.alpha": (STR, "much")}, [("a.lora_a", 2, 4), ("a.lora_b", 4, 2)], "alpha"),
        ({}, [], "changes nothing"),
        ({}, [("a.weight", 2, 4)], "not one of a LoRA adapter"),
        ({}, [("a.lora_a", 2, 4)], "has no partner `a.lora_b`"),
        ({}, [("a.lora_a", 2, 4), ("a.lora_b", 4)], "has no partner"),
        ({}, [("a.lora_a", 2, 4), ("a.lora_b", 4, 3)], "do not fit together"),
        ({"adapter.lora.alpha": (F32, 1.0)}, [("a.lora_b", 4, 2)], "changes nothing"),
    ],
)
def test_a_damaged_adapter_is_refused_with_the_reason(
    tmp_path: Path, facts: dict[str, tuple[int, Any]], tensors: list[Any], says: str
) -> None:
    path = write(tmp_path / "a.gguf", FACTS | facts, *(tensor(*each) for each in tensors))
    with pytest.raises(BadModel, match=f"^{path}: .*{says}"):
        read_adapter(path)


@settings(max_examples=150, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=6))
def test_flipped_bytes_give_an_adapter_or_a_bad_model(
    folder: Path, flips: list[tuple[int, int]]
) -> None:
    body = bytearray((folder / "lora.gguf").read_bytes())
    for at, byte in flips:
        body[at] = byte
    (folder / "flipped.gguf").write_bytes(body)
    with contextlib.suppress(BadModel):
        adapter = read_adapter(folder / "flipped.gguf")
        assert len(misfit(adapter, folder / "mite.gguf")) < 1000
