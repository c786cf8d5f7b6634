"""Runs requests in an engine of this process, many at a time, and keeps what came of each."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from appliance.engine.commands import Load, Submit
from appliance.engine.process import build
from appliance.engine.reports import Batch, Delta, Finished, Report
from appliance.engine.vocab import Vocab


@dataclass(slots=True)
class Ran:
    """One answer."""

    request: Submit
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    end: Finished | None = None


class Host:
    """The engine as the daemon runs it, without the daemon."""

    def __init__(self, model: Path, context: int, at_once: int) -> None:
        self._runs: dict[str, Ran] = {}
        load = Load(
            model_path=str(model),
            n_ctx=context,
            max_sequences=at_once,
            n_batch=512,
            n_ubatch=512,
            threads=1,
            threads_batch=1,
            n_gpu_layers=0,
            flash_attention="on",
            kv_type="f16",
            cached_sequences=0,
            draft_tokens=0,
            prefill_tokens=512,
        )
        self._engine, self._runner = build(load, self._hear)

    @property
    def vocab(self) -> Vocab:
        return self._runner.vocab

    def run(self, requests: Iterable[Submit]) -> list[Ran]:
        """All of them, in their order; the engine fills itself as places become free."""
        self._runs = {request.id: Ran(request) for request in requests}
        for ran in self._runs.values():
            self._engine.handle(ran.request)
        while self._engine.busy:
            self._engine.step()
        return list(self._runs.values())

    def _hear(self, report: Report) -> None:
        for event in report.events if isinstance(report, Batch) else ():
            if isinstance(event, Delta):
                ran = self._runs[event.id]
                ran.text += event.text
                ran.tokens += event.token_ids
                ran.logprobs += [entry.logprob for entry in event.logprobs]
            elif isinstance(event, Finished):
                self._runs[event.id].end = event

    def close(self) -> None:
        self._runner.close()
