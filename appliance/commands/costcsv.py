"""The cost report as CSV, for spreadsheets and programs."""

import csv
import io

from appliance.accounts.costreport import Line, Report
from appliance.commands.costtable import NOBODY, fixed_point, stage_costs


def as_csv(report: Report) -> str:
    """A line per group, amounts exact to nine decimals. The sums are left to the reader."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [name for by in report.by for name in ((by, "key_name") if by == "key" else (by,))]
    writer.writerow([*names, *_CSV, "currency"])
    for row in report.rows:
        writer.writerow(
            [*(inert(row.group[name]) for name in names), *_figures(row), report.currency]
        )
    if report.unallocated:
        nobody = [NOBODY] + [""] * (len(names) - 1) if names else []
        blank = [""] * (len(_CSV) - 2)
        amount = fixed_point(report.unallocated, 9)
        writer.writerow([*nobody, *blank, amount, amount, report.currency])
    return out.getvalue()


_CSV = (
    "requests", "refused", "prompt_tokens", "cached_tokens", "prefill_tokens", "completion_tokens",
    "device_ns", "energy_uj", "prefill", "decode", "cached", "idle", "standard", "actual",
    "variance",
)  # fmt: skip


def _figures(row: Line) -> list[str]:
    counts = (
        row.requests, row.refused, row.prompt_tokens, row.cached_tokens, row.prefill_tokens,
        row.completion_tokens, row.device_ns,
    )  # fmt: skip
    energy = "" if row.energy_uj is None else str(row.energy_uj)
    amounts = (*stage_costs(row), row.standard.total, row.actual, row.variance)
    return [*map(str, counts), energy, *(fixed_point(amount, 9) for amount in amounts)]


def inert(text: str) -> str:
    """A name that a spreadsheet would take for a formula gets an apostrophe before it."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
