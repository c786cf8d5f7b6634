"""A calibration from beginning to end, in the process that called it. docs/forecast.md,
"Calibrate", tells it in words."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from msgspec.structs import replace
from setproctitle import setproctitle

from appliance import durable
from appliance.accounts.keys import KeysError
from appliance.calibrate.answers import NoRoom
from appliance.calibrate.cases import Case, TooFew, enough
from appliance.calibrate.catalogue import install
from appliance.calibrate.fit import Made, Order, make
from appliance.calibrate.gather import Box, Gathering, Sources
from appliance.calibrate.generate import CannotGenerate
from appliance.calibrate.incumbent import in_use
from appliance.calibrate.questions import NoModel, Reader
from appliance.calibrate.status import Result, Status, StatusFiles, Wish, wall_ms
from appliance.calibrate.teller import Ears, Stopped, Teller
from appliance.config import Config
from appliance.engine.vocab import Vocab, VocabError
from appliance.forecast.bundle import BadForecaster
from appliance.forecast.dataset import BadDataset
from appliance.forecast.encoder import EncoderError
from appliance.forecast.train import TooFewError
from appliance.forecast.versions import Versions
from appliance.gguf import BadModel
from appliance.ledger.errors import LedgerError
from appliance.models import ModelFile, check
from appliance.prepare.chatml import CHATML

log = logging.getLogger(__name__)

TITLE = "steelyard: calibrate"
NICE = 10
Install = Literal["if-better", "always", "never"]
TOLD = (
    BadDataset, BadForecaster, BadModel, CannotGenerate, EncoderError, KeysError, LedgerError,
    NoModel, NoRoom, TooFew, TooFewError, VocabError,
)  # fmt: skip
"""What says by itself what happened and what to do."""
MORE = (
    "Give more prompts with --prompts, more samples are no help; or wait until the box has been "
    "asked more."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is asked of one calibration."""

    config: Config
    sources: Sources
    box: Box
    install: Install
    output: Path | None
    min_new: int
    by: str
    order: Order


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. `made`: None where nothing was made."""

    status: Status
    made: Made | None = None


def calibrate(task: Task, watch: Callable[[Status], None]) -> Ended:
    """Runs it; `watch` is told the status as it goes. Raises BusyError, OSError: one runs already,
    or the state directory cannot be written. All other failures are the status's."""
    files = StatusFiles(task.config.server.state_dir)
    with files.take(), _wishes(files) as wished:
        files.wish("go")
        setproctitle(TITLE)
        os.nice(NICE)
        ears = Ears(files, watch, wished)
        first = Status(state="running", by=task.by, pid=os.getpid(), started_ms=wall_ms())
        teller = Teller(ears, first)
        try:
            return _run(task, teller, ears)
        except Stopped:
            teller.stopped()
        except TOLD as error:
            teller.failed(str(error))
        except OSError as error:
            teller.failed(_no_room(error))
        except BaseException as error:
            teller.failed(f"{type(error).__name__}: {error}: this is a bug of ours, tell us")
            raise
        return Ended(teller.now)


@contextmanager
def _wishes(files: StatusFiles) -> Iterator[Callable[[], Wish]]:
    """What the operator wishes: by the file, or by SIGTERM and SIGINT, which are `stop`."""
    told = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if told.is_set():
            raise KeyboardInterrupt
        told.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: "stop" if told.is_set() else files.wished
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _no_room(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror or error}. Make room, or correct the permissions, and start the "
        "calibration again: it goes on from the answers it has, and nothing was installed"
    )


def _run(task: Task, teller: Teller, ears: Ears) -> Ended:
    config = task.config
    model = check(config)
    teller.about(model.name, model.sha256)
    versions = Versions(config.server.state_dir, model.sha256)
    reader = Reader(model.path, template_of(model))
    try:
        gathering = Gathering(model, config.server.state_dir, task.sources, task.box)
        cases = gathering.cases(reader, teller, ears)
    finally:
        reader.close()
    for name, why in list(gathering.refused.items())[:5]:
        log.warning("the prompt %s is left out: %s", name, why)
    if told := _nothing_new(cases, versions, task.min_new):
        teller.end(
            Result(done="nothing to do", why=told, answers=_count(cases), prompts=len(cases))
        )
        return Ended(teller.now)
    enough(cases, MORE)
    made = make(cases, model, in_use(versions), _pieces(model), task.order, teller)
    teller.phase("install")
    result = _install(task, made, versions)
    teller.end(result)
    return Ended(teller.now, made)


def template_of(model: ModelFile) -> str | None:
    """As the daemon's prepare process gets it (assembly.py)."""
    return model.chat_template or (CHATML if model.packaged else None)


def _count(cases: Sequence[Case]) -> int:
    return sum(len(case.answers) for case in cases)


def _nothing_new(cases: Sequence[Case], versions: Versions, least: int) -> str:
    """Why it is not worth it; empty when it is."""
    if not least:
        return ""
    try:
        found = versions.load()
    except BadForecaster:
        return ""
    known = found[1].manifest.training.get("answers", 0) if found is not None else 0
    new = _count(cases) - (known if isinstance(known, int) else 0)
    if new >= least:
        return ""
    return f"{max(0, new)} new answers are fewer than {least} (forecast.calibrate_min_new)"


def _pieces(model: ModelFile) -> dict[int, bytes]:
    """The bytes of every token: the refinement in flight reads the text as it comes."""
    vocab = Vocab.open(model.path)
    try:
        return dict(enumerate(vocab.pieces))
    finally:
        vocab.close()


def _install(task: Task, made: Made, versions: Versions) -> Result:
    """Into use if it shall be, and to the output file."""
    found = made.findings
    ours = found.comparison.ours
    result = Result(
        wins=found.wins,
        why=found.why,
        skill=ours.skill,
        coverage_pct=float(str(made.bundle.manifest.scores["coverage_pct"])),
        prompts=sum(found.prompts.values()),
        answers=sum(found.answers.values()),
    )
    if task.output is not None:
        durable.replace(task.output, made.bundle.named(task.output.stem).pack())
        return replace(result, done=f"written to {task.output}")
    if task.install == "never" or (task.install == "if-better" and not found.wins):
        return replace(result, done="not installed")
    version = install(versions, made.bundle)
    done = f"{version.name} is in use"
    return replace(result, version=version.name, installed=True, done=done)
