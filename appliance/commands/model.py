"""`steelyard model`: the models that the box holds, and what each would need."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import FAILED
from appliance.commands.modelinfo import drift_command, info_command
from appliance.commands.progress import Working
from appliance.commands.terminal import plain

if TYPE_CHECKING:
    from appliance.models import Store, Stored


@click.group("model")
def model_group() -> None:
    """Add, check, compare and remove models."""


model_group.add_command(info_command)
model_group.add_command(drift_command)


def _store(file: Path | None) -> "Store":
    from appliance.models import Store

    return Store(load_config(file).server.state_dir)


@model_group.command("add")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", default="", help="What it is called here. Default: the file's name.")
@click.option("--licence", default="", help="What it is under, where the file does not say.")
@click.option("--to", default="", help="Model that a LoRA adapter belongs to.")
@config_option
def add_command(path: Path, name: str, licence: str, to: str, file: Path | None) -> None:
    """Take a GGUF file into the box: the first of several, if it is split, or a LoRA adapter, which
    goes beside its model. The original is not needed afterwards.
    """
    import asyncio

    from appliance.commands import modeltables, modeltext
    from appliance.commands.modelexamined import examine

    config = load_config(file)
    with Working() as bar:
        stored = _store(file).add(path, name=name, licence=licence, to=to, tell=bar.tell)
    added = (
        stored.lora[-1] if stored.lora and stored.lora[-1].source == str(path.absolute()) else None
    )
    if added is not None:
        click.echo(f"added the LoRA adapter `{added.name}` to `{stored.name}`")
        return
    click.echo(plain(f"added {modeltables.one_line(stored)}"))
    for line in modeltext.warnings(asyncio.run(examine(stored.path, config))):
        click.echo(plain(line))
    click.echo(f"`steelyard model use {stored.name}` serves it")


@model_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@config_option
def list_command(as_json: bool, file: Path | None) -> int:
    """Show the models of the box. Exit code: 1 if one of them is damaged, else 0."""
    from appliance.commands import modeltables

    config = load_config(file)
    store = _store(file)
    packaged = _packaged(store)
    models = [*([packaged] if packaged is not None else []), *store.list()]
    selected = store.selected()
    broken = store.broken()
    click.echo(
        modeltables.list_json(models, selected, config.model.path, broken)
        if as_json
        else plain(modeltables.table(models, selected, config.model.path))
    )
    for problem in broken if not as_json else ():
        click.echo(f"damaged: {problem}", err=True)
    return FAILED if broken else 0


def _packaged(store: "Store") -> "Stored | None":
    from appliance.models import BadModel
    from appliance.models.packaged import packaged_stored

    try:
        return packaged_stored(store.state_dir)
    except BadModel:
        return None


@model_group.command("verify")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@config_option
def verify_command(name: str | None, as_json: bool, file: Path | None) -> int:
    """Read NAME, or all models, again and compare each SHA-256. Exit code: 1 if one is not what was
    added, else 0.
    """
    from appliance.commands import modeltables
    from appliance.models import BadModel

    store = _store(file)
    names = [name] if name is not None else [stored.name for stored in store.list()]
    found = dict.fromkeys(names, "")
    with Working(quiet=as_json) as bar:
        for each in names:
            try:
                store.verify(each, tell=bar.tell)
            except BadModel as error:
                found[each] = str(error)
    damaged = () if name is not None else store.broken()
    click.echo(
        modeltables.verified_json(found, damaged) if as_json else modeltables.verified(found)
    )
    for problem in damaged if not as_json else ():
        click.echo(f"damaged: {problem}", err=True)
    return FAILED if damaged or any(found.values()) else 0


@model_group.command("remove")
@click.argument("name")
@click.option("--lora", metavar="ADAPTER", help="Only this LoRA adapter of the model.")
@config_option
def remove_command(name: str, lora: str | None, file: Path | None) -> None:
    """Delete a model and its LoRA adapters from the box. Not the one that is served."""
    if lora is not None:
        _store(file).remove_adapter(name, lora)
        click.echo(f"removed the LoRA adapter `{lora}` of `{name}`")
        return
    _store(file).remove(name)
    click.echo(f"removed `{name}`")
