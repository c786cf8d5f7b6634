"""One request's account: exactly one final row, whatever happens."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from appliance.engine.reports import Counts, Delta, Finished, Started, StopType
from appliance.errors import EngineFailed, Unavailable
from appliance.ledger.entry import Energy, Entry, Texts, unmeasured
from appliance.ledger.errors import LedgerError
from appliance.ledger.recovery import Recovered
from appliance.ledger.rows import Admitted, Costs, Payload, RequestRow
from appliance.ledger.verify import token_digest, unpack_tokens
from tests.unit.engine_parts import make_submit

PROMPT = (5, 6, 7)


def admitted(**changes: Any) -> Admitted:
    facts: dict[str, Any] = {
        "wall_ns": 1,
        "number": 1,
        "id": "r",
        "trace_id": "t",
        "request_id": "q",
        "route": "/v1/chat/completions",
        "key_id": "k_00000001",
        "key_name": "app",
        "tenant": "sales",
        "scenario": "mail",
        "model": "tiny",
        "model_sha256": "ab" * 32,
        "template_sha256": "cd" * 32,
        "build": "test",
        "sampling": {"temperature": 0.0},
        "n": 1,
        "max_tokens": 8,
        "tier": "default",
        "stream": False,
        "prompt_tokens": 3,
        "received_wall_ns": 1,
        "received_ns": 1,
        "boot_id": "boot",
    }
    return Admitted(**{**facts, **changes})


def counts(completion: int, **changes: Any) -> Counts:
    plain: dict[str, Any] = {
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "completion_tokens": completion,
        "hidden_tokens": 1,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "prompt_ms": 1.0,
        "decode_ms": 1.0,
        "queue_ms": 1.0,
        "parallel": 1,
        "prefill_tokens": 2,
        "prefill_ns": 100,
        "decode_ns": 200,
        "started": 10.0,
        "first_token": 10.5,
        "ended": 11.0,
    }
    return Counts(**{**plain, **changes})


class Desk:
    """One entry and what it wrote."""

    def __init__(
        self,
        *,
        n: int = 1,
        keep: bool = False,
        energy: Callable[[RequestRow], Energy] = unmeasured,
        forecast: Callable[[], dict[str, Any] | None] = lambda: None,
        **changes: Any,
    ) -> None:
        self.rows: list[RequestRow] = []
        self.payloads: list[Payload | None] = []
        self.closed: list[RequestRow] = []
        request = make_submit("r", PROMPT, n=n, grammar=changes.pop("grammar", None))
        self.durable: Future[int] = Future()
        self.entry = Entry(
            self,
            admitted(n=n, **changes),
            request,
            self.durable,
            costing=self.price,
            on_close=self.closed.append,
            prompt_text="hi",
            texts=Texts(prompts=str.title, answers=str.upper) if keep else Texts(),
            energy=energy,
            forecast=forecast,
        )

    def price(self, row: RequestRow) -> Costs:
        self.priced = row
        return Costs(currency="EUR", prefill=1, decode=2, cached=3, idle=4)

    def record_made(self, make: Callable[[], tuple[RequestRow, Payload | None]]) -> None:
        row, payload = make()
        self.rows.append(row)
        self.payloads.append(payload)

    def start(self) -> None:
        self.entry.event(Started("r", 10.0, 1))

    def say(self, *ids: int, choice: int = 0, text: str = "") -> None:
        self.entry.event(Delta("r", choice, text, ids))

    def finish(
        self, reason: Any = "stop", completion: int = 2, choice: int = 0, **changes: Any
    ) -> None:
        kind: StopType = "eos" if reason == "stop" else "none"
        self.entry.event(Finished("r", choice, reason, kind, "", counts(completion, **changes), ""))

    @property
    def row(self) -> RequestRow:
        (row,) = self.rows
        (closed,) = self.closed
        assert (closed.number, closed.costs) == (row.number, row.costs)
        return row

    @property
    def tokens(self) -> list[tuple[int, ...]]:
        (payload,) = self.payloads
        assert payload is not None
        assert payload.tokens is not None
        return [tuple(ids) for ids in unpack_tokens(payload.tokens)]


def test_an_answer_is_one_row_with_its_tokens_times_and_cost() -> None:
    desk = Desk()
    desk.start()
    desk.say(21)
    desk.say(22)
    desk.finish()
    row = desk.row
    assert (row.outcome, row.status, row.code) == ("stop", 200, "")
    assert (row.prompt_tokens, row.cached_tokens, row.prefill_tokens) == (3, 1, 2)
    assert (row.completion_tokens, row.hidden_tokens) == (2, 1)
    assert (row.started_ns, row.first_token_ns, row.ended_ns) == (
        10_000_000_000,
        10_500_000_000,
        11_000_000_000,
    )
    assert row.costs is not None
    assert row.costs.total == 10
    assert row.choices[0].digest == token_digest(PROMPT, (21, 22))
    assert desk.tokens == [PROMPT, (21, 22)]
    assert row.exact
    assert not row.recovered
    assert not desk.entry.open


def test_a_row_waits_for_the_last_choice_and_sums_all() -> None:
    desk = Desk(n=2)
    desk.start()
    desk.say(21, 22)
    desk.say(31, choice=1)
    desk.finish()
    assert desk.rows == []
    desk.finish("length", 1, choice=1, prefill_tokens=1, hidden_tokens=0, cached_tokens=2)
    row = desk.row
    assert row.outcome == "length", "the less complete end of the two"
    assert (row.completion_tokens, row.prefill_tokens, row.cached_tokens) == (3, 3, 1)
    assert [choice.outcome for choice in row.choices] == ["stop", "length"]
    assert desk.tokens == [PROMPT, (21, 22), (31,)]


@pytest.mark.parametrize(
    ("by", "code", "status"),
    [("client", "client_gone", 0), ("operator", "cancelled", 499), ("box", "unavailable", 503)],
)
def test_a_cancelled_row_tells_by_whom(by: str, code: str, status: int) -> None:
    desk = Desk()
    desk.entry.cancelled(by)
    desk.finish("cancelled", 0)
    assert (desk.row.outcome, desk.row.code, desk.row.status) == ("cancelled", code, status)


def test_a_stream_had_its_status_when_it_was_cancelled() -> None:
    desk = Desk(stream=True)
    desk.entry.cancelled("client")
    desk.finish("cancelled", 0)
    assert desk.row.status == 200


@pytest.mark.parametrize(
    ("grammar", "code", "status"),
    [(None, "failed", 500), ("%llguidance {}", "grammar_failed", 400)],
)
def test_an_error_of_the_engine_is_a_failed_row(
    grammar: str | None, code: str, status: int
) -> None:
    desk = Desk(grammar=grammar)
    desk.finish("error", 0)
    assert (desk.row.outcome, desk.row.code, desk.row.status) == ("failed", code, status)


def lost(*ids: int) -> Recovered:
    return Recovered(
        1,
        key=1,
        cached_tokens=1,
        prefill_tokens=2,
        tokens={0: list(ids)},
        started_ns=5,
        first_token_ns=6,
        last_ns=7,
    )


def test_a_dead_engine_leaves_the_journals_tokens_not_only_those_that_were_told() -> None:
    desk = Desk()
    desk.start()
    desk.say(21)
    error = EngineFailed("gone", code="engine_crashed")
    desk.entry.failed(error)
    assert desk.rows == [], "what was computed is not known yet"
    desk.entry.settle(lost(21, 22, 23))
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert error.body()["error"]["usage"] == usage  # type: ignore[index]
    row = desk.row
    assert (row.outcome, row.code, row.status) == ("failed", "engine_crashed", 500)
    assert (row.completion_tokens, row.prefill_tokens, row.cached_tokens) == (3, 2, 1)
    assert desk.tokens == [PROMPT, (21, 22, 23)]
    assert row.choices[0].digest == token_digest(PROMPT, (21, 22, 23))
    assert row.recovered
    assert (row.prefill_ns, row.decode_ns) == (0, 0), "what the box broke costs nobody"


def test_a_stopping_box_interrupts() -> None:
    desk = Desk()
    desk.start()
    desk.say(21)
    desk.entry.failed(Unavailable("stopping", code="shutting_down"))
    desk.entry.settle(None)
    assert (desk.row.outcome, desk.row.completion_tokens) == ("interrupted", 1)


def test_an_end_that_comes_after_the_failure_does_not_close_twice() -> None:
    desk = Desk()
    desk.start()
    desk.entry.failed(Unavailable("stopping", code="shutting_down"))
    desk.finish()
    desk.entry.settle(lost(21, 22))
    desk.entry.settle(lost(21, 22))
    assert desk.row.completion_tokens == 2


def test_what_the_engine_finished_after_a_failed_admission_is_no_answer() -> None:
    desk = Desk()
    desk.start()
    desk.say(21, 22)
    desk.durable.set_exception(LedgerError("the disk is full"))
    desk.finish()
    row = desk.row
    assert (row.outcome, row.code, row.status) == ("cancelled", "ledger_unavailable", 503)
    assert row.completion_tokens == 2, "it was computed all the same"


def test_texts_are_kept_only_where_configured_and_redacted_first() -> None:
    desk = Desk(keep=True)
    desk.start()
    desk.say(21, text="my na")
    desk.say(22, text="me")
    desk.finish()
    (payload,) = desk.payloads
    assert payload is not None
    assert (payload.prompt, payload.answers) == ("Hi", "MY NAME")
    plain = Desk()
    plain.say(21, text="my name")
    plain.finish(completion=1)
    (payload,) = plain.payloads
    assert payload is not None
    assert (payload.prompt, payload.answers) == (None, None)


def test_a_row_is_dated_when_it_is_made() -> None:
    before = time.time_ns()
    desk = Desk()
    desk.finish()
    assert before <= desk.row.wall_ns <= time.time_ns()


def test_measured_energy_is_in_the_row_before_it_is_priced() -> None:
    desk = Desk(energy=lambda row: (row.prefill_ns + row.decode_ns, "RAPL"))
    desk.start()
    desk.say(21, 22)
    desk.finish()
    assert (desk.row.energy_uj, desk.row.energy_source) == (300, "RAPL")
    assert (desk.priced.energy_uj, desk.priced.costs) == (300, None)


def test_energy_that_nothing_measures_is_unknown_and_not_nothing() -> None:
    desk = Desk()
    desk.start()
    desk.say(21, 22)
    desk.finish()
    assert (desk.row.energy_uj, desk.row.energy_source) == (None, "")


def test_what_was_foreseen_is_asked_for_at_the_end_and_is_in_the_row() -> None:
    told: list[dict[str, Any]] = []
    desk = Desk(forecast=lambda: {"p50_tok": 9, "at": len(told)})
    desk.start()
    told.append({})
    desk.say(21)
    desk.finish(completion=1)
    assert desk.row.forecast == {"p50_tok": 9, "at": 1}


def test_a_row_of_a_request_that_died_has_its_forecast_too() -> None:
    desk = Desk(forecast=lambda: {"p50_tok": 9})
    desk.entry.failed(EngineFailed("it crashed", code="engine_crashed"))
    desk.entry.settle(None)
    assert desk.row.forecast == {"p50_tok": 9}
