"""`steelyard forecast`: what an answer would cost, before it is asked for."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from appliance.commands.asking import ask
from appliance.commands.reaching import key_option, place_options, reach, read_key

_KEYS = ("STEELYARD_API_KEY", "STEELYARD_ADMIN_KEY")


@click.command("forecast")
@click.argument("text")
@click.option("--max-tokens", type=click.IntRange(1), help="Limit of the answer.")
@click.option("--system", help="System message in front of it.")
@click.option("--json", "as_json", is_flag=True, help="What the box answered, as it stands.")
@place_options
@key_option("File with the key. Default: $STEELYARD_API_KEY.")
def forecast_command(
    text: str,
    max_tokens: int | None,
    system: str | None,
    as_json: bool,
    url: str | None,
    cacert: str | None,
    file: Path | None,
    key_file: Path | None,
) -> None:
    """Tell how long the answer to TEXT would become, what it would cost and when it would be done.
    Nothing is generated. TEXT `-` is read from standard input."""
    said = sys.stdin.read() if text == "-" else text
    messages = [{"role": "system", "content": system}] if system else []
    body: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": said}]}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    key = read_key(key_file, *_KEYS)
    told = ask(reach(url, cacert, file), "/v1/forecast", body, key)
    click.echo(json.dumps(told) if as_json else table(told), nl=True)


def table(told: dict[str, Any]) -> str:
    """The forecast on a few lines, 80 columns."""
    tokens, cost = told["output_tokens"], told["cost"]
    rows = [
        ("prompt", f"{told['prompt_tokens']} tokens"),
        ("answer", f"{tokens['p50']} tokens, 8 of 10 from {tokens['p10']} to {tokens['p90']}"),
        ("", f"mean {tokens['mean']}, 99 of 100 within {tokens['p99']}"),
        ("cost", _cost(cost)),
        ("KV cells", f"{told['kv_tokens']} at the end, at p90"),
        ("queue", _queue(told["queue_position"])),
        ("done in", _time(told["eta_ms"])),
        (told["claim"], _share(told["confidence"])),
        ("told by", _teller(told["forecaster"])),
    ]
    return "\n".join(f"{name:<11}{value}" for name, value in rows)


def _cost(cost: dict[str, Any]) -> str:
    if cost["mid"] is None:
        return "not known yet: the box has generated nothing so far"
    if not cost["high"]:
        return "0: no prices are set (docs/cost.md)"
    low, mid, high = (f"{cost[name]:.3g}" for name in ("low", "mid", "high"))
    return f"{mid} {cost['currency']}, from {low} to {high}"


def _queue(position: int) -> str:
    return f"{position} before it" if position else "starts at once"


def _time(ms: int | None) -> str:
    if ms is None:
        return "not known yet: the box has generated nothing since its start"
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _share(share: float | None) -> str:
    return "not told" if share is None else f"{100 * share:.0f} %"


def _teller(forecaster: dict[str, Any]) -> str:
    if not forecaster["version"]:
        return "all requests alike; steelyard calibrate makes a forecaster"
    return f"{forecaster['version']}, {forecaster['state']}"
