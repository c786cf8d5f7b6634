"""`steelyard cost`: what requests cost, and why."""

import time
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import DAY, config_option, load_config

if TYPE_CHECKING:
    from appliance.accounts.costreport import Line, Report
    from appliance.config import Config


@click.group("cost")
def cost_group() -> None:
    """What requests cost, by the prices in the configuration."""


@cost_group.command("report")
@click.option(
    "--by",
    type=click.Choice(["key", "tenant", "scenario", "model", "day"]),
    multiple=True,
    default=["tenant"],
    show_default=True,
    help="What to group by; may be given several times.",
)
@click.option("--from", "first", type=DAY, help="First day (UTC). Default: of the month.")
@click.option("--to", "last", type=DAY, help="Last day (UTC). Default: today.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; money in 1e-9.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line a group.")
@config_option
def cost_report(
    by: tuple[str, ...],
    first: datetime | None,
    last: datetime | None,
    as_json: bool,
    as_csv: bool,
    file: Path | None,
) -> None:
    """Standard and actual cost of a period, and of the same tokens elsewhere."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    config = load_config(file)
    report = _report(config, by, first and first.date(), last and last.date())
    click.echo(_text(report, "json" if as_json else "csv" if as_csv else "table"), nl=False)
    for note in report.notes if as_csv else ():
        click.echo(note, err=True)


@cost_group.command("rates")
@config_option
def cost_rates(file: Path | None) -> None:
    """Show what an hour costs, and how each rate came about."""
    from appliance.commands.costrates import rates_text

    config = load_config(file)
    click.echo(rates_text(config.cost, _used(config)), nl=False)


def _report(
    config: "Config", by: tuple[str, ...], first: date | None = None, last: date | None = None
) -> "Report":
    from appliance.accounts.costreport import report
    from appliance.accounts.keys import FILE_NAME

    ledger = config.server.state_dir / FILE_NAME
    return report(ledger, config.cost, by, now_ns=time.time_ns(), first=first, last=last)


def _text(report: "Report", form: str) -> str:
    import msgspec

    from appliance.commands.costcsv import as_csv
    from appliance.commands.costtable import table

    if form == "json":
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
    return as_csv(report) if form == "csv" else table(report)


def _used(config: "Config") -> "Line | None":
    """This month's use; None while there is no ledger: the rates do not need one."""
    from appliance.ledger.errors import LedgerError

    try:
        return _report(config, ()).total
    except LedgerError:
        return None
