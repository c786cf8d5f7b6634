"""llama.cpp itself, in a child, with models of the store."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.config import Config
from appliance.models import Store
from appliance.selftest import selftest
from tests.unit.model_parts import write_lora, write_mite, write_parts


def small(tmp_path: Path) -> Config:
    config = Config()
    return replace(
        config,
        server=replace(config.server, state_dir=tmp_path / "state"),
        engine=replace(config.engine, context=256, max_sequences=2, cached_sequences=0, threads=1),
    )


def test_a_model_in_parts_is_loaded_from_the_store(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = small(tmp_path)
    store = Store(config.server.state_dir)
    store.add(write_parts(tmp_path)[0], name="split")
    store.select("split")
    assert selftest(config) == 0
    assert capfd.readouterr().out.startswith("ok: split ")


def test_a_model_is_loaded_with_the_adapter_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = small(tmp_path)
    store = Store(config.server.state_dir)
    store.add(write_mite(tmp_path / "mite.gguf"), name="mite")
    store.add(write_lora(tmp_path / "accent.gguf"))
    store.select("mite")
    assert selftest(config) == 0
    assert capfd.readouterr().out.startswith("ok: mite ")
