"""How long the answers in the ledger became: what a forecaster remembers them by. Reads only."""

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from sqlite_utils import Database

from appliance.ledger.database import connect, explained
from appliance.ledger.errors import LedgerError
from appliance.ledger.verify import unpack_tokens

log = logging.getLogger(__name__)

_AT_A_TIME = 16

REPLAYED = "/audit/"
"""In the route of a replay: its tokens were given, so its length says nothing."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One answer."""

    prompt: tuple[int, ...]
    length: int
    """Tokens generated, the end-of-generation token included."""
    censored: bool
    """The model would have gone on: its length is at least this, not this."""


@dataclass(frozen=True, slots=True)
class Past:
    """One final row: its answers, and the device time that they took."""

    seq: int
    answers: tuple[Ended, ...]
    prefill_ns: int
    prefill_tokens: int
    decode_ns: int
    completion_tokens: int


class _Choice(msgspec.Struct, frozen=True):
    stop_type: str
    completion_tokens: int


class _Row(msgspec.Struct, frozen=True):
    """The members that count here."""

    route: str = ""
    model_sha256: str = ""
    prefill_ns: int = 0
    prefill_tokens: int = 0
    decode_ns: int = 0
    completion_tokens: int = 0
    exact: bool = True
    recovered: bool = False
    sampling: Mapping[str, Any] = {}
    choices: tuple[_Choice, ...] = ()


_decode = msgspec.json.Decoder(_Row).decode


def before_newest(db: Database, rows: int) -> int:
    """The `seq` behind which the newest `rows` final rows lie."""
    found = db.conn.execute(
        "SELECT seq FROM entries INDEXED BY requests_by_seq WHERE kind = 'request'"
        " ORDER BY seq DESC LIMIT 1 OFFSET ?",
        (rows,),
    ).fetchone()
    return int(found[0]) if found is not None else 0


def past(db: Database, model_sha256: str, after: int, limit: int) -> tuple[tuple[Past, ...], int]:
    """The next `limit` final rows behind `after`, oldest first, as far as they are of this model;
    and where to go on (0: that was all)."""
    rows = db.conn.execute(
        "SELECT e.seq, e.body, p.tokens FROM entries e INDEXED BY requests_by_seq"
        " LEFT JOIN payloads p ON p.seq = e.seq"
        " WHERE e.kind = 'request' AND e.seq > ? ORDER BY e.seq LIMIT ?",
        (after, limit),
    ).fetchall()
    found = tuple(_past(seq, body, tokens, model_sha256) for seq, body, tokens in rows)
    return tuple(one for one in found if one is not None), rows[-1][0] if len(rows) == limit else 0


def _past(seq: int, body: str, tokens: bytes | None, model_sha256: str) -> Past | None:
    row = _decode(body)
    if row.model_sha256 != model_sha256 or REPLAYED in row.route or not row.exact:
        return None
    teaches = tokens and not row.recovered and _ended_freely(row.sampling)
    prompt = tuple(unpack_tokens(tokens)[0]) if tokens and teaches else ()
    return Past(
        seq=seq,
        answers=tuple(_answers(row.choices, prompt)) if prompt else (),
        prefill_ns=row.prefill_ns,
        prefill_tokens=row.prefill_tokens,
        decode_ns=row.decode_ns,
        completion_tokens=row.completion_tokens,
    )


def _answers(choices: Sequence[_Choice], prompt: tuple[int, ...]) -> Iterator[Ended]:
    """Those that came to something."""
    for choice in choices:
        if choice.completion_tokens:
            yield Ended(prompt, choice.completion_tokens, choice.stop_type != "eos")


def read_past(path: Path, model_sha256: str, most: int) -> Iterator[Past]:
    """The newest `most` final rows, oldest first, as far as they are of this model. Reads a few
    at a time, and ends early where the ledger cannot be read: memory is not worth a start."""
    try:
        with closing(connect(path, read_only=True)) as db:
            after = before_newest(db, most)
            while True:
                with explained(path):
                    found, after = past(db, model_sha256, after, _AT_A_TIME)
                yield from found
                if not after:
                    return
    except (LedgerError, sqlite3.Error, ValueError, msgspec.MsgspecError) as error:
        log.warning("the forecaster remembers nothing more of the ledger: %s", error)


def _ended_freely(sampling: Mapping[str, Any]) -> bool:
    """Whether the answer's length was the model's own choice."""
    return not sampling.get("ignore_eos") and not sampling.get("budget")
