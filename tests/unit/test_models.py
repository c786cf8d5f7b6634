"""Finding and fingerprinting model files."""

import hashlib
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from appliance import models
from appliance.config import Config, Lora, ModelConfig
from appliance.gguf import BadModel
from appliance.models import packaged
from tests.unit.model_parts import write_lora, write_mite, write_parts

HELLO = hashlib.sha256(b"hello").hexdigest()


def make_config(tmp_path: Path, model: ModelConfig) -> Config:
    return Config(server=replace(Config().server, state_dir=tmp_path / "state"), model=model)


def make_file(tmp_path: Path, body: bytes = b"hello") -> Path:
    file = tmp_path / "a.gguf"
    file.write_bytes(body)
    return file


def test_packaged_model_is_found_without_importing_its_package() -> None:
    path = models.locate(ModelConfig())
    assert path.is_file()
    assert path.suffix == ".gguf"
    assert models.MODEL_PACKAGE not in sys.modules


def test_named_model_wins_over_the_packaged_one(tmp_path: Path) -> None:
    file = make_file(tmp_path)
    assert models.locate(ModelConfig(path=str(file))) == file


def test_missing_model_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"no such file. Correct model\.path"):
        models.locate(ModelConfig(path=str(tmp_path / "none.gguf")))


def test_missing_package_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "MODEL_PACKAGE", "no_such_package_here")
    with pytest.raises(BadModel, match=r"set model\.path"):
        models.locate(ModelConfig())


def test_encoder_files_are_found_without_importing_their_packages() -> None:
    files = models.encoder_files()
    assert files.model.is_file()
    assert files.tokenizer.is_file()
    assert models.ENCODER_PACKAGE not in sys.modules
    assert models.TOKENIZER_PACKAGE not in sys.modules


def test_missing_encoder_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "ENCODER_PACKAGE", "no_such_package_here")
    with pytest.raises(BadModel, match="encoder is not installed"):
        models.encoder_files()


def test_fingerprint_is_the_sha256_of_the_file(tmp_path: Path) -> None:
    assert models.fingerprint(make_file(tmp_path)) == HELLO


def test_fingerprint_of_an_unchanged_file_is_not_computed_again(tmp_path: Path) -> None:
    file, state = make_file(tmp_path), tmp_path / "state"
    models.fingerprint(file, state)
    cache = state / models.CACHE_NAME
    cache.write_text(cache.read_text().replace(HELLO, "0" * 64))
    assert models.fingerprint(file, state) == "0" * 64


def test_changed_file_of_the_same_size_and_time_is_read_again(tmp_path: Path) -> None:
    file, state = make_file(tmp_path), tmp_path / "state"
    models.fingerprint(file, state)
    before = file.stat()
    file.write_bytes(b"hullo")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert models.fingerprint(file, state) == hashlib.sha256(b"hullo").hexdigest()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"a": 1}', b"\xff"])
def test_damaged_cache_is_computed_again(tmp_path: Path, body: bytes) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / models.CACHE_NAME).write_bytes(body)
    assert models.fingerprint(make_file(tmp_path), state) == HELLO


def test_state_directory_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert models.fingerprint(make_file(tmp_path), tmp_path / "state") == HELLO


def test_checked_model_has_header_hash_and_name(tmp_path: Path) -> None:
    found = models.check(make_config(tmp_path, ModelConfig()))
    assert found.name == found.path.stem
    assert found.header.n_vocab == 49152
    assert models.check(make_config(tmp_path, ModelConfig(sha256=found.sha256.upper()))) == found
    with pytest.raises(BadModel, match=r"model\.sha256 says 0000"):
        models.check(make_config(tmp_path, ModelConfig(sha256="0" * 64)))


def test_checked_model_takes_the_name_from_the_configuration(tmp_path: Path) -> None:
    assert models.check(make_config(tmp_path, ModelConfig(name="house"))).name == "house"


