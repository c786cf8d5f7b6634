"""`steelyard tune`: finds the fastest engine settings of this machine by measuring them."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import FAILED
from appliance.commands.progress import Line, bar_of

if TYPE_CHECKING:
    from appliance.tune.job import Progress, Tuning
    from appliance.tune.settings import Mix
    from appliance.tune.store import Entry


@click.group("tune", invoke_without_command=True)
@config_option
@click.option("--model", help="GGUF file to tune for.")
@click.option("--quick", is_flag=True, help="Shorter measurements, which find large gains only.")
@click.option("--dry-run", is_flag=True, help="Measure and show, and keep nothing.")
@click.option(
    "--allow-different-answers",
    is_flag=True,
    help="Also take settings with which greedy answers may differ from today's.",
)
@click.option("--keep-anyway", is_flag=True, help="Also what was measured on a busy machine.")
@click.option("--prompt-tokens", type=click.IntRange(1), help="Of a typical request.")
@click.option("--answer-tokens", type=click.IntRange(1), help="Of a typical request.")
@click.option("--json", "as_json", is_flag=True, help="Print what was measured as JSON.")
@click.pass_context
def tune_group(
    context: click.Context,
    file: Path | None,
    model: str | None,
    quick: bool,
    dry_run: bool,
    allow_different_answers: bool,
    keep_anyway: bool,
    prompt_tokens: int | None,
    answer_tokens: int | None,
    as_json: bool,
) -> int | None:
    """Measure threads, batch sizes, flash attention and more, and keep what is fastest.

    The daemon must be stopped meanwhile. What was found holds from its next start on, for this
    model on this machine, in all settings that the configuration does not name.
    """
    if context.invoked_subcommand is not None:
        return None
    from appliance.alone import only_daemon, refuse_strangers
    from appliance.assembly import load_of
    from appliance.config import load
    from appliance.models import check
    from appliance.tune.job import Tuning
    from appliance.tune.store import Tuned
    from appliance.tune.words import BUSY

    config = load(file, overrides={"model.path": model} if model else {})
    refuse_strangers(config.server.state_dir)
    with only_daemon(config.server.state_dir):
        found = check(config)
        tuning = Tuning(
            config,
            found,
            load_of(config, found.path),
            quick=quick,
            other_answers=allow_different_answers,
            mix=_mix(prompt_tokens, answer_tokens),
        )
        entry = _measure(tuning, quiet=as_json)
        busy = entry.busy > BUSY and not keep_anyway
        if not (dry_run or busy):
            Tuned(config.server.state_dir).keep(entry)
    _show(entry, as_json)
    click.echo(_outcome(dry_run, busy), err=as_json)
    return FAILED if busy and not dry_run else None


def _outcome(dry_run: bool, busy: bool) -> str:
    if dry_run:
        return "nothing was kept (--dry-run)"
    if busy:
        return (
            "nothing was kept: end the other programs and tune again, or say --keep-anyway if they "
            "always run beside the box"
        )
    return "kept: it holds from the next start on"


@tune_group.command("show")
@config_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def tune_show(file: Path | None, as_json: bool) -> None:
    """Show what was found, newest last."""
    from appliance.tune.store import Tuned

    entries = Tuned(load_config(file).server.state_dir).entries()
    if not entries:
        click.echo("nothing was tuned here yet: `steelyard tune` does it", err=True)
    for number, entry in enumerate(entries):
        if number and not as_json:
            click.echo("")
        _show(entry, as_json)


@tune_group.command("clear")
@config_option
def tune_clear(file: Path | None) -> None:
    """Forget what was found: the defaults hold from the next start on."""
    from appliance.tune.store import Tuned

    there = Tuned(load_config(file).server.state_dir).clear()
    click.echo("forgotten" if there else "there was nothing to forget")


def _mix(prompt: int | None, answer: int | None) -> "Mix | None":
    """None: the ledger's, or the assumed one."""
    from appliance.tune.settings import Mix

    if prompt is None and answer is None:
        return None
    standard = Mix()
    return Mix(prompt or standard.prompt, answer or standard.answer, "as told")


def _measure(tuning: "Tuning", *, quiet: bool) -> "Entry":
    with Line(quiet=quiet) as line:
        for number, progress in enumerate(tuning.run()):
            line.say(_line(progress), news=number == 0)
    assert tuning.entry is not None
    return tuning.entry


def _show(entry: "Entry", as_json: bool) -> None:
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(entry).decode())
        return
    from appliance.tune.words import report

    for line in report(entry):
        click.echo(line)


def _line(progress: "Progress") -> str:
    eta = "" if progress.eta_s is None else f"  ETA {progress.eta_s:.0f} s"
    return f"{bar_of(progress.share)}{eta}  {progress.doing}"
