"""Each experiment from its settings to its report."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from appliance.forecast.dataset import Prompt
from appliance.study import grid, limits, structure
from appliance.study.asking import Box, Served
from appliance.study.errors import StudyError
from appliance.study.running import Job, Tick, run, unanswered
from appliance.study.store import NAME, Head, Store

Progress = Callable[[int, str], AbstractContextManager[Tick]]
"""How many answers are still to come, and of what: gives what to call after each."""


@dataclass(frozen=True, slots=True)
class Study:
    """Where a study runs, and where it keeps what it finds."""

    box: Box
    served: Served
    folder: Path
    parallel: int
    progress: Progress


def begin(box: Box, folder: Path, parallel: int, fresh: bool, progress: Progress) -> Study:
    """Asks the box what it serves; with `fresh` forgets earlier answers. Raises StudyError."""
    served = box.served()
    if fresh:
        try:
            (folder / NAME).unlink(missing_ok=True)
        except OSError as error:
            raise StudyError(f"{folder / NAME} cannot be removed: {error.strerror}") from None
    return Study(box, served, folder, parallel, progress)


def run_grid(study: Study, prompts: Sequence[Prompt], settings: grid.Settings) -> grid.Report:
    """Raises StudyError; run again, it goes on."""
    with _store(study, "grid", prompts, settings) as store:
        _ask(study, store, list(grid.jobs(prompts, settings)), study.parallel, "grid")
    served = study.served
    return grid.report(served.model, served.sha256, prompts, settings, store.done)


def run_structure(
    study: Study, prompts: Sequence[Prompt], settings: structure.Settings
) -> structure.Report:
    """Raises StudyError; run again, it goes on."""
    with _store(study, "prompts", prompts, settings) as store:
        _ask(study, store, list(structure.jobs(prompts, settings)), study.parallel, "prompts")
    served = study.served
    return structure.report(served.model, served.sha256, prompts, settings, store.done)


def run_limits(study: Study, prompts: Sequence[Prompt], settings: limits.Settings) -> limits.Report:
    """One request at a time: each runs alone in any case. Raises StudyError; run again, it goes
    on."""
    with _store(study, "limits", prompts, settings) as store:
        _ask(study, store, list(limits.naturals(prompts, settings)), 1, "natural answers")
        wanted = limits.checks(prompts, settings, store.done, study.box.detokenize)
        _ask(study, store, list(limits.checking(prompts, wanted)), 1, "checks")
    served = study.served
    return limits.report(served.model, served.sha256, prompts, settings, wanted, store.done)


def _ask(study: Study, store: Store, jobs: Sequence[Job], parallel: int, what: str) -> None:
    left = unanswered(jobs, store)
    if not left:
        return
    with ExitStack() as stack:
        tick = stack.enter_context(study.progress(len(left), what))
        run(left, study.box, store, parallel, tick)


def _store(study: Study, experiment: str, prompts: Sequence[Prompt], settings: object) -> Store:
    digest = hashlib.sha256(msgspec.json.encode(prompts)).hexdigest()
    told: dict[str, Any] = {"prompts_sha256": digest, **msgspec.to_builtins(settings)}
    served = study.served
    head = Head(experiment=experiment, model=served.model, sha256=served.sha256, settings=told)
    return Store(study.folder / NAME, head)
