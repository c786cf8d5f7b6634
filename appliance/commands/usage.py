"""`steelyard usage`: what was used, from the ledger."""

import csv
import io
import textwrap
import time
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import DAY, config_option, load_config

if TYPE_CHECKING:
    from appliance.accounts.usage import Figures, Line


@click.command("usage")
@click.option(
    "--by",
    default="key",
    show_default=True,
    help="What to group by, several with commas: key, tenant, scenario, model, day.",
)
@click.option("--from", "first", type=DAY, help="First day (UTC). Default: of the month.")
@click.option("--to", "last", type=DAY, help="Last day (UTC). Default: today.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line a group.")
@config_option
def usage_command(
    by: str,
    first: datetime | None,
    last: datetime | None,
    as_json: bool,
    as_csv: bool,
    file: Path | None,
) -> None:
    """Show requests, tokens and cost of a period. Works while the daemon is down, too."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    from appliance.accounts.keys import FILE_NAME
    from appliance.accounts.usage import report

    config, names = load_config(file), tuple(part.strip() for part in by.split(","))
    currency = config.cost.currency
    begin, end, lines, notes = report(
        config.server.state_dir / FILE_NAME,
        names,
        currency=currency,
        now_ns=time.time_ns(),
        first=first and first.date(),
        last=last and last.date(),
    )
    if as_json:
        click.echo(_json(names, begin, end, currency, notes, lines))
    elif as_csv:
        click.echo(_csv(names, currency, lines), nl=False)
    else:
        click.echo(_table(names, begin, end, currency, lines))
    for note in () if as_json else notes:
        click.echo(note if as_csv else "\n" + "\n".join(textwrap.wrap(note, 80)), err=as_csv)


def _table(
    by: Sequence[str], begin: date, end: date, currency: str, lines: "Sequence[Line]"
) -> str:
    from appliance.accounts.usage import Figures
    from appliance.commands.costtable import layout

    title = f"Usage from {begin} to {end} (UTC), by {', '.join(by)}"
    if not lines:
        return f"{title}\n\nNo requests."
    total = sum((line.figures for line in lines), Figures())
    head = ["/".join(by), "requests", "refused", "prompt", "completion", currency]
    rows = [[_label(line), *_cells(line.figures)] for line in lines]
    return layout(title, head, rows, _cells(total))


def _cells(figures: "Figures") -> list[str]:
    shown = figures.shown()
    names = ("requests", "refused", "prompt_tokens", "completion_tokens", "cost")
    return [str(shown[name]) for name in names]


def _label(line: "Line") -> str:
    """The group's name. It may come from a client, so nothing in it moves the cursor."""
    from appliance.commands.terminal import one_line

    values = [
        (line.key_name or value or "(no key)") if name == "key" else value or "(none)"
        for name, value in line.group.items()
    ]
    return " / ".join(map(one_line, values))


def _csv(by: Sequence[str], currency: str, lines: "Sequence[Line]") -> str:
    from appliance.accounts.usage import Figures
    from appliance.commands.costcsv import inert

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [name for part in by for name in ((part, "key_name") if part == "key" else (part,))]
    writer.writerow([*names, *Figures().shown(), "currency"])
    for line in lines:
        told = line.shown()
        group = [inert(str(told[name])) for name in names]
        writer.writerow([*group, *line.figures.shown().values(), currency])
    return out.getvalue()


def _json(
    by: Sequence[str],
    begin: date,
    end: date,
    currency: str,
    notes: Sequence[str],
    lines: "Sequence[Line]",
) -> str:
    import msgspec

    body = {
        "from": begin,
        "to": end,
        "by": by,
        "currency": currency,
        "notes": notes,
        "rows": [line.shown() for line in lines],
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
