"""What tuning found, kept and applied."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from appliance import buildinfo
from appliance.config import Config, load
from appliance.tune import hardware
from appliance.tune.hardware import Hardware
from appliance.tune.search import Found, Trial
from appliance.tune.settings import Mix, Settings, Timing, Work
from appliance.tune.store import NAME, Entry, Tuned, TuneError, applied, settings_of
from appliance.tune.words import report

BASE = Settings(
    threads=2, threads_batch=2, batch=512, ubatch=512, flash_attention="auto", kv_type="f16",
    gpu_layers=-1,
)  # fmt: skip
SHA256 = "ab" * 32


def entry(
    best: Settings, *, sha256: str = SHA256, machine: Hardware | None = None, busy: float = 0.0
) -> Entry:
    slow, fast = Timing(1.0, (10.0, 4.0)), Timing(0.8, (8.0, 3.0))
    trials = (
        Trial({"threads": 1}, 1.4, (1.4,), "same bits", "slower"),
        Trial({"flash_attention": "off"}, 0.6, (0.6, 0.6, 0.6), "same tokens", "other answers"),
        Trial({"batch": 2048}, None, (), None, "failed", "too little memory"),
        Trial({"ubatch": 256}, 0.8, (0.8, 0.8, 0.8), "same bits", "taken"),
    )
    found = Found(BASE, best, trials, 0.8, (0.78, 0.8, 0.83), slow, fast)
    return Entry(
        model="small", model_sha256=sha256, hardware=machine or here(),
        measured_at="2026-11-30T10:00:00+00:00", mix=Mix(), work=Work(300, 40, (1, 4)),
        found=found, busy=busy, settings=settings_of(found),
    )  # fmt: skip


def here() -> Hardware:
    return hardware.read(buildinfo.installed())


def with_ubatch(size: int) -> Settings:
    return Settings(**{**dict(BASE.items()), "ubatch": size})


def config_of(tmp_path: Path, toml: str = "") -> Config:
    file = tmp_path / "steelyard.toml"
    file.write_text(toml)
    return load(file, env={"STEELYARD_STATE": str(tmp_path)})


def test_what_was_kept_is_applied_to_this_model_on_this_machine_alone(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert applied(config, SHA256) == (config, {})
    tuned = Tuned(tmp_path)
    other = msgspec.structs.replace(here(), cpu="another")
    tuned.keep(entry(with_ubatch(128), machine=other))
    tuned.keep(entry(with_ubatch(64), sha256="cd" * 32))
    assert applied(config, SHA256) == (config, {})
    tuned.keep(entry(with_ubatch(256)))
    changed, wanted = applied(config, SHA256)
    assert wanted == {"ubatch": 256}
    assert changed.engine == dataclasses.replace(config.engine, ubatch=256)
    assert changed.server == config.server


def test_the_newest_tuning_of_a_model_replaces_the_one_before(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.keep(entry(with_ubatch(256)))
    tuned.keep(entry(BASE))
    (kept,) = tuned.entries()
    assert kept == entry(BASE)
    assert applied(config_of(tmp_path), SHA256)[1] == {}


def test_what_the_operator_names_is_left_alone(tmp_path: Path) -> None:
    Tuned(tmp_path).keep(entry(with_ubatch(256)))
    config = config_of(tmp_path, "[engine]\nubatch = 512\n")
    assert applied(config, SHA256) == (config, {})


def test_sizes_that_do_not_fit_the_operators_are_not_applied(tmp_path: Path) -> None:
    """Tuned with the default batch; since then the operator has made it smaller."""
    Tuned(tmp_path).keep(entry(with_ubatch(256)))
    config = config_of(tmp_path, "[engine]\nbatch = 128\n")
    changed, wanted = applied(config, SHA256)
    assert wanted == {}
    assert changed.engine == config.engine


def test_a_damaged_record_changes_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_text('{"version": 1, "entries": [{}]}')
    config = config_of(tmp_path)
    assert applied(config, SHA256) == (config, {})
    assert "steelyard tune clear" in caplog.text
    with pytest.raises(TuneError, match="cannot be read"):
        Tuned(tmp_path).entries()
    assert Tuned(tmp_path).clear()
    assert not Tuned(tmp_path).clear()
    assert Tuned(tmp_path).entries() == ()


def test_a_record_of_another_version_asks_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"version": 2, "entries": []}')
    with pytest.raises(TuneError, match="run `steelyard tune` again"):
        Tuned(tmp_path).entries()


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path / "missing")
    with pytest.raises(TuneError, match="cannot be written"):
        tuned.keep(entry(BASE))


def test_the_report_tells_gains_reasons_and_what_was_left() -> None:
    text = "\n".join(report(entry(with_ubatch(256), busy=0.4)))
    assert "1.25 x as fast (pairs 1.20 to 1.28) with ubatch 256" in text
    assert "1.67 x with flash_attention off" in text
    assert "--allow-different-answers" in text
    assert "too little memory" in text
    assert "other programs used 40% of the cores" in text
    assert "every logit is the same to the bit" in text
    same = "\n".join(report(entry(BASE)))
    assert "the settings in use are the fastest" in same
    assert "other programs" not in same


def test_the_fingerprint_follows_the_machine_and_the_library() -> None:
    ours = here()
    assert ours.cpu
    assert ours.cores >= 1
    assert ours.fingerprint() == here().fingerprint()
    changes: list[dict[str, object]] = [
        {"cpu": "x"}, {"cores": 99}, {"gpus": ("H",)}, {"build": "b"}, {"features": ()},
    ]  # fmt: skip
    prints = {msgspec.structs.replace(ours, **change).fingerprint() for change in changes}
    assert len(prints | {ours.fingerprint()}) == 6
