"""The first half of a calibration: prompts and answers, the missing ones generated."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.accounts.keys import FILE_NAME
from appliance.calibrate.answers import FILE, Kept, Sampling, Wanted, gathered, missing
from appliance.calibrate.cases import Case, of_past, of_prompts, worth_generating
from appliance.calibrate.client import BoxAway, Client, Facts, Refused
from appliance.calibrate.entry import let_in
from appliance.calibrate.generate import CannotGenerate, Generation, Orders
from appliance.calibrate.history import read_ledger
from appliance.calibrate.pace import Room
from appliance.calibrate.prompts import read_prompts
from appliance.calibrate.questions import Reader
from appliance.calibrate.status import FOLDER
from appliance.calibrate.teller import Ears, Stopped, Teller
from appliance.forecast.dataset import Answered, Prompt
from appliance.models import ModelFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where prompts and answers come from."""

    prompts: Path | None
    """None: the ledger."""
    answers: tuple[Path, ...]
    generate: bool
    sampling: Sampling
    share: float
    """Of the box's places that may be filled."""
    minutes: float | None
    """After which no more is generated."""


@dataclass(frozen=True, slots=True)
class Box:
    """The daemon that may be asked."""

    url: str
    key: str
    cacert: str


class Gathering:
    """One run. `cases` gives what there is to learn from."""

    def __init__(self, model: ModelFile, state_dir: Path, sources: Sources, box: Box) -> None:
        self._model = model
        self._state_dir = state_dir
        self._sources = sources
        self._box = box
        self.refused: dict[str, str] = {}
        """Prompts that were left out, and why."""

    @property
    def kept(self) -> Path:
        """The answers generated for this model so far."""
        return self._state_dir / FOLDER / self._model.sha256[:12] / FILE

    def cases(self, reader: Reader, teller: Teller, ears: Ears) -> list[Case]:
        """Raises BadDataset, CannotGenerate, KeysError, LedgerError, NoRoom, Stopped, TooFew."""
        if self._sources.prompts is None:
            return self._of_ledger(reader)
        prompts = read_prompts(self._sources.prompts)
        questions, self.refused = reader.asked(prompts)
        usable = [prompt for prompt in prompts if prompt.id in questions]
        answers = self._answers(usable, teller, ears)
        return of_prompts(usable, answers, questions)

    def _of_ledger(self, reader: Reader) -> list[Case]:
        path = self._state_dir / FILE_NAME
        return of_past(read_ledger(path, self._model.sha256, reader)) if path.exists() else []

    def _answers(self, prompts: Sequence[Prompt], teller: Teller, ears: Ears) -> list[Answered]:
        with Kept(self.kept) as kept:
            if kept.torn:
                log.warning("%s ended in half a line, which was cut off", kept.path)
            known = gathered((*self._sources.answers, self.kept), prompts)
            wanted = missing(prompts, known, self._sources.sampling)
            if not wanted or not self._sources.generate:
                return known
            worth_generating(prompts, known, wanted, self._sources.sampling)
            teller.phase("generate", len(wanted))
            return [*known, *self._generated(kept, wanted, teller, ears)]

    def _generated(
        self, kept: Kept, wanted: Sequence[Wanted], teller: Teller, ears: Ears
    ) -> list[Answered]:
        client = Client(self._box.url, self._box.key, self._box.cacert)
        try:
            with let_in(client, self._state_dir, given=bool(self._box.key)) as facts:
                self._same_model(facts)
                minutes = self._sources.minutes
                orders = Orders(
                    room=Room(facts.places, self._sources.share),
                    wished=ears.wished,
                    tell=teller.generated,
                    until=None if minutes is None else ears.clock() + 60 * minutes,
                    clock=ears.clock,
                )
                found = Generation(client, kept, wanted, self._sources.sampling, orders).run()
        except BoxAway as error:
            raise CannotGenerate(self._how_to_start(str(error), len(wanted))) from error
        except Refused as error:
            raise CannotGenerate(f"the box at {self._box.url} refuses: {error}") from error
        self.refused |= found.refused
        if found.stopped and ears.wished() == "stop":
            raise Stopped
        return found.answers

    def _how_to_start(self, why: str, missing: int) -> str:
        return (
            f"{missing} answers are missing, and {why}. Start the box with `steelyard serve` (or "
            "give --url), hand over answers that exist with --answers, or learn from what there "
            "is with --no-generate"
        )

    def _same_model(self, facts: Facts) -> None:
        if facts.model_sha256 == self._model.sha256:
            return
        raise CannotGenerate(
            f"the box at {self._box.url} serves {facts.model} (SHA-256 "
            f"{facts.model_sha256[:12]}...), and the configuration here names {self._model.name} "
            f"({self._model.sha256[:12]}...): give the box's own configuration with --config"
        )
