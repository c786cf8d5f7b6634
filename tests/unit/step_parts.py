"""An engine on a fake model, step by step."""

from collections.abc import Callable
from typing import Any

from llguidance import LLTokenizer

from appliance.engine.commands import Sampling, Submit
from appliance.engine.journal import NoJournal
from appliance.engine.reports import Batch, Delta, Event, Finished, Report
from appliance.engine.step import Engine
from tests.unit.engine_parts import FakeRunner, make_scheduler, make_submit, next_token

GREEDY = Sampling(temperature=0.0)
PROMPT = tuple(range(20))


def no_grammar() -> LLTokenizer:
    raise AssertionError("no grammar was asked for")


class Loop:
    """An engine that is stepped by hand; collects what it publishes."""

    def __init__(
        self,
        write: Callable[[list[int]], int] = next_token,
        lltokenizer: Callable[[], LLTokenizer] = no_grammar,
        **limits: int,
    ) -> None:
        self.scheduler = make_scheduler(**limits)
        self.runner = FakeRunner(write, self.scheduler.limits.n_cells)
        self.reports: list[Report] = []
        self.engine = Engine(
            self.runner,
            self.scheduler,
            lltokenizer,
            self.reports.append,
            NoJournal(),
            self.runner.clock,
        )

    def submit(self, name: str = "r", **fields: Any) -> Submit:
        request = make_submit(name, **{"prompt": PROMPT, "sampling": GREEDY, **fields})
        self.engine.handle(request)
        return request

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.step()
            self.scheduler.check()

    def run(self, most: int = 1000) -> None:
        for _ in range(most):
            if not self.engine.busy:
                return
            self.step()
        raise AssertionError(f"still busy after {most} steps")

    @property
    def events(self) -> list[Event]:
        return [e for report in self.reports if isinstance(report, Batch) for e in report.events]

    def of(self, kind: type, name: str = "r", choice: int = 0) -> list[Any]:
        found = [e for e in self.events if isinstance(e, kind) and e.id == name]
        return [e for e in found if getattr(e, "choice", choice) == choice]

    def finished(self, name: str = "r", choice: int = 0) -> Finished:
        (finished,) = self.of(Finished, name, choice)
        assert isinstance(finished, Finished)
        return finished

    def tokens(self, name: str = "r", choice: int = 0) -> list[int]:
        return [token for delta in self.of(Delta, name, choice) for token in delta.token_ids]

    def text(self, name: str = "r", choice: int = 0) -> str:
        return "".join(delta.text for delta in self.of(Delta, name, choice))

    def stays_quiet(self) -> bool:
        """Nothing is left that could run or be told."""
        scheduler = self.scheduler
        busy = self.engine.busy or scheduler.running or scheduler.waiting
        return not busy and scheduler.pool.pinned == 0
