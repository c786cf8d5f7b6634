"""`python -m bench.results FILE.json`: what `bench.serve` wrote, as the table of RESULTS.md."""

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = ("tokens_per_s", "ttft_p50", "ttft_p99", "e2e_p50", "e2e_p99", "itl_p50", "itl_p99")


def main() -> int:
    for name in sys.argv[1:]:
        print(markdown(json.loads(Path(name).read_text(encoding="utf-8"))))
    return 0


def markdown(found: dict[str, Any]) -> str:
    """The circumstances in two lines, then a row per cell: median (lowest to highest)."""
    machine, options = found["machine"], found["options"]
    peer = found["servers"][0]["peer"]
    ours = found["servers"][0]["ours"]
    lines = [
        f"{found['at'][:10]}, {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, "
        f"Linux {machine['kernel']}, Python {machine['python']}; {found['model']}, "
        f"{options['threads']} threads, {options['rounds']} rounds.",
        f"Ours: {ours.get('version', '?')}. Peer: xllamacpp {peer.get('version', '?')}.",
        "",
        "| scenario | concurrency | tokens/s ours | peer | " + " | ".join(COLUMNS) + " | noise |",
        "|-|-:|-:|-:|" + "-:|" * (len(COLUMNS) + 1),
    ]
    return "\n".join([*lines, *map(_row, found["cells"]), ""])


def _row(cell: dict[str, Any]) -> str:
    ratios = cell["ratios"]
    noise = "?" if cell["noise"] is None else f"{cell['noise']:.0%}"
    figures = [_ratio(ratios[name]) if name in ratios else "" for name in COLUMNS]
    speeds = [f"{cell[side]['tokens_per_s']:.1f}" for side in ("ours", "peer")]
    values = [cell["scenario"], str(cell["concurrency"]), *speeds, *figures, noise]
    return "| " + " | ".join(values) + " |"


def _ratio(value: dict[str, Any]) -> str:
    return f"{value['median']:.2f} ({value['low']:.2f}-{value['high']:.2f})"


if __name__ == "__main__":
    sys.exit(main())
