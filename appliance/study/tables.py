"""What a study found, as text for a terminal of 100 columns."""

import unicodedata
from collections.abc import Sequence

from appliance.study import bytesize, drift, grid, limits, structure
from appliance.study.survival import Figures
from appliance.study.variance import Effect

Row = Sequence[str]


def of_grid(report: grid.Report) -> str:
    head = ["T", "top_p", "answers", "cut", "mean", "95 % interval", "sd", "within",
            "ended only", "KM median", "KM mean", "whole"]  # fmt: skip
    rows = [
        [
            f"{cell.temperature:g}",
            "any" if cell.top_p is None else f"{cell.top_p:g}",
            *_counts(cell.lengths),
            f"{cell.lengths.mean:.1f}",
            f"{cell.mean_low:.0f} - {cell.mean_high:.0f}",
            f"{cell.lengths.deviation:.1f}",
            _number(cell.within),
            _number(cell.lengths.ended_mean),
            _median(cell.lengths, report.settings.max_tokens),
            f"{cell.lengths.km_mean:.1f}",
            _number(cell.lengths.whole_mean),
        ]
        for cell in report.cells
    ]
    return _page(
        f"Length of answers by temperature and top_p: {report.model}, {report.prompts} prompts",
        head,
        rows,
        "Tokens, the end token included. mean and sd count a cut answer as its limit of "
        f"{report.settings.max_tokens};",
        "`ended only` leaves it out, and is too short. KM: Kaplan-Meier, which does neither; its "
        "mean is up to the",
        "limit. whole: the mean if the tail were exponential, - where more than half were cut. "
        "within: sd",
        "between answers to one prompt.",
        *_left_out(report.left_out),
    )


def of_structure(report: structure.Report) -> str:
    head = ["perturbation", "answers", "cut", "mean", "sd", "KM median", "x plain",
            "95 % interval"]  # fmt: skip
    rows = [
        [
            row.name,
            *_counts(row.lengths),
            f"{row.lengths.mean:.1f}",
            f"{row.lengths.deviation:.1f}",
            _median(row.lengths, report.settings.max_tokens),
            f"{row.effect.ratio:.2f}",
            "" if row.effect.low == row.effect.high else _interval(row.effect),
        ]
        for row in report.rows
    ]
    parts = report.components
    shares = [
        ("between prompts", parts.prompts),
        ("between perturbations", parts.perturbations),
        ("prompt x perturbation", parts.interaction),
        ("between samples of one text", parts.samples),
    ]
    below = [
        f"{name:<28} {100 * parts.share(part):5.1f} %   variance of log length {part:.3f}"
        for name, part in shares
    ]
    return _page(
        f"Length of answers by wording: {report.model}, {report.prompts} prompts, "
        f"T {report.settings.temperature:g}, top_p {report.settings.top_p:g}",
        head,
        rows,
        "x plain: ratio of geometric means to the plain question, prompt by prompt.",
        *_left_out(report.left_out),
        "",
        "Where the spread comes from",
        *below,
        *_cut_note(report.cut),
    )


def of_limits(report: limits.Report) -> str:
    kinds = dict.fromkeys(outcome.kind for outcome in report.outcomes)
    head = ["checked", "checks", "exact", "bias 0", "smallest", "largest", "wrong reason",
            "other text"]  # fmt: skip
    rows = [_limits_row(report, kind) for kind in kinds]
    total = len(report.outcomes)
    exact = sum(outcome.exact for outcome in report.outcomes)
    verdict = (
        f"All {total} checks are exact: bias 0 tokens, no overshoot."
        if report.exact
        else f"{total - exact} of {total} checks are NOT exact: report.json names them."
    )
    return _page(
        f"Tokens delivered against tokens asked for: {report.model}, {report.prompts} prompts",
        head,
        rows,
        "L: the natural length, end token included (here "
        f"{min(report.natural)} to {max(report.natural)}); stop n: a stop string of n characters.",
        *_left_out(report.left_out),
        "",
        verdict,
    )


def _limits_row(report: limits.Report, kind: str) -> Row:
    found = [outcome for outcome in report.outcomes if outcome.kind == kind]
    biases = report.biases(kind)
    return [
        kind,
        str(len(found)),
        str(sum(outcome.exact for outcome in found)),
        str(biases[0]),
        f"{min(biases):+d}" if min(biases) else "0",
        f"{max(biases):+d}" if max(biases) else "0",
        str(sum(not outcome.right_reason for outcome in found)),
        str(sum(not outcome.right_text for outcome in found)),
    ]


