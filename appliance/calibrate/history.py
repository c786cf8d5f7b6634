"""Prompts and answers out of the box's own ledger: what was really asked here. Nothing need be
generated; prompts whose token ids retention has dropped are left out."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from appliance.calibrate.client import SCENARIO
from appliance.calibrate.questions import Reader
from appliance.forecast.dataset import Answered
from appliance.forecast.question import Question
from appliance.ledger import audits, queries
from appliance.ledger.database import connect
from appliance.ledger.rows import RequestRow

MOST = 20_000
"""Requests that are looked at, newest first."""
_PAGE = 500
_SEARCH_S = 30.0
_PLAIN = ("stop", "length", "cancelled", "deadline")
"""Ends that tell of a length; the others are the box's."""


@dataclass(frozen=True, slots=True)
class Past:
    """One prompt that was asked here, and its answers."""

    question: Question
    answers: tuple[Answered, ...]


def read_ledger(path: Path, model_sha256: str, reader: Reader, most: int = MOST) -> list[Past]:
    """The newest requests of this model, newest first. Raises LedgerError."""
    with closing(connect(path, read_only=True)) as db:
        found: list[Past] = []
        cursor: int | None = None
        looked = 0
        while looked < most:
            page = queries.requests(db, cursor=cursor, limit=_PAGE, search_s=_SEARCH_S)
            looked += len(page.entries)
            found += filter(None, (_past(db, one, model_sha256, reader) for one in page.entries))
            cursor = page.cursor
            if cursor is None:
                break
        return found


def _past(
    db: Database, entry: queries.Entry[RequestRow], model_sha256: str, reader: Reader
) -> Past | None:
    row = entry.row
    if not _tells(row, model_sha256):
        return None
    stored = audits.tokens(db, entry.seq)
    if not stored or not stored[0]:
        return None
    question = _question(row, stored[0], reader)
    answers = tuple(
        _answered(row, number, choice.completion_tokens, choice.stop_type)
        for number, choice in enumerate(row.choices)
        if choice.completion_tokens > 0 and choice.outcome in _PLAIN
    )
    return Past(question, answers) if answers else None


def _tells(row: RequestRow, model_sha256: str) -> bool:
    """Whether the row is about a free answer of this model. Our own generated ones are in the
    answers' file already; an audit's replay is forced."""
    return (
        row.model_sha256 == model_sha256
        and row.outcome in _PLAIN
        and row.scenario != SCENARIO
        and "/audit/" not in row.route
        and "grammar_sha256" not in row.sampling
        and not row.sampling.get("ignore_eos")
        and not row.sampling.get("budget")
    )


def _question(row: RequestRow, ids: Sequence[int], reader: Reader) -> Question:
    chat = "chat" in row.route
    return Question(
        turns=reader.turns(ids),
        prompt=tuple(ids),
        route="chat" if chat else "completion",
        max_tokens=row.max_tokens,
        temperature=_number(row, "temperature", 0.8),
        top_p=_number(row, "top_p", 0.95),
    )


def _answered(row: RequestRow, number: int, tokens: int, stop: str) -> Answered:
    return Answered(
        id=f"ledger-{row.number}",
        sample=number,
        temperature=_number(row, "temperature", 0.8),
        top_p=_number(row, "top_p", 0.95),
        max_tokens=row.max_tokens,
        seed=0,
        finish_reason="stop" if stop == "eos" else "cut",
        prompt_tokens=row.prompt_tokens,
        completion_tokens=tokens,
    )


def _number(row: RequestRow, name: str, default: float) -> float:
    found = row.sampling.get(name, default)
    return float(found) if isinstance(found, int | float) else default
