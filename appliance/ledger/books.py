"""Opens an account for each request that is let in, and notes those that are not.

Refusals are cheap for whoever causes them, so they must not fill the disk: of one key, route and
error, the first in a second gets its own row and the others of that second share one. Nor must they
fill the memory: while the ledger cannot be written, all of a kind share one.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from appliance.config import LedgerConfig
from appliance.engine.commands import Sampling, Submit
from appliance.errors import ApiError, Unavailable
from appliance.ledger.entry import Energy, Entry, Recorder, Texts, unforeseen, unjudged, unmeasured
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Admitted, Costs, Outcome, Payload, RequestRow
from appliance.ledger.striking import Striker
from appliance.ledger.verify import pack_tokens
from appliance.ledger.writer import LedgerSnapshot

TOGETHER_S = 1.0
"""Equal refusals within this time share a row."""
WORD_CHARS = 64
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LEAST_BIAS = -1e30
"""Stands for minus infinity, which JSON cannot say; no token survives it either."""


def boot_id() -> str:
    """Changes with every start of the machine; monotonic times compare within one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What answers: the same for all requests of one run of the box."""

    model: str
    model_sha256: str
    template_sha256: str
    build: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and for what."""

    trace_id: str
    request_id: str
    route: str
    key_id: str
    key_name: str
    tenant: str
    scenario: str
    received: float
    """Monotonic seconds."""


def texts_of(config: LedgerConfig) -> Texts:
    """As configured. Raises LedgerError for a pattern that is none."""
    try:
        keep = Striker(config.redact if config.store_prompts or config.store_answers else ())
    except ValueError as error:
        raise LedgerError(f"ledger.redact: {error}. Correct it in the configuration") from error
    return Texts(keep if config.store_prompts else None, keep if config.store_answers else None)


class Ledger(Recorder, Protocol):
    """What the books need of the ledger; `writer.Ledger` is the real one."""

    @property
    def snapshot(self) -> LedgerSnapshot: ...

    def record(self, row: RequestRow, payload: Payload | None) -> object: ...

    def next_number(self) -> int: ...

    def admit(self, row: Admitted, prompt: bytes) -> "Future[int]": ...

    def act(self, row: RequestRow) -> "Future[int]": ...


