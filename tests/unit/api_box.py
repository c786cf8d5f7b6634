"""A box whose engine follows a script, for tests of the HTTP interface alone."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from msgspec.structs import replace

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.config import ApiConfig, Config, LimitsConfig, ServerConfig
from appliance.engine.commands import Expect, Pool, Submit
from appliance.engine.reports import (
    Counts,
    Delta,
    Event,
    Finished,
    FirstLogits,
    Ready,
    Signals,
    Started,
    StopType,
    TokenLogprob,
)
from appliance.errors import ApiError
from appliance.forecasts import Forecasts
from appliance.gguf.header import Header
from appliance.ledger.books import Books, Identity, Texts
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Admitted, Payload, RequestRow, Row
from appliance.ledger.writer import LedgerSnapshot
from appliance.models import ModelFile
from appliance.observe.metrics import Metrics
from appliance.prepare.client import PrepareSnapshot
from appliance.prepare.messages import ChatJob, Piece, Prepared, TextJob, TokenizeJob
from appliance.snapshot import EngineSnapshot, QueueSnapshot
from appliance.ticket import Account

Step = Event | ApiError | float
"""An event, a fault, or seconds of silence."""
Script = Callable[[Submit], Sequence[Step]]

READY = Ready("tiny", 1000, 4000, 256, 128, 512, 16, 2, 2, 0, 0, False, "CPU", 0.1)
HEADER = Header(
    architecture="llama",
    name="tiny",
    n_ctx_train=512,
    n_layers=2,
    n_embd=16,
    n_head=(2, 2),
    n_head_kv=(2, 2),
    key_length=8,
    value_length=8,
    n_vocab=256,
    file_type="F16",
    chat_template=None,
    tokenizer="gpt2",
    n_params=1000,
    file_size=4000,
    quantization=(("F16", 2),),
)


def counts(prompt: int, completion: int, *, cached: int = 0, hidden: int = 1) -> Counts:
    computed = prompt - cached
    return Counts(prompt, cached, completion, hidden, 0, 0, 20.0, 100.0, 5.0, 1, computed)


def saying(*texts: str, reason: Any = "stop", choice_texts: Sequence[Sequence[str]] = ()) -> Script:
    """Each choice says the texts, a token each, then EOS (token 0)."""

    def script(submit: Submit) -> list[Step]:
        steps: list[Step] = [Started(submit.id, time.monotonic(), 0)]
        for choice in range(submit.n):
            said = choice_texts[choice] if choice_texts else texts
            tokens = [text.encode()[0] for text in said] + [0]
            logprobs = [TokenLogprob(t, -0.5, ((t, -0.5), (65, -1.5))) for t in tokens]
            if submit.sampling.logprobs < 0:
                logprobs = []
            if submit.stream:
                for place, text in enumerate(said):
                    one = tuple(logprobs[place : place + 1])
                    steps.append(Delta(submit.id, choice, text, (tokens[place],), one))
                steps.append(Delta(submit.id, choice, "", (0,), tuple(logprobs[-1:])))
            else:
                whole = "".join(said)
                steps.append(Delta(submit.id, choice, whole, tuple(tokens), tuple(logprobs)))
            cost = counts(len(submit.prompt), len(tokens))
            kind: StopType = "limit" if reason == "length" else "eos"
            steps.append(Finished(submit.id, choice, reason, kind, "", cost))
        return steps

    return script


class ScriptedTicket:
    """Plays its script; a cancel ends every open choice."""

    def __init__(
        self, request: Submit, steps: Sequence[Step], position: int, account: Account | None
    ) -> None:
        self.request = request
        self.account = account
        self.id = request.id
        self.submitted_at = time.monotonic()
        self.started_at: float | None = None
        self.first_at: float | None = None
        self.generated = 0
        self.on_signal: Callable[[Signals | FirstLogits], None] | None = None
        self.position = position
        self.cancelled = asyncio.Event()
        self._steps = list(steps)
        self._open = set(range(request.n))

    async def next(self, timeout: float | None = None) -> Event | None:
        event = await self._next(timeout)
        if event is not None and self.account is not None:
            self.account.event(event)
        return event

    async def _next(self, timeout: float | None) -> Event | None:
        if self.cancelled.is_set():
            return self._end()
        if not self._steps:
            raise StopAsyncIteration
        step = self._steps[0]
        if isinstance(step, float):
            return await self._silence(step, timeout)
        del self._steps[0]
        if isinstance(step, ApiError):
            if self.account is not None:
                self.account.failed(step)
                self.account.settle(None)
            raise step
        if isinstance(step, Signals | FirstLogits):
            if self.on_signal is not None:
                self.on_signal(step)
            return await self._next(timeout)
        if isinstance(step, Started):
            self.started_at, self.position = time.monotonic(), 0
        elif isinstance(step, Delta):
            self.generated += len(step.token_ids)
        elif isinstance(step, Finished):
            self._open.discard(step.choice)
        return step

    async def _silence(self, left: float, timeout: float | None) -> Event | None:
        wait = left if timeout is None else min(left, timeout)
        try:
            await asyncio.wait_for(self.cancelled.wait(), wait)
        except TimeoutError:
            self._steps[0] = left - wait
            if left <= wait:
                del self._steps[0]
            return None if timeout is not None else await self._next(None)
        return self._end()

    def _end(self) -> Finished:
        if not self._open:
            raise StopAsyncIteration
        cost = counts(len(self.request.prompt), self.generated)
        return Finished(self.id, self._open.pop(), "cancelled", "none", "", cost)

    def cancel(self, reason: str = "cancelled", by: str = "operator") -> None:
        if self.account is not None:
            self.account.cancelled(by)
        self.cancelled.set()


class ScriptedOrders:
    """Keeps what the engine would be told."""

    def __init__(self) -> None:
        self.expected: list[Expect] = []

    def expect(self, expect: Expect) -> None:
        self.expected.append(expect)

    def reprioritise(self, ticket: ScriptedTicket, priority: int, pool: Pool) -> None:
        ticket.request = replace(ticket.request, priority=priority, pool=pool)


class ScriptedSupervisor:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.orders = ScriptedOrders()
        self.snapshot = EngineSnapshot(
            state="ready", ready=READY, last_progress=time.monotonic(), pid=1
        )
        self.queue = QueueSnapshot()
        self.tickets: dict[str, ScriptedTicket] = {}
        self.done: list[str] = []
        self.position = 0

    def submit(self, request: Submit, account: Account | None = None) -> ScriptedTicket:
        ticket = ScriptedTicket(request, self.script(request), self.position, account)
        self.tickets[request.id] = ticket
        return ticket

    def waiting(self) -> list[ScriptedTicket]:
        waiting = [ticket for ticket in self.tickets.values() if ticket.started_at is None]
        return sorted(waiting, key=lambda t: (t.request.pool, t.request.priority, t.submitted_at))

    def pause(self, on: bool) -> None:
        self.done.append(f"pause {on}")

    async def restart(self, reason: str) -> None:
        self.done.append(f"restart {reason}")

    @property
    def last(self) -> ScriptedTicket:
        return list(self.tickets.values())[-1]


class MemoryLedger:
    """Keeps the rows it is given. `fault` fails what can fail."""

    def __init__(self) -> None:
        self.snapshot = LedgerSnapshot()
        self.rows: list[Row] = []
        self.payloads: list[Payload | None] = []
        self.fault: LedgerError | None = None
        self._number = 0

    @property
    def requests(self) -> list[RequestRow]:
        return [row for row in self.rows if isinstance(row, RequestRow)]

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def admit(self, row: Admitted, prompt: bytes = b"") -> Future[int]:
        return self._keep(row, None)

    def record(self, row: RequestRow, payload: Payload | None) -> Future[int]:
        return self._keep(row, payload)

    def record_made(self, make: Callable[[], tuple[RequestRow, Payload | None]]) -> Future[int]:
        return self._keep(*make())

    def act(self, row: Row, payload: Payload | None = None) -> Future[int]:
        return self._keep(row, payload)

    def _keep(self, row: Row, payload: Payload | None) -> Future[int]:
        future: Future[int] = Future()
        if self.fault is not None and not isinstance(row, RequestRow):
            future.set_exception(self.fault)
            return future
        self.rows.append(row)
        self.payloads.append(payload)
        future.set_result(len(self.rows))
        return future


class ScriptedAdmission:
    draining = False
    fault: ApiError | None = None

    def admit(self, prompt_tokens: int, max_tokens: int, deadline_s: float | None) -> None:
        if self.fault is not None:
            raise self.fault

    def drain(self, on: bool) -> None:
        self.draining = on


class BytePreparer:
    """One token per byte; a chat's prompt is its messages' contents."""

    def __init__(self) -> None:
        self.prepared = Prepared(prompt=(), text="")
        self.jobs: list[ChatJob | TextJob] = []
        self.keys: list[str] = []
        """For whom, job by job."""

    def snapshot(self) -> PrepareSnapshot:
        return PrepareSnapshot(alive=True, pid=2, chat_template="{{ messages }}")

    async def chat(self, job: ChatJob, key: str = "") -> Prepared:
        self.jobs.append(job)
        self.keys.append(key)
        return self._with("".join(message["content"] for message in job.messages))

    async def text(self, job: TextJob, key: str = "") -> Prepared:
        self.jobs.append(job)
        self.keys.append(key)
        if isinstance(job.prompt, str):
            return self._with(job.prompt)
        return Prepared(prompt=tuple(job.prompt), text="")

    def _with(self, text: str) -> Prepared:
        ready = self.prepared
        return Prepared(
            prompt=tuple(text.encode()),
            text=text,
            grammar=ready.grammar,
            output=ready.output,
            tools_format=ready.tools_format,
            stop=ready.stop,
            closing=ready.closing,
        )

    async def render(self, job: ChatJob, key: str = "") -> str:
        self.keys.append(key)
        return "".join(message["content"] for message in job.messages)

    async def tokenize(self, job: TokenizeJob, key: str = "") -> tuple[Piece, ...]:
        self.keys.append(key)
        return tuple(Piece(byte, bytes([byte])) for byte in job.content.encode())

    async def detokenize(self, tokens: Sequence[int], key: str = "") -> str:
        self.keys.append(key)
        return bytes(tokens).decode("utf-8", "replace")

    async def vocabulary(self) -> tuple[bytes, ...]:
        return (b"</s>", *(bytes([token]) for token in range(1, 256)))


def make_box(
    tmp_path: Path,
    script: Script | None = None,
    *,
    forecasts: Forecasts | None = None,
    **changes: Any,
) -> Box:
    """A box that answers "Hello"; `changes` go to the sections of its configuration."""
    supervisor = ScriptedSupervisor(script or saying("Hel", "lo"))
    sections = {
        "server": ServerConfig(state_dir=tmp_path, **changes.pop("server", {})),
        "limits": LimitsConfig(**changes.pop("limits", {})),
        "api": ApiConfig(**changes.pop("api", {})),
        **changes,
    }
    ledger = MemoryLedger()
    identity = Identity("tiny", "ab" * 32, "cd" * 32, "test", "boot")
    return Box(
        ledger=ledger,
        books=Books(ledger, identity, costing=lambda row: None, texts=Texts()),
        config=Config(**sections),
        keys=KeyStore(tmp_path / FILE_NAME),
        preparer=BytePreparer(),  # type: ignore[arg-type]
        supervisor=supervisor,
        admission=ScriptedAdmission(),
        model=ModelFile(Path("/models/tiny.gguf"), HEADER, "ab" * 32, "tiny"),
        metrics=Metrics(version="0", llama_commit="c0ffee", model="tiny"),
        started_at=time.time(),
        version="0",
        llama_commit="c0ffee12345",
        forecasts=forecasts or Forecasts(),
    )


def ledger_of(box: Box) -> MemoryLedger:
    """The box's ledger, to look into."""
    ledger: Any = box.ledger
    assert isinstance(ledger, MemoryLedger)
    return ledger


def client_of(
    box: Box, app: FastAPI | None = None, *, peer: str = "127.0.0.1"
) -> httpx.AsyncClient:
    """A client at the address `peer`."""
    transport = httpx.ASGITransport(app=app or create_app(box), client=(peer, 5000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8421")


def chat(**more: Any) -> dict[str, Any]:
    """A small chat request."""
    return {"messages": [{"role": "user", "content": "hi"}], **more}


def events_of(text: str) -> list[str]:
    """The data of a stream's events, comments left out."""
    return [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