def of_drift(report: drift.Report) -> str:
    head = ["text", "lines", "A", "B", "B/A", "p10", "p50", "p90", "max", "b/t A", "b/t B",
            "t/w A", "t/w B", f"{drift.BUDGET} A ="]  # fmt: skip
    rows = [
        [
            group.name,
            str(group.lines),
            str(group.a.tokens),
            str(group.b.tokens),
            f"{group.ratio:.2f}",
            *(f"{q:.2f}" for q in group.quantiles),
            f"{group.worst:.2f}",
            f"{1 / group.a.per_byte:.2f}",
            f"{1 / group.b.per_byte:.2f}",
            f"{group.a.per_word:.2f}",
            f"{group.b.per_word:.2f}",
            f"{group.budget} B",
        ]
        for group in report.groups
    ]
    lossy = [
        f"{side} does not give these back byte by byte: {', '.join(names)}."
        for side, names in (
            ("A", [group.name for group in report.groups if not group.a.lossless]),
            ("B", [group.name for group in report.groups if not group.b.lossless]),
        )
        if names
    ]
    return _page(
        f"Tokens of the same text\nA {report.a.name} ({report.a.vocabulary} tokens)\n"
        f"B {report.b.name} ({report.b.vocabulary} tokens)",
        head,
        rows,
        "A, B: tokens. p10 … max: B/A of single lines. b/t: bytes per token. t/w: tokens per word, "
        "or per",
        "Chinese or Japanese character. Last column: the limit under B that lets through 9 of 10 "
        "lines which",
        f"{drift.BUDGET} tokens of A did.",
        *lossy,
    )


def of_bytes(report: bytesize.Report) -> str:
    head = ["text", "tokens", "predicted", "seen", "z", "entropy", "ends predicted", "ends seen"]
    rows = [
        [
            line.group,
            str(line.tokens),
            f"{line.predicted:.3f}",
            f"{line.seen:.3f}",
            f"{line.z:+.2f}",
            f"{line.entropy:.2f}",
            f"{line.ends_predicted:.1f}",
            str(line.ends_seen),
        ]
        for line in report.lines
    ]
    windows = _table(
        ["k tokens", "windows", "seen", "row: mean", "error", "sd", "in 90 %", "average: mean",
         "error", "sd", "in 90 %"],
        [
            [str(one.tokens), str(one.windows), f"{one.seen:.1f}", *_window(one), *_window(other)]
            for one, other in zip(report.from_row, report.from_average, strict=True)
        ],
    )  # fmt: skip
    return _page(
        f"Bytes of the next token, predicted from its row of logits: {report.model}",
        head,
        rows,
        "Bytes per token, at temperature 1. z within ±3: the prediction is right on average.",
        "",
        "Bytes of the next k tokens, taken as independent: from the row before them, and from the "
        "average row",
        "",
        *windows,
        "Independent they would be if `error` were `sd` and 90 % lay in the interval.",
    )


def _window(window: bytesize.Window) -> Row:
    if not window.windows:
        return ["-"] * 4
    return [
        f"{window.predicted:.1f}",
        f"{window.error:.1f}",
        f"{window.deviation:.1f}",
        f"{100 * window.covered:.0f} %",
    ]


def _counts(lengths: Figures) -> Row:
    return [str(lengths.answers), f"{100 * lengths.cut / lengths.answers:.0f} %"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _median(lengths: Figures, limit: int) -> str:
    return f"> {limit}" if lengths.km_median is None else f"{lengths.km_median:.0f}"


def _interval(effect: Effect) -> str:
    return f"{effect.low:.2f} - {effect.high:.2f}"


def _left_out(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    some = ", ".join(names[:5]) + (" …" if names[5:] else "")
    return [f"Left out, as the box refused them: {len(names)} prompts ({some})."]


def _cut_note(cut: float) -> list[str]:
    if cut < 0.05:
        return []
    share = f"{100 * cut:.0f} %"
    return [f"{share} of the answers were cut off and count as their limit: shares are rough."]


def _page(title: str, head: Row, rows: Sequence[Row], *below: str) -> str:
    return "\n".join([title, "", *_table(head, rows), *below])


def _table(head: Row, rows: Sequence[Row]) -> list[str]:
    """The first column to the left, numbers to the right."""
    widths = [max(map(_cells, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(_cell(i, row[i], widths[i]) for i in range(len(row))) for row in rows]
    first = "  ".join(_cell(i, head[i], widths[i]) for i in range(len(head)))
    rule = "-" * _cells(first)
    return [first, rule, *lines, rule]


def _cell(column: int, text: str, width: int) -> str:
    gap = " " * (width - _cells(text))
    return text + gap if column == 0 else gap + text


def _cells(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)
