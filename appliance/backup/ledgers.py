"""What a backup has to know of the ledger in it."""

from contextlib import closing
from pathlib import Path

from appliance.backup.errors import BackupError
from appliance.backup.facts import Tell
from appliance.backup.manifest import LedgerFacts
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.migrations import MIGRATIONS, migration_names
from appliance.ledger.verify import Verdict
from appliance.ledger.verify import verify as verify_chain
from appliance.ledger.verify.opening import Unreadable

_TOLD = 3


def facts_of(ledger: Path, verdict: Verdict) -> LedgerFacts:
    """Raises LedgerError."""
    with closing(connect(ledger, read_only=True, old=True)) as db:
        names = tuple(migration.name for migration in MIGRATIONS.applied(db))
    return LedgerFacts(names, verdict.last_seq, verdict.head)


def verdict_of(ledger: Path, tell: Tell, *, deep: bool) -> Verdict:
    """Of the whole chain; `deep`: of every token digest too. Raises LedgerError."""
    try:
        return verify_chain(ledger, lambda done, total: tell("verify", done, total), deep=deep)
    except Unreadable as error:
        raise LedgerError(str(error)) from None


def faults_of(verdict: Verdict) -> tuple[str, ...]:
    """The first few, as lines."""
    if verdict.ok:
        return ()
    told = [f"the ledger in it is not sound: {fault}" for fault in verdict.faults[:_TOLD]]
    more = len(verdict.faults) - len(told)
    return (*told, *([f"... and {more} faults more"] if more > 0 else []))


def refuse_newer(facts: LedgerFacts, version: str) -> None:
    """Raises BackupError for a ledger that this version does not know."""
    if unknown := sorted(set(facts.migrations) - migration_names()):
        raise BackupError(
            f"its ledger is of a newer Steelyard ({version}; this one does not know"
            f" {', '.join(unknown)[:200]}): install that version, or restore an older backup"
        )
