"""`steelyard study`: experiments on answer lengths, on the model at hand."""

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import FAILED, NotDone
from appliance.commands.progress import Working
from appliance.commands.reaching import reach, read_key
from appliance.commands.studyoptions import (
    OUTPUT,
    QUICK,
    Asked,
    box_options,
    folder_of,
    numbers_between,
)

if TYPE_CHECKING:
    from appliance.study.driver import Study
    from appliance.study.output import Report
    from appliance.study.running import Tick


@click.group("study")
def study_group() -> None:
    """Repeat experiments on answer lengths with the local model.

    Each writes a table, a plot (SVG and PNG) and report.json. One that was interrupted goes on when
    it is run again.
    """


_SAMPLES = click.option("--samples", type=click.IntRange(1, 64), help="Answers to each request.")
_MAX_TOKENS = click.option(
    "--max-tokens", type=click.IntRange(8, 65536), help="Where answers are cut off."
)


@study_group.command("grid")
@box_options
@click.option("--temperatures", callback=numbers_between(0, 5), help="Such as 0,0.7,1.")
@click.option("--top-ps", callback=numbers_between(0.01, 1), help="Such as 0.8,0.95,1.")
@_SAMPLES
@_MAX_TOKENS
def study_grid(asked: Asked, **given: Any) -> None:
    """Mean and deviation of answer length by temperature and top_p."""
    with _refusals():
        from appliance.study import driver, grid
        from appliance.study.prompts import load

        settings = _set(grid.QUICK if asked.quick else grid.Settings(), given)
        prompts = load(asked.prompts, asked.most or (grid.QUICK_PROMPTS if asked.quick else None))
        study = _begin(asked, "grid")
        _publish(driver.run_grid(study, prompts, settings), study.folder)


@study_group.command("prompts")
@box_options
@click.option("--temperature", type=click.FloatRange(0, 5), help="Default: 0.7.")
@click.option("--top-p", type=click.FloatRange(0.01, 1), help="Default: 0.95.")
@click.option("--samples", type=click.IntRange(2, 64), help="Answers to each request.")
@_MAX_TOKENS
def study_prompts(asked: Asked, **given: Any) -> None:
    """What system messages and the wording around a question do to the length of its answer."""
    with _refusals():
        from appliance.study import driver, structure
        from appliance.study.prompts import load

        settings = _set(structure.QUICK_SETTINGS if asked.quick else structure.Settings(), given)
        few = structure.QUICK_PROMPTS if asked.quick else None
        prompts = load(asked.prompts, asked.most or few)
        study = _begin(asked, "prompts")
        _publish(driver.run_structure(study, prompts, settings), study.folder)


@study_group.command("limits")
@box_options
@_MAX_TOKENS
def study_limits(asked: Asked, **given: Any) -> int:
    """Whether limits and stop strings are kept to the token. Exit code 1 where one is not.

    The box runs each of these requests alone: others wait meanwhile.
    """
    with _refusals():
        from appliance.study import driver, limits
        from appliance.study.prompts import load

        settings = _set(limits.QUICK if asked.quick else limits.Settings(), given)
        few = limits.QUICK_PROMPTS if asked.quick else limits.PROMPTS
        prompts = load(asked.prompts, asked.most or few)
        study = _begin(asked, "limits")
        report = driver.run_limits(study, prompts, settings)
        _publish(report, study.folder)
    return 0 if report.exact else FAILED


@study_group.command("tokens")
@click.argument("a", metavar="A.gguf", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("b", metavar="B.gguf", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="UTF-8 file, compared line by line. Default: built-in lines of ten kinds.",
)
@OUTPUT
def study_tokens(a: Path, b: Path, text: Path | None, output: Path | None) -> None:
    """Compare the tokenizers of two models on the same text. Needs no box."""
    with _refusals():
        from contextlib import closing

        from appliance.study import drift
        from appliance.study.texts import grouped
        from appliance.study.vocabularies import opened

        _quiet()
        texts = grouped(text)
        with closing(opened(a)) as one, closing(opened(b)) as other:
            report = drift.report((a.name, b.name), one, other, texts)
        _publish(report, folder_of(output, "tokens", False))


@study_group.command("bytes")
@click.option("--model", help="GGUF file. Default: the one that `serve` would run.")
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="UTF-8 file whose lines are continued. Default: built-in lines.",
)
@click.option("--tokens", type=click.IntRange(1, 256), help="Written to each line.")
@OUTPUT
@QUICK
@config_option
def study_bytes(
    model: str | None,
    text: Path | None,
    tokens: int | None,
    output: Path | None,
    quick: bool,
    file: Path | None,
) -> None:
    """The byte lengths of the next tokens, predicted and seen. Needs no box: the model runs in this
    process, beside whatever else does."""
    with _refusals():
        from contextlib import closing

        from appliance.assembly import load_of
        from appliance.models import check
        from appliance.study import bytesize
        from appliance.study.rows import EngineRows
        from appliance.study.texts import grouped

        _quiet()
        config = load_config(file, opens_state=False)
        if model is not None:
            config = replace(config, model=replace(config.model, path=model, sha256="", lora=()))
        settings = _set(bytesize.QUICK if quick else bytesize.Settings(), {"tokens": tokens})
        texts, found = grouped(text), check(config)
        count = sum(len(lines[: settings.beginnings]) for lines in texts.values())
        rows = EngineRows(load_of(config, found.path))
        with closing(rows), _progress(count, "bytes") as tick:
            written = bytesize.write(rows, texts, settings, tick)
        report = bytesize.report(found.name, found.sha256, settings, written)
        _publish(report, folder_of(output, "bytes", quick))


def _quiet() -> None:
    """llama.cpp's warnings on a model are for whoever serves it."""
    logging.getLogger("appliance.llama").setLevel(logging.ERROR)


def _set(settings: Any, given: dict[str, Any]) -> Any:
    """The settings, with what the command line says instead."""
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _begin(asked: Asked, name: str) -> "Study":
    from appliance.study.asking import Box
    from appliance.study.driver import begin

    at = reach(asked.url, asked.cacert, asked.file)
    key = read_key(asked.key_file, "STEELYARD_API_KEY", refusal=NotDone)
    box = Box(at.url, key, at.cacert, looked=at.looked)
    return begin(box, asked.folder(name), asked.parallel, asked.fresh, _progress)


@contextmanager
def _progress(count: int, what: str) -> "Iterator[Tick]":
    """A bar with the time left."""
    done = itertools.count(1)
    with Working() as bar:
        yield lambda: bar.tell(what, next(done), count)


def _publish(report: "Report", folder: Path) -> None:
    from appliance.study.output import publish

    table = publish(report, folder)
    click.echo(table)
    click.echo(f"\nTable, plots and report.json: {folder}", err=True)


@contextmanager
def _refusals() -> Iterator[None]:
    """A study that ends early says why, and that it can go on."""
    from appliance.study.errors import StudyError

    try:
        yield
    except StudyError as error:
        raise NotDone(str(error)) from None
    except KeyboardInterrupt:
        _interrupted()


def _interrupted() -> NoReturn:
    click.echo("\nInterrupted. Run the same command again: it goes on.", err=True)
    raise click.Abort
