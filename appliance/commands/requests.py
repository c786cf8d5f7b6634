"""`steelyard requests`: what the box was asked, from the ledger; and the end of what still runs."""

import json
import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import NotDone
from appliance.commands.reaching import place_options, reach

if TYPE_CHECKING:
    from sqlite_utils import Database

    from appliance.ledger.queries import Entry
    from appliance.ledger.rows import RequestRow

_SEARCH_S = 30.0
_WIDTHS = (9, 12, 12, 8, 7, 7, 7, 7)


@click.group("requests")
def requests_group() -> None:
    """List and show requests of the past, cancel one that runs."""


@requests_group.command("list")
@click.option("--key", help="Of this key (its name or id).")
@click.option("--tenant", help="Of this tenant.")
@click.option("--scenario", help="With this metadata.scenario.")
@click.option("--outcome", help="stop, length, cancelled, deadline, refused, failed, interrupted.")
@click.option("--since", type=click.DateTime(), help="Not before this time (UTC).")
@click.option("--until", type=click.DateTime(), help="Before this time (UTC).")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@click.option("--before", "cursor", type=int, help="Go on before this row.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with everything.")
@config_option
def requests_list(
    key: str | None,
    tenant: str | None,
    scenario: str | None,
    outcome: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cursor: int | None,
    as_json: bool,
    file: Path | None,
) -> None:
    """Show requests that have ended, newest first."""
    from appliance.ledger import queries

    with closing(_ledger(file)) as db:
        wanted = queries.RequestFilter(
            key_id=_key_id(db, key),
            tenant=tenant,
            scenario=scenario,
            outcome=outcome,
            since_wall_ns=_wall_ns(since),
            until_wall_ns=_wall_ns(until),
        )
        page = queries.requests(db, wanted, cursor, limit, search_s=_SEARCH_S)
    if as_json:
        for entry in page.entries:
            click.echo(json.dumps(_told(entry)))
        return
    _table(page.entries)
    if page.cursor is not None and page.entries:
        click.echo(f"More: --before {page.cursor}", err=True)


def _table(entries: "tuple[Entry[RequestRow], ...]") -> None:
    if not entries:
        click.echo("No request has ended that fits.", err=True)
        return
    _line("ROW", "ENDED", "KEY", "OUTCOME", "PROMPT", "CACHED", "GEN", "MS")
    for entry in entries:
        row = entry.row
        ended = datetime.fromtimestamp(row.wall_ns / 1e9, UTC)
        ms = (row.ended_ns - row.received_ns) / 1e6 if row.received_ns else 0.0
        _line(
            str(entry.seq),
            f"{ended:%m-%d %H:%M}",
            row.key_name or "-",
            row.outcome if row.count == 1 else f"{row.outcome[:5]}x{row.count}",
            str(row.prompt_tokens),
            str(row.cached_tokens),
            str(row.completion_tokens),
            f"{ms:.0f}",
        )
    click.echo(
        "`steelyard requests list --json` and `requests show ROW` tell everything.", err=True
    )


def _line(*cells: str) -> None:
    """80 columns; numbers to the right."""
    left = [cell[:width].ljust(width) for cell, width in zip(cells[:4], _WIDTHS[:4], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[4:], _WIDTHS[4:], strict=True)]
    click.echo(" ".join((*left, *right)))


@requests_group.command("show")
@click.argument("name", metavar="ROW_OR_ID")
@config_option
def requests_show(name: str, file: Path | None) -> None:
    """Show all that the ledger has of a request, by its row as `list` shows it, its id, trace id
    or X-Request-Id."""
    from appliance.ledger import queries

    with closing(_ledger(file)) as db:
        entries = queries.request_at(db, int(name)) if name.isdecimal() else ()
        entries = entries or queries.request(db, name)
    if not entries:
        raise NotDone(
            f"no request {name!r} has ended. `steelyard requests list` shows the newest; what "
            "still runs is in GET /admin/requests"
        )
    for entry in entries:
        click.echo(json.dumps(_told(entry), indent=1))


@requests_group.command("cancel")
@click.argument("name", metavar="ID")
@place_options
def requests_cancel(name: str, url: str | None, cacert: str | None, file: Path | None) -> None:
    """End a request that waits or runs. Takes the admin key from $STEELYARD_ADMIN_KEY."""
    key = os.environ.get("STEELYARD_ADMIN_KEY", "")
    if not key:
        raise NotDone("cancelling needs an admin key: export STEELYARD_ADMIN_KEY=sk-steelyard-...")
    from appliance.commands.asking import ask

    at = reach(url, cacert, file)
    ask(at, f"/admin/requests/{quote(name, safe='')}", None, key, "DELETE")
    click.echo(f"Cancelled {name}.", err=True)


def _ledger(file: Path | None) -> "Database":
    from appliance.accounts.keys import FILE_NAME
    from appliance.ledger.database import connect

    return connect(load_config(file).server.state_dir / FILE_NAME, read_only=True)


def _key_id(db: "Database", name: str | None) -> str | None:
    """The id of the key of that name, of a revoked one too; else the word as it stands."""
    if name is None:
        return None
    found = db.conn.execute("SELECT id FROM keys WHERE name = ?", (name,)).fetchone()
    return str(found[0]) if found is not None else name


def _wall_ns(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp()) * 1_000_000_000


def _told(entry: "Entry[RequestRow]") -> dict[str, Any]:
    import msgspec

    return {"seq": entry.seq, "hash": entry.hash, **msgspec.to_builtins(entry.row)}