def test_file_that_is_no_model_is_refused_before_it_is_hashed(tmp_path: Path) -> None:
    file = make_file(tmp_path)
    with pytest.raises(BadModel, match="not a GGUF file"):
        models.check(make_config(tmp_path, ModelConfig(path=str(file))))
    assert not (tmp_path / "state").exists()


def test_missing_adapter_names_the_setting(tmp_path: Path) -> None:
    lora = (Lora(str(tmp_path / "none.gguf")),)
    with pytest.raises(BadModel, match=r"Correct model\.lora"):
        models.check(make_config(tmp_path, ModelConfig(lora=lora)))


# -- the operator's choice -------------------------------------------------------------------------


def chosen(tmp_path: Path, model: ModelConfig | None = None) -> tuple[models.Store, Config]:
    """A store with one model, which is chosen, and the configuration of its box."""
    config = make_config(tmp_path, model or ModelConfig())
    store = models.Store(config.server.state_dir)
    file = write_mite(tmp_path / "mite.gguf")
    file.chmod(0o666)
    store.add(file, name="mite")
    store.select("mite")
    return store, config


def test_the_chosen_model_is_served_instead_of_the_packaged_one(tmp_path: Path) -> None:
    store, config = chosen(tmp_path)
    stored = store.get("mite")
    assert models.locate(config.model, config.server.state_dir) == stored.path
    found = models.check(config)
    assert (found.path, found.sha256, found.stored) == (stored.path, stored.sha256, stored)
    assert (found.name, found.packaged) == ("mite", False)
    store.select(None)
    assert models.check(config).packaged


def test_model_path_wins_over_the_choice(tmp_path: Path) -> None:
    path = models.packaged_model()
    _, config = chosen(tmp_path, ModelConfig(path=str(path)))
    assert models.locate(config.model, config.server.state_dir) == path
    assert models.check(config).stored is None


def test_a_chosen_model_that_was_tampered_with_is_not_served(tmp_path: Path) -> None:
    store, config = chosen(tmp_path)
    path = store.get("mite").path
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)
    with pytest.raises(BadModel, match=rf"^{path}: its SHA-256 is .* changed or damaged"):
        models.check(config)


def test_an_adapter_beside_it_that_was_tampered_with_is_not_served(tmp_path: Path) -> None:
    store, config = chosen(tmp_path)
    ((_, path),) = store.add(write_lora(tmp_path / "accent.gguf")).adapters
    assert models.check(config).stored == store.get("mite")
    path.write_bytes(b"something else")
    with pytest.raises(BadModel, match=rf"^{path}: its SHA-256 is"):
        models.check(config)


def test_a_chosen_model_that_is_gone_is_said_and_not_replaced(tmp_path: Path) -> None:
    store, config = chosen(tmp_path)
    stored = store.get("mite")
    stored.path.unlink()
    with pytest.raises(
        BadModel, match=r"`mite` is gone, or its disk is not there\. Mount the disk"
    ):
        models.check(config)
    shutil.rmtree(stored.folder)
    with pytest.raises(
        BadModel, match="chosen with `steelyard model use`: no model is named `mite`"
    ):
        models.check(config)


def test_a_model_in_parts_is_named_by_all_of_them(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    config = make_config(tmp_path, ModelConfig(path=str(parts[0])))
    found = models.check(config)
    assert found.name == "mite"
    assert found.sha256 == models.joint_sha256([models.fingerprint(part) for part in parts])
    parts[2].write_bytes(parts[2].read_bytes()[:-4] + b"tail")
    assert models.check(config).sha256 != found.sha256


def test_a_model_that_was_added_is_not_read_again_at_the_start(tmp_path: Path) -> None:
    store, config = chosen(tmp_path)
    cache = config.server.state_dir / models.CACHE_NAME
    assert store.get("mite").sha256 in cache.read_text()
    cache.write_text(cache.read_text().replace(store.get("mite").sha256, "0" * 64))
    with pytest.raises(BadModel, match="its SHA-256 is 0000"):
        models.check(config)
