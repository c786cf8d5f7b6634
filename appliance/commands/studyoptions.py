"""Options that the experiments of `steelyard study` share."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from appliance.commands.configured import config_option
from appliance.commands.reaching import cacert_option, key_option, url_option

HOME = Path("steelyard-study")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the experiments that talk to the box have in common."""

    url: str | None
    key_file: Path | None
    cacert: str | None
    file: Path | None
    prompts: Path | None
    most: int | None
    output: Path | None
    parallel: int
    quick: bool
    fresh: bool

    def folder(self, name: str) -> Path:
        return folder_of(self.output, name, self.quick)


def folder_of(output: Path | None, name: str, quick: bool) -> Path:
    return output if output is not None else HOME / (f"{name}-quick" if quick else name)


OUTPUT = click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Directory for what is found. Default: {HOME}/ and the experiment's name.",
)
QUICK = click.option("--quick", is_flag=True, help="A small run, to see that it works.")


def box_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what `Asked` holds, and gathers it as the argument `asked`."""
    options = (
        url_option,
        key_option("File with a key of scope infer. Default: $STEELYARD_API_KEY."),
        cacert_option,
        config_option,
        click.option(
            "--prompts",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="JSONL file of prompts (docs/forecast.md). Default: forty built-in ones.",
        ),
        click.option(
            "--number", "most", type=click.IntRange(min=1), help="Take so many prompts only."
        ),
        OUTPUT,
        click.option(
            "--parallel",
            type=click.IntRange(1, 64),
            default=4,
            show_default=True,
            help="Requests under way at once. They yield to everyone else's.",
        ),
        QUICK,
        click.option("--fresh", is_flag=True, help="Forget the answers of an earlier run."),
    )

    def gathered(**given: Any) -> int | None:
        names = [field.name for field in fields(Asked)]
        asked = Asked(**{name: given.pop(name) for name in names})
        found: int | None = command(asked, **given)
        return found

    gathered.__doc__ = command.__doc__
    wrapped: Callable[..., Any] = gathered
    for option in reversed(options):
        wrapped = option(wrapped)
    # Options of the command itself were noted on it by their decorators.
    wrapped.__dict__["__click_params__"] = [
        *wrapped.__dict__["__click_params__"],
        *getattr(command, "__click_params__", ()),
    ]
    return wrapped


def numbers_between(low: float, high: float) -> Callable[..., tuple[float, ...] | None]:
    """Reads numbers with commas between, each once and in order."""

    def read(_: click.Context, param: click.Parameter, text: str | None) -> Any:
        if text is None:
            return None
        try:
            found = sorted({float(part) for part in text.split(",")})
        except ValueError:
            raise click.BadParameter("numbers with commas between, such as 0,0.7,1") from None
        if not all(low <= number <= high for number in found):
            raise click.BadParameter(f"each must lie in {low:g} … {high:g}")
        return tuple(found)

    return read
