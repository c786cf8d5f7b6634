"""Tokens computed for a request whose client is told of none, because it was refused after the
engine had begun: the three counts of screen 5 are equal all the same."""

from pathlib import Path

import pytest

from appliance.api.box import Box
from appliance.errors import Overloaded
from appliance.ledger.errors import LedgerError
from tests.unit.api_box import ScriptedSupervisor, ScriptedTicket, chat, client_of, ledger_of
from tests.unit.api_box import make_box as box_of


def counted(box: Box) -> tuple[int, int]:
    pulse = box.metrics.pulse
    return pulse.tokens_ledger, pulse.tokens_sent


def heard(ticket: ScriptedTicket) -> None:
    """The engine's events reach the account whoever reads the ticket."""
    assert ticket.account is not None
    for step in ticket._steps:
        ticket.account.event(step)  # type: ignore[arg-type]


async def test_answer_that_ends_after_its_admission_could_not_be_written(tmp_path: Path) -> None:
    box = box_of(tmp_path)
    ledger_of(box).fault = LedgerError("the disk is full")
    async with client_of(box) as client:
        answer = await client.post("/v1/chat/completions", json=chat())
    assert answer.status_code == 503
    supervisor = box.supervisor
    assert isinstance(supervisor, ScriptedSupervisor)
    heard(supervisor.last)
    assert counted(box) == (3, 3)


async def test_answer_that_ended_before_that_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_of(tmp_path)
    ledger_of(box).fault = LedgerError("the disk is full")
    submit = ScriptedSupervisor.submit

    def at_once(self: ScriptedSupervisor, *given: object) -> ScriptedTicket:
        ticket = submit(self, *given)  # type: ignore[arg-type]
        heard(ticket)
        return ticket

    monkeypatch.setattr(ScriptedSupervisor, "submit", at_once)
    async with client_of(box) as client:
        answer = await client.post("/v1/chat/completions", json=chat())
    assert answer.status_code == 503
    assert counted(box) == (3, 3)


async def test_first_of_two_prompts_whose_second_found_no_room(tmp_path: Path) -> None:
    box = box_of(tmp_path)
    admitted: list[int] = []

    def admit(prompt_tokens: int, max_tokens: int, deadline_s: float | None) -> None:
        admitted.append(prompt_tokens)
        if len(admitted) > 1:
            raise Overloaded("the queue is full", retry_after=1, code="queue_full")

    box.admission.admit = admit  # type: ignore[method-assign]
    async with client_of(box) as client:
        body = {"model": "tiny", "prompt": ["one", "two"], "max_tokens": 4}
        answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 429
    supervisor = box.supervisor
    assert isinstance(supervisor, ScriptedSupervisor)
    heard(supervisor.last)
    assert counted(box) == (3, 3)


async def test_answer_that_is_sent_is_counted_once(tmp_path: Path) -> None:
    box = box_of(tmp_path)
    async with client_of(box) as client:
        answer = await client.post("/v1/chat/completions", json=chat())
    assert answer.status_code == 200
    assert counted(box) == (3, 3)