class Books:
    """Belongs to the event loop."""

    def __init__(
        self,
        ledger: Ledger,
        identity: Identity,
        *,
        costing: Callable[[RequestRow], Costs | None],
        texts: Texts,
        energy: Callable[[RequestRow], Energy] = unmeasured,
    ) -> None:
        """`energy` is asked for each request that ends, before it is priced."""
        self._ledger = ledger
        self._identity = identity
        self._costing = costing
        self._energy = energy
        self._texts = texts
        self._refusals: dict[tuple[str, str, str], RequestRow] = {}
        """The latest of each kind; its `count` is of those that have no row yet."""

    @property
    def identity(self) -> Identity:
        """What answers now."""
        return self._identity

    def number(self, submit: Submit, key_id: str) -> Submit:
        """The submission with its place in the ledger."""
        return msgspec.structs.replace(
            submit, number=self._ledger.next_number(), key=key_number(key_id)
        )

    def open(
        self,
        caller: Caller,
        submit: Submit,
        *,
        tier: str,
        prompt_text: str,
        part: int = 0,
        parts: int = 1,
        on_close: Callable[[RequestRow], None],
        forecast: Callable[[], Mapping[str, Any] | None] = unforeseen,
        judged: Callable[[], Mapping[str, Any]] = unjudged,
        lora: Sequence[Mapping[str, Any]] = (),
    ) -> Entry:
        """The account of a numbered submission. Its client must not be told anything before
        `durable`. `on_close` is given the final row. `forecast` is asked at the end for what was
        foreseen at the beginning, `judged` (on the ledger's thread) for what is told of answers
        that have ended. `lora`: the adapters of its set, by name, SHA-256 and scale."""
        admitted = Admitted(
            **self._shared(caller),
            wall_ns=time.time_ns(),
            number=submit.number,
            id=submit.id,
            part=part,
            parts=parts,
            sampling={**storable(submit.sampling), **_steering(submit, lora)},
            n=submit.n,
            max_tokens=submit.max_tokens,
            tier=tier,
            stream=submit.stream,
            prompt_tokens=len(submit.prompt),
        )
        return Entry(
            self._ledger,
            admitted,
            submit,
            self._ledger.admit(admitted, pack_tokens([submit.prompt])),
            costing=self._costing,
            on_close=on_close,
            prompt_text=prompt_text,
            texts=self._texts,
            energy=self._energy,
            forecast=forecast,
            judged=judged,
        )

    async def computed(self, caller: Caller, *, model: str, tokens: int) -> None:
        """A request that another than the engine answered at once (embeddings). Returns when that
        is on disk. Raises Unavailable when it cannot be: the client must not be told the answer."""
        now = time.monotonic_ns()
        row = self._plain(caller, outcome="stop", status=200, code="")
        row = msgspec.structs.replace(
            row,
            model=model,
            model_sha256="",
            template_sha256="",
            prompt_tokens=tokens,
            submitted_ns=row.received_ns,
            started_ns=row.received_ns,
            ended_ns=now,
        )
        try:
            await asyncio.wrap_future(self._ledger.act(row))
        except LedgerError as error:
            raise unavailable(error) from error

    def refuse(self, caller: Caller, error: ApiError) -> None:
        """A request that was not let in."""
        code = str(error.code or error.type)
        kind = (caller.key_id, caller.route, code)
        waiting = self._refusals.get(kind)
        if waiting is not None:
            self._refusals[kind] = msgspec.structs.replace(waiting, count=waiting.count + 1)
            return
        row = self._plain(caller, outcome="refused", status=error.status, code=code)
        if self._ledger.snapshot.ok:
            self._ledger.record(row, None)
            row = msgspec.structs.replace(row, count=0)
        self._refusals[kind] = row
        self._look_again(kind)

    def _look_again(self, kind: tuple[str, str, str]) -> None:
        asyncio.get_running_loop().call_later(TOGETHER_S, self._turn, kind)

    def _turn(self, kind: tuple[str, str, str]) -> None:
        """The second is over; with a ledger that waits itself, so do they."""
        if self._ledger.snapshot.ok:
            self._write_refusals(kind)
        elif kind in self._refusals:
            self._look_again(kind)

    def close(self) -> None:
        """Writes what still waits for company."""
        for kind in list(self._refusals):
            self._write_refusals(kind)

    def _write_refusals(self, kind: tuple[str, str, str]) -> None:
        row = self._refusals.pop(kind, None)
        if row is not None and row.count:
            number = self._ledger.next_number()
            self._ledger.record(
                msgspec.structs.replace(
                    row, number=number, id=_refused_id(), wall_ns=time.time_ns()
                ),
                None,
            )

    def _plain(self, caller: Caller, *, outcome: Outcome, status: int, code: str) -> RequestRow:
        """A row of a request that never reached the engine."""
        return RequestRow(
            **self._shared(caller),
            wall_ns=time.time_ns(),
            number=self._ledger.next_number(),
            id=_refused_id(),
            sampling={},
            n=0,
            max_tokens=0,
            tier="",
            stream=False,
            prompt_tokens=0,
            outcome=outcome,
            status=status,
            code=code,
            cached_tokens=0,
            prefill_tokens=0,
            completion_tokens=0,
            hidden_tokens=0,
            drafted_tokens=0,
            accepted_tokens=0,
            submitted_ns=0,
            started_ns=0,
            first_token_ns=0,
            ended_ns=time.monotonic_ns(),
            prefill_ns=0,
            decode_ns=0,
            parallel=0,
            preemptions=0,
            exclusive=False,
        )

    def _shared(self, caller: Caller) -> dict[str, Any]:
        identity = self._identity
        received_ns = round(caller.received * 1e9)
        return {
            "trace_id": caller.trace_id,
            "request_id": caller.request_id,
            "route": caller.route,
            "key_id": caller.key_id,
            "key_name": caller.key_name,
            "tenant": caller.tenant,
            "scenario": printable(caller.scenario),
            "model": identity.model,
            "model_sha256": identity.model_sha256,
            "template_sha256": identity.template_sha256,
            "build": identity.build,
            "received_ns": received_ns,
            "received_wall_ns": time.time_ns() - (time.monotonic_ns() - received_ns),
            "boot_id": identity.boot_id,
        }


async def until_durable(entries: list[Entry]) -> None:
    """Returns when the admissions are on disk. Raises Unavailable when they cannot be."""
    try:
        for entry in entries:
            await asyncio.wrap_future(entry.durable)
    except LedgerError as error:
        raise unavailable(error) from error


def unavailable(error: LedgerError) -> Unavailable:
    """Better refuse than serve tokens that nobody counts."""
    return Unavailable(
        f"the box serves nothing that it cannot account for, and its ledger cannot be written: "
        f"{error}",
        retry_after=5,
        code="ledger_unavailable",
    )


def _steering(submit: Submit, lora: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """That a grammar held the answer, so that a replay cannot know what it forbade; what was
    agreed on of its length; and which adapters changed the model."""
    found: dict[str, Any] = {}
    if submit.grammar is not None:
        found["grammar_sha256"] = hashlib.sha256(submit.grammar.encode()).hexdigest()
    if submit.budget is not None:
        found["budget"] = msgspec.structs.asdict(submit.budget)
    if lora:
        found["lora"] = list(lora)
    return found


def storable(sampling: Sampling) -> Mapping[str, Any]:
    """The parameters that differ from the defaults of `Sampling`, as JSON can hold them."""
    bounded = tuple((token, max(bias, _LEAST_BIAS)) for token, bias in sampling.logit_bias)
    return msgspec.structs.asdict(msgspec.structs.replace(sampling, logit_bias=bounded))


def printable(text: str) -> str:
    """Somebody's own word for something, short and without control characters."""
    return "".join(c if c.isprintable() else " " for c in text[:WORD_CHARS]).strip()


def key_number(key_id: str) -> int:
    """`k_1a2b3c4d` as the journal knows it; 0 for no key."""
    try:
        return int(key_id.removeprefix("k_"), 16) & 0xFFFFFFFF
    except ValueError:
        return 0


def key_of_number(number: int) -> str:
    """The key id of a number that the journal holds; empty for none."""
    return f"k_{number:08x}" if number else ""


def _refused_id() -> str:
    return "none-" + secrets.token_hex(12)
