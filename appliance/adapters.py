"""The LoRA adapters that are loaded beside the model: which there are, how strongly each is applied
where a request says nothing, and what a request may choose."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.alike import alike
from appliance.config import Config
from appliance.engine.commands import LoraSet
from appliance.gguf import BadModel, misfit, read_adapter
from appliance.models import ModelFile
from appliance.models.fingerprints import fingerprint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adapter:
    """One of them. Its `id` is its place in the engine's list."""

    id: int
    name: str
    path: Path
    sha256: str
    scale: float
    """As configured."""


class Adapters:
    """Belongs to the event loop."""

    def __init__(self, loaded: Iterable[Adapter] = ()) -> None:
        self.loaded = tuple(loaded)
        self._scales = {adapter.id: adapter.scale for adapter in self.loaded}

    def scale(self, adapter: Adapter) -> float:
        """How strongly it is applied to requests that choose nothing."""
        return self._scales[adapter.id]

    def rescale(self, scales: Mapping[int, float]) -> None:
        """From now on; those that are not named are not applied. What was submitted stays."""
        self._scales = {adapter.id: scales.get(adapter.id, 0.0) for adapter in self.loaded}

    @property
    def default(self) -> LoraSet:
        """For requests that choose nothing."""
        return lora_set(self._scales)

    def find(self, *, id: int | None = None, name: str | None = None) -> Adapter | None:
        """By its id or by its name."""
        for adapter in self.loaded:
            if adapter.id == id or adapter.name == name:
                return adapter
        return None

    def nearest(self, name: str) -> str:
        """The name most like this one; empty: none is like it."""
        return alike(name, (adapter.name for adapter in self.loaded))

    def recorded(self, lora: LoraSet) -> list[dict[str, Any]]:
        """As the ledger keeps it: ids change with the configuration, files do not."""
        return [
            {
                "name": self.loaded[id].name,
                "sha256": self.loaded[id].sha256,
                "scale": scale,
            }
            for id, scale in lora
        ]

    def of_record(self, record: Iterable[Mapping[str, Any]]) -> LoraSet:
        """The set that `recorded` told of. Raises NotLoaded for an adapter that is not here now."""
        ids = {adapter.sha256: adapter.id for adapter in self.loaded}
        found: dict[int, float] = {}
        for kept in record:
            if kept["sha256"] not in ids:
                raise NotLoaded(str(kept["name"]), str(kept["sha256"]))
            found[ids[kept["sha256"]]] = float(kept["scale"])
        return lora_set(found)


class NotLoaded(LookupError):
    """No adapter here is that file."""

    def __init__(self, name: str, sha256: str) -> None:
        super().__init__(f"the LoRA adapter {name} ({sha256[:12]}) is not loaded")


def lora_set(scales: Mapping[int, float]) -> LoraSet:
    """In the engine's form."""
    return tuple((id, float(scale)) for id, scale in sorted(scales.items()) if scale)


def adapters_of(config: Config, model: ModelFile) -> tuple[Adapter, ...]:
    """Those of `model.lora`, then those that lie beside the model in the store, which are applied
    to no request that does not ask. Raises BadModel for one that cannot be used."""
    found: list[Adapter] = []
    for source in (*_configured(config), *_stored(model)):
        if any(other.name == source.name for other in found):
            if not source.sha256:
                raise BadModel(
                    f"two LoRA adapters are called {source.name}: give one another `name` in "
                    "model.lora"
                )
            log.warning("%s: not loaded, model.lora has another of its name", source.path)
            continue
        found.append(_checked(len(found), source, config, model))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    path: Path
    scale: float
    remedy: str
    """What to do where it cannot be used."""
    sha256: str = ""
    """What it was when it was added to the store."""


def _configured(config: Config) -> Iterable[_Source]:
    for lora in config.model.lora:
        path = Path(lora.path)
        name = lora.name or path.stem
        yield _Source(name, path, lora.scale, "Correct model.lora in the configuration")


def _stored(model: ModelFile) -> Iterable[_Source]:
    stored = model.stored
    for lora in stored.lora if stored is not None else ():
        assert stored is not None
        remedy = (
            f"Remove it with `steelyard model remove {stored.name} --lora {lora.name}`, and add it "
            "again"
        )
        yield _Source(lora.name, stored.folder / lora.file, 0.0, remedy, lora.sha256)


def _checked(id: int, source: _Source, config: Config, model: ModelFile) -> Adapter:
    path, remedy = source.path, source.remedy
    if not path.is_file():
        raise BadModel(f"{path}: no such file. {remedy}")
    if problem := misfit(read_adapter(path), model.path):
        raise BadModel(
            f"{path}: the LoRA adapter does not fit the model {model.name}: {problem}. {remedy}"
        )
    sha256 = fingerprint(path, config.server.state_dir)
    if source.sha256 and sha256 != source.sha256:
        raise BadModel(
            f"{path}: its SHA-256 is {sha256}, but it was {source.sha256} when the adapter was "
            f"added: it was changed or damaged. {remedy}"
        )
    return Adapter(id, source.name, path, sha256, source.scale)
