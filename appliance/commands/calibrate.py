"""`steelyard calibrate`: teach the box how long its model's answers are."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from appliance.commands.calibratetext import line_of
from appliance.commands.calibrating import forecaster_commands
from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import INTERRUPTED, NotDone
from appliance.commands.progress import Line
from appliance.commands.reaching import key_option, read_key, url_option
from appliance.commands.targets import refuse_unwritable

if TYPE_CHECKING:
    from collections.abc import Callable

    from appliance.calibrate.job import Ended, Task
    from appliance.calibrate.status import Status, StatusFiles
    from appliance.config import Config

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("calibrate", invoke_without_command=True)
@config_option
@click.option("--prompts", type=_FILE, help="JSONL file of prompts. Default: the ledger.")
@click.option(
    "--answers", type=_FILE, multiple=True, help="JSONL file of answers that exist; repeatable."
)
@click.option("--no-generate", is_flag=True, help="Learn from the answers there are.")
@click.option("--samples", type=click.IntRange(1, 64), help="Answers to each prompt.")
@click.option("--max-tokens", type=click.IntRange(8, 32768), help="Limit of an answer.")
@click.option("--temperature", type=click.FloatRange(0, 5), help="Of generated answers.")
@click.option("--minutes", type=click.FloatRange(min=0.1), help="Generate no longer than this.")
@click.option(
    "--install",
    type=click.Choice(("if-better", "always", "never")),
    default="if-better",
    show_default=True,
    help="When to put the new forecaster into use.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file and install nothing.",
)
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here too."
)
@click.option("--embedder", help="How prompts become vectors: tokens-H-T, minilm-H-T or none.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@url_option
@key_option("File with a key for it. Default: $STEELYARD_API_KEY.")
@click.option("--cacert", type=_FILE, help="Certificate of the box's CA.")
@click.option("--min-new", type=click.IntRange(min=0), default=0, hidden=True)
@click.option("--by", default="", hidden=True)
@click.option("--quiet", is_flag=True, help="No progress, no table.")
@click.pass_context
def calibrate_group(context: click.Context, /, file: Path | None, **given: Any) -> int:
    """Make a forecaster for the model from prompts and its own answers to them, and put it into
    use if it is better. Runs beside the box and takes its idle time only."""
    if context.invoked_subcommand is not None:
        return 0
    # Two cores and many small products: threads only get into the way of those who serve.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    return _calibrate(load_config(file), given)


def _calibrate(config: "Config", given: dict[str, Any]) -> int:
    from appliance.calibrate.job import calibrate
    from appliance.calibrate.status import BusyError

    refuse_unwritable(given["output"], given["report"])
    task = _task(config, given)
    try:
        with Line(quiet=given["quiet"]) as line:
            ended = calibrate(task, _showing(line))
    except BusyError as error:
        raise NotDone(str(error)) from error
    except OSError as error:
        where = config.server.state_dir
        raise NotDone(
            f"{where} cannot be written: {error.strerror or error}. Make room there, check "
            "its owner, or name another one in server.state_dir"
        ) from error
    return _told(config, ended, given)


def _showing(line: Line) -> "Callable[[Status], None]":
    """Shows how it stands; the beginning of a phase at once."""
    phase = ""

    def show(status: "Status") -> None:
        nonlocal phase
        if status.state == "running":
            line.say(line_of(status), news=status.phase != phase)
            phase = status.phase

    return show


def _task(config: "Config", given: dict[str, Any]) -> "Task":
    from appliance.banner import base_url
    from appliance.calibrate.answers import Sampling
    from appliance.calibrate.fit import Order
    from appliance.calibrate.gather import Box, Sources
    from appliance.calibrate.job import Task
    from appliance.commands.chained import operator
    from appliance.config.secured import tls_on
    from appliance.doctor.place import Place, here

    forecast, server = config.forecast, config.server
    place = Place(given["url"]) if given["url"] else here(config)
    return Task(
        config=config,
        sources=Sources(
            prompts=given["prompts"],
            answers=given["answers"],
            generate=not given["no_generate"],
            sampling=Sampling(
                samples=given["samples"] or forecast.samples,
                temperature=_or(given["temperature"], forecast.temperature),
                top_p=forecast.top_p,
                max_tokens=given["max_tokens"] or forecast.max_tokens,
            ),
            share=forecast.idle_share,
            minutes=given["minutes"],
        ),
        box=Box(
            url=place.url or base_url(server.host, server.port, tls=tls_on(config)),
            key=read_key(given["key_file"], "STEELYARD_API_KEY", refusal=NotDone),
            cacert=str(given["cacert"] or place.cacert),
        ),
        install="never" if given["output"] else given["install"],
        output=given["output"],
        min_new=given["min_new"],
        by=given["by"] or operator(),
        order=Order(embedder=given["embedder"] or "", seed=given["seed"]),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _told(config: "Config", ended: "Ended", given: dict[str, Any]) -> int:
    """What came of it, and the exit status."""
    status = ended.status
    if status.state == "failed":
        raise NotDone(status.problem)
    if status.state == "stopped":
        click.echo("Stopped. The answers are kept: calibrate again, and it goes on.", err=True)
        return INTERRUPTED
    result = status.result
    assert result is not None, "it is done"
    if result.installed:
        from appliance.commands.chained import chain

        chain(config, "forecaster.install", result.version, {"why": result.why})
    if ended.made is not None:
        _show(ended, given)
    if not given["quiet"]:
        click.echo(f"{result.done}." if ended.made else f"{result.done}: {result.why}.")
    return 0


def _show(ended: "Ended", given: dict[str, Any]) -> None:
    made = ended.made
    assert made is not None
    if not given["quiet"]:
        click.echo(made.table)
    if given["report"] is not None:
        given["report"].write_bytes(made.bundle.report_html)


Wish = Literal["go", "hold", "stop"]


def _files(file: Path | None) -> "StatusFiles":
    from appliance.calibrate.status import StatusFiles

    return StatusFiles(load_config(file).server.state_dir)


def _wish(file: Path | None, wish: Wish, action: str, told: str) -> None:
    from appliance.commands.chained import chain

    files = _files(file)
    if not files.running:
        raise NotDone("no calibration runs: `steelyard calibrate` starts one")
    files.wish(wish)
    chain(load_config(file), f"calibration.{action}")
    click.echo(told, err=True)


@calibrate_group.command("pause")
@config_option
def calibrate_pause(file: Path | None) -> None:
    """Hold the calibration that runs."""
    _wish(file, "hold", "hold", "It holds; `steelyard calibrate resume` lets it go on.")


@calibrate_group.command("resume")
@config_option
def calibrate_resume(file: Path | None) -> None:
    """Let it go on."""
    _wish(file, "go", "resume", "It goes on.")


@calibrate_group.command("stop")
@config_option
def calibrate_stop(file: Path | None) -> None:
    """End it. Its answers are kept, and the next calibration goes on from them."""
    _wish(file, "stop", "stop", "It stops. The answers are kept.")


@calibrate_group.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@config_option
def calibrate_status(as_json: bool, file: Path | None) -> None:
    """Show how the calibration stands, or how the last one ended."""
    import msgspec

    status = _files(file).read()
    click.echo(msgspec.json.encode(status).decode() if as_json else line_of(status))


for _command in forecaster_commands():
    calibrate_group.add_command(_command)
