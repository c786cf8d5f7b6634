"""The memory that a model needs with the configured engine, in bytes, before anything is loaded.

Weights, cache and output buffer are what llama.cpp takes, to the byte but for rounding. The compute
buffer is an estimate: llama.cpp lays it out for the largest step only once the model is there.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from appliance.config import Config, EngineConfig
from appliance.gguf import Header
from appliance.models.chosen import ModelFile

CELLS = 256
"""llama.cpp rounds the context up to a multiple of this."""
FLOAT = 4
PROCESS = 64 * 1024 * 1024
"""What the engine's process takes besides, without a model: the interpreter and its libraries."""
_MORE, _QUERIES, _WIDTHS, _SCORES = 1.03, 2.75, 2.5, 1.05
"""Fitted to what llama.cpp took for models of five shapes, right to 3 % for them."""


@dataclass(frozen=True, slots=True)
class Need:
    """All in bytes."""

    weights: int
    """Mapped from the file: the kernel can give them up and read them again, slowly."""
    kv: int
    """The cache of all sequences, taken at once at the start."""
    state: int
    """Of recurrent layers, for all sequences."""
    outputs: int
    compute: int
    """An estimate."""
    kv_per_token: int
    cells: int
    """Tokens that the cache holds."""
    sequences: int
    """That run at the same time."""
    windowed: int = 0
    """What the cache would take if layers with a sliding window kept the window alone. The engine
    keeps all, since prefixes could not be shared otherwise; 0: no layer has a window."""

    @property
    def cells_per_sequence(self) -> int:
        """Tokens for each sequence when all of them run and share alike."""
        return self.cells // self.sequences

    @property
    def per_sequence(self) -> int:
        """The cache of one of them."""
        return self.cells_per_sequence * self.kv_per_token + self.state // self.sequences

    @property
    def own(self) -> int:
        """What must be there: all but the mapped weights."""
        return self.kv + self.state + self.outputs + self.compute + PROCESS

    @property
    def total(self) -> int:
        return self.own + self.weights


@dataclass(frozen=True, slots=True)
class Available:
    """What the machine, or the limit that this process runs under, has. In bytes."""

    total: int
    available: int
    limited: bool = False
    """A control group allows less than the machine has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to say of a need."""

    level: Literal["fits", "tight", "lacks"]
    text: str


def need(header: Header, engine: EngineConfig) -> Need:
    """What the engine would take with this model."""
    cells = -(-engine.context // CELLS) * CELLS
    kept = engine.max_sequences + engine.cached_sequences
    return Need(
        weights=header.tensor_bytes,
        kv=cells * header.kv_bytes_per_token(engine.kv_type),
        state=kept * header.cache.state_bytes,
        outputs=_outputs(engine) * header.n_vocab * FLOAT,
        compute=_compute(header, engine, cells),
        kv_per_token=header.kv_bytes_per_token(engine.kv_type),
        cells=cells,
        sequences=engine.max_sequences,
        windowed=_windowed(header, engine.kv_type, cells, engine),
    )


def need_of(header: Header, config: Config) -> Need:
    """The same, with what the adapters of the configuration add to the weights."""
    found = need(header, config.engine)
    adapters = [Path(lora.path) for lora in config.model.lora]
    more = sum(path.stat().st_size for path in adapters if path.is_file())
    return replace(found, weights=found.weights + more)


def memory_need(model: ModelFile, config: Config) -> int:
    """Bytes that serving the model takes: weights, cache, buffers."""
    return need_of(model.header, config).total


def memory_free() -> int:
    """Bytes that can be taken now; 0 where the kernel does not tell."""
    found = available()
    return found.available if found is not None else 0


def verdict(need: Need, has: Available) -> Verdict:
    """Whether that much memory is free."""
    if need.total <= has.available:
        return Verdict("fits", "It fits into the memory that is free now.")
    if need.own <= has.available:
        return Verdict(
            "tight",
            "The weights do not fit beside the rest: they would be read from the disk again and "
            "again, very slowly. Free memory, or take a smaller quantisation.",
        )
    room = has.available - (need.own - need.kv) - need.weights
    context = room // max(1, need.kv_per_token) // CELLS * CELLS
    lower = f"Lower engine.context to {context}" if context >= CELLS else "Take a smaller model"
    return Verdict("lacks", f"It does not fit into the memory that is free now. {lower}.")


def available(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> Available | None:
    """None where the kernel does not tell."""
    try:
        lines = (proc / "meminfo").read_text("ascii").splitlines()
        table = {key: int(rest.split()[0]) * 1024 for key, rest in (x.split(":") for x in lines)}
        machine = Available(table["MemTotal"], table["MemAvailable"])
    except (OSError, ValueError, KeyError, IndexError):
        return None
    limits = [limit for limit in map(_limit, _groups(proc, groups)) if limit is not None]
    least = min(limits, key=lambda limit: limit.available, default=machine)
    return least if least.available < machine.available else machine


def _outputs(engine: EngineConfig) -> int:
    """Rows of logits that a step may ask for."""
    kept = engine.max_sequences + engine.cached_sequences
    drafted = engine.max_sequences * (1 + engine.draft_tokens)
    return max(kept, min(drafted, max(engine.batch, kept)))


def _compute(header: Header, engine: EngineConfig, cells: int) -> int:
    """The largest of what lives at the same time: the logits of a whole micro-batch, a layer's
    feed-forward network, or its attention. In numbers of 4 bytes for each token of the micro-batch.
    """
    width, heads = header.n_embd, max(header.n_head, default=0)
    flash = engine.flash_attention != "off"
    mask = cells // 2 if flash else cells
    scores = 0 if flash else cells * heads
    logits = header.n_vocab + 2 * width
    network = _MORE * (3 * header.n_ff + 4 * width + mask)
    around = _QUERIES * heads * header.key_length + _WIDTHS * width
    attention = mask + around if flash else _SCORES * (scores + mask) + around
    return int(max(logits, network, attention)) * min(engine.ubatch, engine.batch) * FLOAT


def _windowed(header: Header, kv_type: str, cells: int, engine: EngineConfig) -> int:
    cache = header.cache
    if not any(cache.windowed):
        return 0
    # llama.cpp's rule: the window of each sequence, and the micro-batch that is being computed.
    seen = cache.window * engine.max_sequences + engine.ubatch
    small = min(cells, -(-seen // CELLS) * CELLS)
    layers = zip(header.kv_bytes_of_layers(kv_type), cache.windowed, strict=True)
    return sum(size * (small if windowed else cells) for size, windowed in layers)


def _groups(proc: Path, groups: Path) -> list[Path]:
    """The control groups (version 2) that this process is in, the innermost first."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
        inner = groups / next(line[3:] for line in lines if line.startswith("0::")).lstrip("/")
    except (OSError, StopIteration):
        return []
    return [path for path in (inner, *inner.parents) if path.is_relative_to(groups)]


def _limit(group: Path) -> Available | None:
    try:
        most = int((group / "memory.max").read_text("ascii"))  # "max": no limit
        used = int((group / "memory.current").read_text("ascii"))
        lines = (group / "memory.stat").read_text("ascii").splitlines()
        files = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except (OSError, ValueError, IndexError):
        return None
    return Available(most, max(0, most - used + files), limited=True)
