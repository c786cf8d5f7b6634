"""The end of a long ledger, verified alone: the last rows follow from each other up to the head,
and the seals among them say what the rows say."""

import json
import sqlite3

from appliance.ledger.verify.canon import Standing, row_hash
from appliance.ledger.verify.projections import head_of, read_meta
from appliance.ledger.verify.seals import Seals, check_signatures, read_seals
from appliance.ledger.verify.verdict import Verdict


def chain_end(db: sqlite3.Connection, rows: int, verdict: Verdict) -> None:
    """Notes faults in `verdict`. `rows`: fewer than there are, as the one before them is what the
    first follows from. Raises sqlite3.Error."""
    seals = read_seals(db, verdict)
    head = head_of(read_meta(db))
    last: int = db.execute("SELECT max(seq) FROM entries").fetchone()[0]
    if head is None or head[0] != last:
        named = "nothing" if head is None else f"row {head[0]}"
        verdict.fault("head", f"meta.head names {named} as the last, and it is row {last}")
    before = last - rows
    _rows(db, before, seals, verdict)
    if head is not None and verdict.head != head[1]:
        verdict.fault("head", "the last row is not the one that was written last", seq=last)
    signed = [seal for seal in seals.by_segment.values() if seal.signature is not None]
    check_signatures(signed[-1:], verdict, (), _signers(db))


def _rows(db: sqlite3.Connection, before: int, seals: Seals, verdict: Verdict) -> None:
    due, prev = before, b""
    text, db.text_factory = db.text_factory, bytes
    found = db.execute(
        "SELECT seq, kind, body, hash FROM entries WHERE seq >= ? ORDER BY seq", (before,)
    )
    for seq, kind, body, stored in found:
        if seq != due:
            verdict.fault("missing", "removed", seq=due, last_seq=seq - 1)
        elif prev and row_hash(prev, seq, kind, body) != stored:
            verdict.fault("chain", "it does not follow from the row before it", seq=seq)
        seal = seals.by_last_seq.get(seq)
        if seal is not None and seal.body["last_hash"] != stored.hex():
            verdict.fault("seal", "it names another row as its last", segment=seal.segment)
        due, prev = seq + 1, stored
        verdict.rows += 1
    db.text_factory = text
    verdict.head = prev.hex()


def _signers(db: sqlite3.Connection) -> dict[str, str]:
    """Public keys by the names that the ledger's own entries give them."""
    standing = Standing()
    for (body,) in db.execute("SELECT body FROM entries WHERE kind = 'action' ORDER BY seq"):
        row = json.loads(body)
        if row["action"] in ("seal.key", "retention.segments"):
            standing.apply(row["action"], row["target"], row["detail"])
    return standing.signers
