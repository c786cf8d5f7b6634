"""A study's directory: answers.jsonl, report.json, table.txt, and the pictures."""

from pathlib import Path
from typing import Any

import msgspec

from appliance import __version__
from appliance.study import bytesize, drift, grid, limits, plots, structure, tables
from appliance.study.errors import StudyError

Report = grid.Report | structure.Report | limits.Report | drift.Report | bytesize.Report


def publish(report: Report, folder: Path) -> str:
    """Writes everything but the answers; returns the table. Raises StudyError."""
    name, table, figure = _shown(report)
    body = {"experiment": name, "steelyard": __version__, **_told(report)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(body), indent=1)
        (folder / "report.json").write_bytes(text + b"\n")
        (folder / "table.txt").write_text(table + "\n", "utf-8")
    except OSError as error:
        raise StudyError(f"{folder} cannot be written: {error.strerror or error}") from None
    plots.save(figure, folder / name)
    return table


def _told(report: Report) -> dict[str, Any]:
    """All fields, and of limits what follows from them."""
    body: dict[str, Any] = msgspec.to_builtins(report)
    if isinstance(report, limits.Report):
        body["exact"] = report.exact
        for told, outcome in zip(body["outcomes"], report.outcomes, strict=True):
            told |= {"bias": outcome.bias, "exact": outcome.exact}
    return body


def _shown(report: Report) -> tuple[str, str, Any]:
    match report:
        case grid.Report():
            return "grid", tables.of_grid(report), plots.of_grid(report)
        case structure.Report():
            return "prompts", tables.of_structure(report), plots.of_structure(report)
        case limits.Report():
            return "limits", tables.of_limits(report), plots.of_limits(report)
        case drift.Report():
            return "tokens", tables.of_drift(report), plots.of_drift(report)
        case bytesize.Report():
            return "bytes", tables.of_bytes(report), plots.of_bytes(report)
