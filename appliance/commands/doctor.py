"""`steelyard doctor`: what is not well with this box, and what to do."""

import difflib
import json
import logging
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option
from appliance.commands.reaching import cacert_option, read_key, url_option
from appliance.commands.working import Working

if TYPE_CHECKING:
    from appliance.doctor.finding import Finding
    from appliance.doctor.report import Area, Report

_MARKS = {"ok": "ok  ", "note": "note", "warn": "WARN", "fail": "FAIL"}
_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}
_COLUMN = 25
"""Where the words begin: after the mark and the longest id."""


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with every finding.")
@click.option("--only", metavar="AREAS", help="Some areas, such as `disk,clock`. Default: all.")
@click.option("-q", "--quiet", is_flag=True, help="Leave out what is well.")
@config_option
@url_option
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with an admin key. Default: $STEELYARD_ADMIN_KEY.",
)
@cacert_option
def doctor_command(
    as_json: bool,
    only: str | None,
    quiet: bool,
    file: Path | None,
    url: str,
    key_file: Path | None,
    cacert: str | None,
) -> int:
    """Look at everything the box stands on, and say what to do. It changes nothing, and works
    while the box runs and while it does not. Exit code: 1 if something failed, else 0.

    Areas: config, box, cpu, model, engine, gpu, onnx, memory, disk, clock, board, tls, keys,
    ledger, port, permissions, unit.
    """
    from appliance.doctor.ground import ground
    from appliance.doctor.report import examine
    from appliance.ownership import keep_owner

    areas = _chosen(only)
    key = read_key(key_file, "STEELYARD_ADMIN_KEY")
    found = ground(file, url=given_url(url), key=key, cacert=cacert or "")
    logging.getLogger("appliance").addHandler(logging.NullHandler())  # findings say it better
    if found.usable:
        keep_owner(found.state_dir)
    with Working(quiet=as_json) as working:
        report = examine(found, areas, working.tell)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print(report, quiet=quiet)
    return 0 if report.well else 1


def given_url(url: str) -> str:
    """The address only where somebody said it: the box on this machine is found without."""
    source = click.get_current_context().get_parameter_source("url")
    default = click.core.ParameterSource.DEFAULT
    return "" if source is default else url


def _chosen(only: str | None) -> "Sequence[Area]":
    from appliance.doctor.report import AREAS

    if only is None:
        return AREAS
    known = {area.name: area for area in AREAS}
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise click.BadParameter(f"no area {name!r}; {hint}", param_hint="--only")
    if not names:
        raise click.BadParameter(
            f"names no area; known are {', '.join(known)}", param_hint="--only"
        )
    return [area for area in AREAS if area.name in names]


def _print(report: "Report", *, quiet: bool) -> None:
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    for finding in report.findings:
        if not (quiet and finding.level == "ok"):
            click.echo(_told(finding, width))
    count = report.count()
    words = [f"{count['fail']} failed", f"{count['warn']} to mend", f"{count['note']} to know"]
    click.echo(f"\n{count['ok']} well, {', '.join(words)}; {report.seconds:.1f} s")


def _told(finding: "Finding", width: int) -> str:
    mark = click.style(_MARKS[finding.level], fg=_COLOURS[finding.level])
    # Names that others gave must not steer the terminal.
    found = "".join(c if c.isprintable() else " " for c in finding.found)
    lines = textwrap.wrap(found, width - _COLUMN, break_on_hyphens=False) or [""]
    rest = [" " * _COLUMN + line for line in lines[1:]]
    if finding.do:
        advice = "".join(c if c.isprintable() else " " for c in finding.do)
        rest += textwrap.wrap(
            f"-> {advice}",
            width,
            initial_indent=" " * _COLUMN,
            subsequent_indent=" " * (_COLUMN + 3),
            break_on_hyphens=False,
        )
    return "\n".join((f"{mark} {finding.id:<{_COLUMN - 6}} {lines[0]}", *rest))
