"""What tuning found, kept in the state directory for each model and machine: `tuned.json`."""

import logging
from dataclasses import replace
from pathlib import Path

import msgspec

from appliance import buildinfo, durable
from appliance.config import Config, EngineConfig
from appliance.errors import ForOperator
from appliance.tune import hardware
from appliance.tune.hardware import Hardware
from appliance.tune.search import Found
from appliance.tune.settings import Mix, Settings, Work

NAME = "tuned.json"
VERSION = 1
MOST = 32
"""Entries kept, the newest ones."""

log = logging.getLogger(__name__)


class TuneError(ForOperator):
    """Tuning cannot be done, or its record not be used; the message is for the operator."""


class Entry(msgspec.Struct, frozen=True):
    """One tuning."""

    model: str
    model_sha256: str
    hardware: Hardware
    measured_at: str
    """UTC, ISO 8601."""
    mix: Mix
    work: Work
    found: Found
    busy: float
    """Share of the cores that other programs used meanwhile."""
    settings: dict[str, int | str]
    """What is to be set in place of the defaults; empty: the defaults were best."""

    @property
    def key(self) -> tuple[str, str]:
        return self.model_sha256, self.hardware.fingerprint()


class _File(msgspec.Struct, frozen=True):
    version: int
    entries: tuple[Entry, ...]


class Tuned:
    """The file. Reading and writing raise TuneError."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / NAME

    def entries(self) -> tuple[Entry, ...]:
        try:
            file = msgspec.json.decode(self.path.read_bytes(), type=_File)
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TuneError(
                f"{self.path} cannot be read ({error}): `steelyard tune clear` removes it, and "
                "the defaults hold again"
            ) from error
        if file.version != VERSION:
            raise TuneError(
                f"{self.path} is of another version ({file.version}, here {VERSION}): "
                "run `steelyard tune` again"
            )
        return file.entries

    def entry(self, model_sha256: str, machine: Hardware) -> Entry | None:
        """What was found for this model on this machine."""
        key = model_sha256, machine.fingerprint()
        return next((one for one in self.entries() if one.key == key), None)

    def keep(self, entry: Entry) -> None:
        """In place of what was known of the same model and machine; whole or not at all."""
        others = [one for one in self.entries() if one.key != entry.key]
        self._write(_File(VERSION, (*others[-MOST + 1 :], entry)))

    def clear(self) -> bool:
        """Whether there was anything. Also removes a file that cannot be read."""
        there = self.path.exists()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise TuneError(f"{self.path} cannot be removed: {error.strerror or error}") from error
        return there

    def _write(self, file: _File) -> None:
        try:
            durable.replace(self.path, msgspec.json.format(msgspec.json.encode(file)))
        except OSError as error:
            raise TuneError(f"{self.path} cannot be written: {error.strerror or error}") from error


def applied(config: Config, model_sha256: str) -> tuple[Config, dict[str, int | str]]:
    """The configuration with what tuning found for this model on this machine, in all that the
    operator did not name himself; and what that was. A record that cannot be read changes
    nothing, and is said in the log."""
    try:
        tuned = Tuned(config.server.state_dir)
        if not tuned.path.exists():
            return config, {}
        entry = tuned.entry(model_sha256, hardware.read(buildinfo.installed()))
    except TuneError as error:
        log.warning("%s", error)
        return config, {}
    if entry is None:
        return config, {}
    wanted = {k: v for k, v in entry.settings.items() if f"engine.{k}" not in config.named}
    found = _fitting(config, wanted)
    if found is None:  # the operator's own sizes bound what was found without them
        wanted = {k: v for k, v in wanted.items() if k not in _SIZES}
        found = _fitting(config, wanted)
    return (config, {}) if found is None else (replace(config, engine=found), wanted)


_SIZES = ("batch", "ubatch")


def _fitting(config: Config, wanted: dict[str, int | str]) -> EngineConfig | None:
    """The engine's section with these; None where its sizes then contradict each other."""
    engine = replace(config.engine, **wanted)  # type: ignore[arg-type]
    if "engine.prefill_tokens" not in config.named:
        engine = replace(engine, prefill_tokens=min(engine.prefill_tokens, engine.batch))
    fits = engine.ubatch <= engine.batch <= engine.context
    return engine if fits and engine.prefill_tokens <= engine.batch else None


def settings_of(found: Found) -> dict[str, int | str]:
    """What is to be set in place of the defaults."""
    return found.best.differing(found.base)


def base_of(config: Config, cores: int) -> Settings:
    """The settings in use without tuning, with what the box fills in itself filled in."""
    engine = config.engine
    threads = engine.threads or cores
    return Settings(
        threads=threads,
        threads_batch=engine.threads_batch or threads,
        batch=engine.batch,
        ubatch=engine.ubatch,
        flash_attention=engine.flash_attention,
        kv_type=engine.kv_type,
        gpu_layers=engine.gpu_layers,
    )
