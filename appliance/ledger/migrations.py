"""The ledger's schema, as numbered migrations: one is never edited once released, only followed.

`entries` is the ledger. Every other table is a projection of it, or what is stored beside it;
`audit verify` derives usage_daily, keys and tenants again. An entry's members are columns that
SQLite computes from `body` when asked, so an index on one is the only second copy of it.
"""

import functools

from sqlite_utils import Database, Migrations

from appliance.ledger.verify import FORMAT, USAGE_KEY, USAGE_SUMS

MIGRATIONS = Migrations("steelyard.ledger")

_MEMBERS = {
    "number": "INTEGER",
    "id": "TEXT",
    "trace_id": "TEXT",
    "request_id": "TEXT",
    "key_id": "TEXT",
    "tenant": "TEXT",
    "scenario": "TEXT",
    "model": "TEXT",
    "route": "TEXT",
    "outcome": "TEXT",
    "code": "TEXT",
    "wall_ns": "INTEGER",
    "action": "TEXT",
}

REQUEST_INDEXES = {
    name: f"requests_by_{name}"
    for name in ("id", "trace_id", "request_id", "key_id", "tenant", "scenario", "outcome")
}
"""Each holds (member, seq) of the final rows alone: newest first is its end."""


def migrate(db: Database) -> None:
    """Applies what is missing. Inside the caller's transaction, if one is open."""
    MIGRATIONS.apply(db)


@functools.cache
def migration_names() -> frozenset[str]:
    """All that this version knows."""
    with Database(memory=True, execute_plugins=False) as empty:
        return frozenset(migration.name for migration in MIGRATIONS.pending(empty))


@MIGRATIONS()
def m001_entries(db: Database) -> None:
    members = ", ".join(
        f"{name} {kind} AS (json_extract(body, '$.{name}')) VIRTUAL"
        for name, kind in _MEMBERS.items()
    )
    db.execute(
        "CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL,"
        f" hash BLOB NOT NULL, {members}) STRICT"
    )


@MIGRATIONS()
def m002_entry_indexes(db: Database) -> None:
    """At most one final row and one admission per request number: the database sees to it."""
    for kind in ("request", "admitted"):
        db.execute(f"CREATE UNIQUE INDEX {kind}_number ON entries (number) WHERE kind = '{kind}'")
    db.execute("CREATE INDEX requests_by_seq ON entries (seq) WHERE kind = 'request'")
    for name, index in REQUEST_INDEXES.items():
        db.execute(f"CREATE INDEX {index} ON entries ({name}, seq) WHERE kind = 'request'")
    db.execute("CREATE INDEX actions_by_seq ON entries (seq) WHERE kind = 'action'")
    db.execute("CREATE INDEX actions_by_action ON entries (action, seq) WHERE kind = 'action'")
    db.execute(
        "CREATE INDEX audits_by_number ON entries (number, seq)"
        " WHERE kind IN ('conflict', 'archived', 'replay')"
    )


@MIGRATIONS()
def m003_payloads(db: Database) -> None:
    db.execute(
        "CREATE TABLE payloads (seq INTEGER PRIMARY KEY REFERENCES entries(seq) ON DELETE CASCADE,"
        " tokens BLOB, prompt TEXT, answers TEXT, report BLOB) STRICT"
    )


@MIGRATIONS()
def m003_pending(db: Database) -> None:
    """The prompts of requests in flight: what a crash would leave open."""
    db.execute("CREATE TABLE pending (number INTEGER PRIMARY KEY, prompt BLOB NOT NULL) STRICT")


@MIGRATIONS()
def m004_seals(db: Database) -> None:
    db.execute(
        "CREATE TABLE seals (segment INTEGER PRIMARY KEY, body TEXT NOT NULL,"
        " hash BLOB NOT NULL, signature BLOB, signer TEXT) STRICT"
    )


@MIGRATIONS()
def m005_usage_daily(db: Database) -> None:
    names = ", ".join(f"{name} TEXT NOT NULL" for name in USAGE_KEY[1:])
    sums = ", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in USAGE_SUMS)
    db.execute(
        f"CREATE TABLE usage_daily (day INTEGER NOT NULL, {names}, {sums},"
        f" PRIMARY KEY ({', '.join(USAGE_KEY)})) STRICT, WITHOUT ROWID"
    )
    db.execute("CREATE INDEX usage_by_key ON usage_daily (key_id, day)")
    db.execute("CREATE INDEX usage_by_tenant ON usage_daily (tenant, day)")


@MIGRATIONS()
def m006_keys(db: Database) -> None:
    db.execute(
        "CREATE TABLE keys (id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL UNIQUE,"
        " body TEXT NOT NULL) STRICT"
    )
    db.execute("CREATE TABLE tenants (name TEXT PRIMARY KEY NOT NULL, body TEXT NOT NULL) STRICT")


@MIGRATIONS()
def m007_meta(db: Database) -> None:
    db.execute("CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value ANY) STRICT")
    for name, value in (("format", FORMAT), ("keys_version", 0)):
        db.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))


@MIGRATIONS()
def m008_request_hours(db: Database) -> None:
    """Between which entries the requests of an hour (by their `wall_ns`, since 1970) lie."""
    db.execute(
        "CREATE TABLE request_hours (hour INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL,"
        " last_seq INTEGER NOT NULL) STRICT"
    )


@MIGRATIONS()
def m009_corrections(db: Database) -> None:
    """What the control loop corrected, and from what; beside the chain, and of no weight for it."""
    db.execute(
        "CREATE TABLE corrections (seq INTEGER PRIMARY KEY,"
        " wall_ns INTEGER NOT NULL, channel TEXT NOT NULL, body TEXT NOT NULL) STRICT"
    )
