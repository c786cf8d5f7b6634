"""All that can be told of a model before it is served."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from appliance import gguf
from appliance.gguf import Header
from appliance.models.memory import Available, Need, available, need_of
from appliance.models.packaged import packaged_model
from appliance.models.store import Store
from appliance.models.stored import Stored
from appliance.observe.nvml import Library, NvmlError
from appliance.prepare.chatml import CHATML
from appliance.prepare.lint import Lint, lint

if TYPE_CHECKING:
    from appliance.config import Config


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    total: int
    free: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A model file, and how it would do on this box."""

    path: Path
    header: Header
    stored: Stored | None
    """None: it is not in the store."""
    template: str
    """The chat template that would be used."""
    lint: Lint
    need: Need
    has: Available | None
    gpus: tuple[Gpu, ...]
    kv_type: str
    context: int
    """As it is configured, in tokens."""


async def examine(path: Path, config: "Config") -> Examined:
    """Raises BadModel. Takes a second or two: the template is run in a process of its own."""
    header = gguf.read(path)
    template = _operators_template(path, config)
    return Examined(
        path=path,
        header=header,
        stored=_stored(path, config),
        template=template or header.chat_template or CHATML,
        lint=await lint(path, template, header.chat_template),
        need=need_of(header, config),
        has=available(),
        gpus=_gpus(),
        kv_type=config.engine.kv_type,
        context=config.engine.context,
    )


def _operators_template(path: Path, config: "Config") -> str | None:
    """As the box chooses it: the configuration's, and plain ChatML for the packaged model."""
    from appliance.models.chosen import chat_template

    own = chat_template(config.model)
    return own or (CHATML if _is_packaged(path) and not config.model.path else None)


def _is_packaged(path: Path) -> bool:
    try:
        return path.samefile(packaged_model())
    except (OSError, gguf.BadModel):
        return False


def _stored(path: Path, config: "Config") -> Stored | None:
    store = Store(config.server.state_dir)
    if path.parent.parent != store.folder:
        return None
    return store.get(path.parent.name)


def _gpus() -> tuple[Gpu, ...]:
    """Those that the driver tells of."""
    driver = Library()
    try:
        found = []
        for number in range(driver.start()):
            total, free = driver.memory(number)
            found.append(Gpu(driver.name(number), total, free))
        return tuple(found)
    except NvmlError:
        return ()
