"""The account of the box: an append-only, hash-chained record in SQLite."""
