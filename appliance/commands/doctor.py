"""`steelyard doctor`: what is not well with this box, and what to do."""

import json
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.exits import FAILED
from appliance.commands.looking import ground_given, ground_options
from appliance.commands.progress import Working
from appliance.commands.terminal import one_line

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
@ground_options
def doctor_command(
    as_json: bool,
    only: str | None,
    quiet: bool,
    file: Path | None,
    url: str | None,
    key_file: Path | None,
    cacert: str | None,
) -> int:
    """Look at everything the box stands on, and say what to do. It changes nothing, and works
    while the box runs and while it does not. Exit code: 1 if something failed, else 0.

    Areas: config, box, cpu, model, engine, gpu, onnx, memory, disk, clock, board, tls, keys,
    ledger, port, permissions, unit.
    """
    from appliance.doctor.report import examine

    areas = _chosen(only)
    found = ground_given(file, url, key_file, cacert)
    with Working(quiet=as_json) as working:
        report = examine(found, areas, working.tell)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print(report, quiet=quiet)
    return 0 if report.well else FAILED


def _chosen(only: str | None) -> "Sequence[Area]":
    from appliance.alike import alike
    from appliance.doctor.report import AREAS

    if only is None:
        return AREAS
    known = {area.name: area for area in AREAS}
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known:
            close = alike(name, known)
            hint = f"did you mean {close}?" if close else f"known are {', '.join(known)}"
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
    lines = textwrap.wrap(
        one_line(finding.found, " "), width - _COLUMN, break_on_hyphens=False
    ) or [""]
    rest = [" " * _COLUMN + line for line in lines[1:]]
    if finding.do:
        rest += textwrap.wrap(
            f"-> {one_line(finding.do, ' ')}",
            width,
            initial_indent=" " * _COLUMN,
            subsequent_indent=" " * (_COLUMN + 3),
            break_on_hyphens=False,
        )
    return "\n".join((f"{mark} {finding.id:<{_COLUMN - 6}} {lines[0]}", *rest))
