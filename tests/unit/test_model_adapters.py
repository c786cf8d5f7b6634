"""LoRA adapters in the store: each beside the model that it fits."""

from pathlib import Path

import pytest

from appliance import models
from appliance.gguf import BadModel
from appliance.models import Store
from tests.unit.model_parts import write_lora, write_mite


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


@pytest.fixture
def mite(tmp_path: Path) -> Path:
    return write_mite(tmp_path / "mite.gguf")


def test_an_adapter_goes_beside_the_only_model_that_it_fits(
    store: Store, mite: Path, tmp_path: Path
) -> None:
    store.add(mite, name="a")
    lora = write_lora(tmp_path / "accent.gguf")
    stored = store.add(lora)
    assert store.get("a") == stored
    ((name, path),) = stored.adapters
    assert name == "accent"
    assert path.read_bytes() == lora.read_bytes()
    assert store.verify("a") == stored
    with pytest.raises(BadModel, match="has a LoRA adapter named `accent` already"):
        store.add(lora)
    path.write_bytes(b"")
    with pytest.raises(BadModel, match=rf"^{path}: its SHA-256"):
        store.verify("a")


def test_an_adapter_that_fits_several_models_asks_which(
    store: Store, mite: Path, tmp_path: Path
) -> None:
    store.add(mite, name="a")
    store.add(mite, name="b")
    lora = write_lora(tmp_path / "accent.gguf")
    with pytest.raises(BadModel, match=r"fits `a`, `b`\. Say which: --to NAME"):
        store.add(lora)
    assert store.add(lora, to="b", name="x").adapters[0][0] == "x"
    assert store.get("a").lora == ()


def test_an_adapter_that_fits_nothing_is_refused(store: Store, mite: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "accent.gguf", architecture="qwen2")
    store.add(mite, name="a")
    with pytest.raises(BadModel, match="for qwen2 models, and fits none of the store"):
        store.add(lora)
    with pytest.raises(BadModel, match="does not fit `a`: it is for qwen2"):
        store.add(lora, to="a")
    with pytest.raises(BadModel, match="came with the box and takes no files"):
        store.add(lora, to=models.packaged_model().stem)
    with pytest.raises(BadModel, match="it is a model and not a LoRA adapter"):
        store.add(mite, to="a")
    assert store.get("a").lora == ()


def test_an_adapter_is_removed_alone(store: Store, mite: Path, tmp_path: Path) -> None:
    store.add(mite, name="a")
    store.select("a")
    for name in ("one", "two"):
        store.add(write_lora(tmp_path / "accent.gguf"), name=name)
    (_, path), _ = store.get("a").adapters
    with pytest.raises(BadModel, match="has no LoRA adapter `three`, it has `one`, `two`"):
        store.remove_adapter("a", "three")
    store.remove_adapter("a", "one")
    assert [name for name, _ in store.verify("a").adapters] == ["two"]
    assert not path.exists()
    store.remove_adapter("a", "two")
    with pytest.raises(BadModel, match="it has none"):
        store.remove_adapter("a", "two")
