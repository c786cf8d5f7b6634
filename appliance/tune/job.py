"""One tuning, from the configuration to the kept entry."""

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from appliance import buildinfo
from appliance.accounts.keys import FILE_NAME
from appliance.config import Config
from appliance.engine.commands import Load
from appliance.ledger.lengths import read_past
from appliance.models import ModelFile
from appliance.tune import hardware
from appliance.tune.dimensions import Machine, dimensions
from appliance.tune.engines import Engines
from appliance.tune.search import CannotRun, Search
from appliance.tune.settings import Mix, Settings, Timing, Work
from appliance.tune.store import Entry, TuneError, base_of, settings_of

_ROWS = 2048
"""Newest rows of the ledger from which the mix is taken."""
_FEWEST = 50
"""With fewer requests in the ledger the mix is assumed."""
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Of /proc/stat: user, nice, system, irq, softirq."""
MEASURE_S = 2.0
QUICK_S = 0.5
"""Seconds that one measurement may take, about: what it runs is sized to that."""
_SMALLEST = Work(prompt=128, steps=8, parallel=(1, 4))
_LARGEST_PROMPT = 4096
_MOST_STEPS = 96


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is."""

    share: float
    doing: str
    eta_s: float | None


class Tuning:
    """One run. `run` does it; `entry` is what came of it."""

    def __init__(
        self,
        config: Config,
        model: ModelFile,
        load: Load,
        *,
        quick: bool = False,
        other_answers: bool = False,
        mix: Mix | None = None,
    ) -> None:
        """`load`: how the engine would be started, from the configuration alone."""
        self._config = config
        self._model = model
        self._load = load
        self._seconds = QUICK_S if quick else MEASURE_S
        self._pairs = 3 if quick else 5
        self._other_answers = other_answers
        self._hardware = hardware.read(buildinfo.installed())
        self.mix = mix or mix_of(config, model.sha256)
        self.entry: Entry | None = None

    def run(self) -> Iterator[Progress]:
        """Raises TuneError when not even the settings in use can be measured."""
        base = base_of(self._config, self._hardware.cores)
        began, before = time.monotonic(), _Used.now()
        with Engines(self._start(base), _SMALLEST, self._config.engine.start_timeout_s) as engines:
            try:
                engines.work = work = self._sized(engines, base)
                search = self._search(engines, base)
                for share in search.run():
                    spent = time.monotonic() - began
                    eta = spent / share - spent if share > 0.02 else None
                    yield Progress(share, search.doing, eta)
            except CannotRun as error:
                raise TuneError(f"the engine cannot be measured: {error}") from error
        assert search.found is not None
        self.entry = Entry(
            model=self._model.name,
            model_sha256=self._model.sha256,
            hardware=self._hardware,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            mix=self.mix,
            work=work,
            found=search.found,
            busy=_Used.now().others_since(before),
            settings=settings_of(search.found),
        )

    def _start(self, base: Settings) -> Load:
        """No larger a cache than the measurements fill: two engines must fit side by side."""
        cells = min(self._load.n_ctx, max(1024, min(self.mix.prompt, _LARGEST_PROMPT) + 1024))
        return msgspec.structs.replace(self._load, n_ctx=cells, journal_dir="", max_sequences=8)

    def _sized(self, engines: Engines, base: Settings) -> Work:
        """What takes about the time that a measurement may take, as near the mix as it can be."""
        engines.measure(base)
        timing = engines.measure(base)
        half = self._seconds * 500
        room = self._load.n_ctx // 2
        prompt = int(half / timing.prefill_ms / (1 + len(_SMALLEST.parallel)))
        step = statistics.fmean(
            ms * lanes for ms, lanes in zip(timing.decode_ms, _SMALLEST.parallel, strict=True)
        )
        steps = int(half / step / len(_SMALLEST.parallel))
        return Work(
            prompt=max(64, min(prompt, self.mix.prompt, _LARGEST_PROMPT, room)),
            steps=max(4, min(steps, _MOST_STEPS)),
            parallel=_SMALLEST.parallel,
        )

    def _search(self, engines: Engines, base: Settings) -> Search:
        opened = engines.opened(base)
        machine = Machine(
            cores=self._hardware.cores,
            cpus=self._hardware.cpus,
            layers=opened.layers,
            offloads=opened.offloads,
            context=self._config.engine.context,
            other_answers=self._other_answers,
        )
        named = frozenset(
            key.removeprefix("engine.") for key in self._config.named if key.startswith("engine.")
        )
        return Search(
            engines,
            base,
            dimensions(machine, named),
            self.mix,
            pairs=self._pairs,
            other_answers=self._other_answers,
        )


def mix_of(config: Config, model_sha256: str) -> Mix:
    """The box's own: medians would hide the long ones that take most of the time, so means."""
    path = config.server.state_dir / FILE_NAME
    if not path.exists():
        return Mix()
    rows = read_past(path, model_sha256, _ROWS)
    seen = [(row.prefill_tokens, row.completion_tokens) for row in rows]
    if len(seen) < _FEWEST:
        return Mix()
    prompt, answer = (round(statistics.fmean(part)) for part in zip(*seen, strict=True))
    return Mix(max(1, prompt), max(1, answer), f"the ledger's newest {len(seen)} requests")


@dataclass(frozen=True, slots=True)
class _Used:
    """CPU time so far, seconds."""

    at: float
    by_all: float
    by_us: float
    """This process and its children that have ended."""

    @classmethod
    def now(cls) -> "_Used":
        with open("/proc/stat", encoding="utf-8") as lines:
            fields = [int(field) for field in lines.readline().split()[1:]]
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        return cls(time.monotonic(), sum(fields[i] for i in _BUSY_FIELDS) / _TICKS, ours)

    def others_since(self, before: "_Used") -> float:
        """Share of this process's cores that others used, 0 to 1."""
        spent = (self.at - before.at) * len(os.sched_getaffinity(0))
        others = (self.by_all - before.by_all) - (self.by_us - before.by_us)
        return min(1.0, max(0.0, others / spent)) if spent else 0.0


def cost_words(timing: Timing, work: Work) -> str:
    """Tokens per second, for people."""
    decode = ", ".join(
        f"{1000 / ms:.0f} with {lanes} at once"
        for ms, lanes in zip(timing.decode_ms, work.parallel, strict=True)
    )
    return f"prompts {1000 / timing.prefill_ms:.0f} tokens/s, answers {decode}"
