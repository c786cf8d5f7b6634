"""Finding and fingerprinting model files."""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from appliance import models
from appliance.config import Config, Lora, ModelConfig
from appliance.gguf import BadModel

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
    monkeypatch.setattr(models, "MODEL_PACKAGE", "no_such_package_here")
    with pytest.raises(BadModel, match=r"set model\.path"):
        models.locate(ModelConfig())


def test_encoder_files_are_found_without_importing_their_packages() -> None:
    files = models.encoder_files()
    assert files.model.is_file()
    assert files.tokenizer.is_file()
    assert models.ENCODER_PACKAGE not in sys.modules
    assert models.TOKENIZER_PACKAGE not in sys.modules


def test_missing_encoder_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ENCODER_PACKAGE", "no_such_package_here")
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
