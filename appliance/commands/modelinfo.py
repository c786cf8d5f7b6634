"""`steelyard model info` and `steelyard model drift`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.terminal import plain

if TYPE_CHECKING:
    from appliance.config import Config


@click.command("info")
@click.argument("model", metavar="[NAME|FILE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@config_option
def info_command(model: str | None, as_json: bool, file: Path | None) -> None:
    """Show what a model is, the memory that it needs with this configuration, its chat template and
    its licence. Default: the one that is served.
    """
    import asyncio

    from appliance import gguf
    from appliance.commands import modeltext
    from appliance.commands.modelexamined import examine

    config = load_config(file, opens_state=False)
    path = find(model, config)
    if gguf.is_adapter(path):
        click.echo(plain(modeltext.adapter(path, gguf.read_adapter(path), as_json=as_json)))
        return
    found = asyncio.run(examine(path, config))
    click.echo(modeltext.info_json(found) if as_json else plain(modeltext.info(found)))


@click.command("drift")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@config_option
def drift_command(before: str, after: str, as_json: bool, file: Path | None) -> None:
    """Compare how two models (names or files) cut text into tokens, and say what that means for
    budgets, quotas and forecasts.
    """
    import asyncio

    from appliance.commands import modeltext
    from appliance.gguf import BadModel
    from appliance.prepare.client import PrepareError
    from appliance.prepare.retokenizing import drift_of

    config = load_config(file, opens_state=False)
    try:
        found = asyncio.run(drift_of(find(before, config), find(after, config)))
    except PrepareError as error:
        raise BadModel(f"the tokenizers cannot be compared: {error}") from error
    click.echo(modeltext.drift_json(found) if as_json else plain(modeltext.drift(found)))


def show_drift(before: Path, after: Path) -> None:
    """Say what changes for clients when one model replaces another. Whatever stands in the way is
    said too, since the models have been changed already.
    """
    import asyncio

    from appliance.commands import modeltext
    from appliance.gguf import BadModel
    from appliance.prepare.client import PrepareError
    from appliance.prepare.retokenizing import drift_of

    try:
        click.echo(plain(modeltext.drift(asyncio.run(drift_of(before, after)))))
    except (BadModel, PrepareError) as error:
        click.echo(f"the tokenizers were not compared: {error}", err=True)


def find(model: str | None, config: "Config") -> Path:
    """The file that is meant: by its path, by its name in the box, or the one that is served.
    Raises BadModel.
    """
    from appliance.models import BadModel, Store, locate

    if model is None:
        return locate(config.model, config.server.state_dir)
    path = Path(model)
    if "/" in model or model.lower().endswith(".gguf"):
        if not path.exists():
            raise BadModel(f"{path}: no such file")
        return path
    return Store(config.server.state_dir).get(model).path
