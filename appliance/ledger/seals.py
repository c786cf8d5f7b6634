"""Sealing: closing a run of entries with one hash, chained to the last seal and signed.

A segment ends with the last entry there is, so that the very next one can tell of its seal. It is
sealed only when every entry in it follows from the one before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from sqlite_utils import Database

from appliance.ledger.append import append
from appliance.ledger.errors import LedgerError
from appliance.ledger.keysign import Signer
from appliance.ledger.rows import Action, RequestRow, Seal
from appliance.ledger.verify import GENESIS, row_hash, seal_hash
from appliance.ledger.verify.seals import Sums

HOUR_NS = 3600 * 10**9


class SealBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a seal says; its JSON is hashed as it stands."""

    segment: int
    first_seq: int
    last_seq: int
    rows: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    first_wall_ns: int
    """The earliest and the latest time in it, whatever the clock did."""
    last_wall_ns: int
    last_hash: str
    """Of the last entry."""
    prev_seal: str
    sealed_wall_ns: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A seal as it is stored."""

    body: SealBody
    hash: bytes

    def __str__(self) -> str:
        body = self.body
        return (
            f"sealed entries {body.first_seq}-{body.last_seq} as segment {body.segment}, "
            f"seal {self.hash.hex()}"
        )


class _Figures(msgspec.Struct):
    """What a seal sums up of an entry."""

    wall_ns: int
    prompt_tokens: int = 0
    completion_tokens: int = 0


_figures = msgspec.json.Decoder(_Figures)
_body = msgspec.json.Decoder(SealBody)


def last_seal(db: Database) -> Sealed | None:
    """The newest seal."""
    newest = "SELECT body, hash FROM seals ORDER BY segment DESC LIMIT 1"
    found = db.conn.execute(newest).fetchone()
    return Sealed(_body.decode(found[0]), found[1]) if found is not None else None


def seal_when_due(
    db: Database, rows: int, hours: float, signer: Signer | None, wall_ns: int
) -> Sealed | None:
    """Seal if the open segment has so many rows, or is so old. Within the caller's transaction."""
    if not _due(db, rows, hours, wall_ns):
        return None
    return seal_now(db, signer, wall_ns)


def _due(db: Database, rows: int, hours: float, wall_ns: int) -> bool:
    before = last_seal(db)
    oldest = _oldest_unsealed(db, before)
    if oldest is None:
        return False
    head: int = db.conn.execute("SELECT max(seq) FROM entries").fetchone()[0]
    if head - _first_open(before) + 1 >= rows:
        return True
    return wall_ns - oldest >= hours * HOUR_NS


def _oldest_unsealed(db: Database, before: Sealed | None) -> int | None:
    """When the open segment began; None where it has nothing but the announcement of the last
    seal, which can wait for ever."""
    row = db.conn.execute(
        "SELECT wall_ns FROM entries WHERE seq >= ? AND kind != 'seal' ORDER BY seq LIMIT 1",
        (_first_open(before),),
    ).fetchone()
    return int(row[0]) if row is not None else None


def _first_open(before: Sealed | None) -> int:
    return before.body.last_seq + 1 if before is not None else 1


def seal_now(db: Database, signer: Signer | None, wall_ns: int) -> Sealed | None:
    """Seal all entries that are not sealed yet; None where there are none. Within the caller's
    transaction. Raises LedgerError where the chain does not hold."""
    before = last_seal(db)
    if _oldest_unsealed(db, before) is None:
        return None
    if signer is not None:
        _name_key(db, signer, wall_ns)
    body = _summed(db, before, wall_ns)
    text = msgspec.json.encode(body).decode()
    digest = seal_hash(text)
    signature = signer.sign(digest) if signer is not None else None
    db.conn.execute(
        "INSERT INTO seals (segment, body, hash, signature, signer) VALUES (?, ?, ?, ?, ?)",
        (body.segment, text, digest, signature, signer.id if signer is not None else None),
    )
    announced = Seal(
        wall_ns=wall_ns,
        segment=body.segment,
        seal=digest.hex(),
        signer=signer.id if signer is not None else "",
    )
    append(db, [(announced, None)])
    return Sealed(body, digest)


def _name_key(db: Database, signer: Signer, wall_ns: int) -> None:
    """Tell of a key in the chain before it signs for the first time."""
    known = db.conn.execute("SELECT 1 FROM seals WHERE signer = ? LIMIT 1", (signer.id,))
    if known.fetchone() is None:
        detail = {"public_key": signer.public_key.hex()}
        told = Action(wall_ns=wall_ns, action="seal.key", target=signer.id, detail=detail)
        append(db, [(told, None)])


def _summed(db: Database, before: Sealed | None, wall_ns: int) -> SealBody:
    sums, last_hash = Sums(), ""
    for seq, kind, body, digest in _chained(db, before):
        figures = _figures.decode(body)
        sums.add(seq, figures.wall_ns)
        if kind == RequestRow.KIND:
            sums.requests += 1
            sums.prompt_tokens += figures.prompt_tokens
            sums.completion_tokens += figures.completion_tokens
        last_hash = digest.hex()
    return SealBody(
        segment=before.body.segment + 1 if before is not None else 1,
        **vars(sums),
        last_hash=last_hash,
        prev_seal=before.hash.hex() if before is not None else GENESIS.hex(),
        sealed_wall_ns=wall_ns,
    )


def _chained(db: Database, before: Sealed | None) -> Iterator[tuple[int, str, str, bytes]]:
    """The entries after a seal, each proven to follow from the one before. Raises LedgerError."""
    due = _first_open(before)
    prev = bytes.fromhex(before.body.last_hash) if before is not None else GENESIS
    rows = db.conn.execute(
        "SELECT seq, kind, body, hash FROM entries WHERE seq >= ? ORDER BY seq", (due,)
    )
    for seq, kind, body, digest in rows:
        if seq != due or row_hash(prev, seq, kind, body) != digest:
            raise LedgerError(
                f"entry {due} does not follow from the one before it, so nothing after it is "
                "sealed: keep a copy of the ledger, run `steelyard audit verify` on it, and "
                "restore the newest backup that verifies"
            )
        yield seq, kind, body, digest
        due, prev = seq + 1, digest
