"""The ended requests that have been read from the box, page by page. No drawing."""

from typing import Any
from urllib.parse import quote

import msgspec

from tui.screen import Query
from tui.screens.requests_rows import Ended

PAGE = 200
EVERY_S = 5.0
NEWEST = Query(f"/admin/history?limit={PAGE}", EVERY_S)


def older(cursor: int) -> Query:
    return Query(f"/admin/history?limit={PAGE}&cursor={cursor}", 0)


def named(name: str) -> Query:
    """A request by id, trace id or X-Request-Id."""
    return Query(f"/admin/requests/{quote(name, safe='', errors='replace')}", 0)


class Past:
    """What has been read so far, newest first."""

    def __init__(self) -> None:
        self.rows: tuple[Ended, ...] = ()
        self.read = False
        self.error = ""
        self.next: int | None = None
        """Where the ledger goes on behind the oldest row; None: nothing is there."""
        self.asked: Query | None = None
        """An older page, or a name, that is being read."""

    def ask_older(self) -> None:
        if self.next is not None and self.asked is None:
            self.asked = older(self.next)

    def ask_named(self, name: str) -> None:
        self.asked = named(name)

    @property
    def queries(self) -> tuple[Query, ...]:
        return (NEWEST,) if self.asked is None else (NEWEST, self.asked)

    def takes(self, query: Query) -> bool:
        return query == NEWEST or query == self.asked

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        """An answer to one of `queries`."""
        was_asked = query == self.asked
        self.asked = None if was_asked else self.asked
        if error is not None:
            self.error = error
            return
        self.error = ""
        if "entries" in data:
            self._merge(_rows(data["entries"]))
        elif was_asked:
            self._merge(_rows(data["requests"]))
            self.next = data["next"]
        else:
            self._newest(_rows(data["requests"]), data["next"])

    def _newest(self, rows: tuple[Ended, ...], then: int | None) -> None:
        """More may have ended since than one page holds: then what lies behind is read anew."""
        newest = self.rows[0].seq if self.rows else 0
        gap = bool(rows) and then is not None and rows[-1].seq > newest
        if gap or not self.read:
            self.rows, self.next = rows, then
        else:
            self._merge(rows)
        self.read = True

    def _merge(self, rows: tuple[Ended, ...]) -> None:
        known = {row.seq for row in self.rows}
        fresh = [row for row in rows if row.seq not in known]
        if fresh:
            self.rows = tuple(sorted((*self.rows, *fresh), key=lambda row: -row.seq))


def _rows(data: Any) -> tuple[Ended, ...]:
    return msgspec.convert(data, tuple[Ended, ...])
