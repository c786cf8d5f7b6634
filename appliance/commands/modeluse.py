"""`steelyard model use`: another model for the running box, or for its next start."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.commands.asking import ask
from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import NotDone
from appliance.commands.modelinfo import show_drift
from appliance.commands.progress import Working
from appliance.commands.reaching import Reached, cacert_option, reach, read_key, url_option

if TYPE_CHECKING:
    from appliance.config import Config
    from appliance.models import Stored

_LOOK_S = 0.3
_SHOWN = {
    "testing": "the new model is tried beside the one that serves",
    "draining": "what runs may end; new requests are told to come again",
    "loading": "the new model is loaded",
    "returning": "the new model did not come: the former is loaded again",
}


_KEYS = ("STEELYARD_ADMIN_KEY", "STEELYARD_API_KEY")


@click.command("use")
@click.argument("name")
@url_option
@cacert_option
@click.option("--quiet", is_flag=True, help="Say how it ended, and nothing before.")
@config_option
def model_use(
    name: str, url: str | None, cacert: str | None, quiet: bool, file: Path | None
) -> int:
    """Serve the model NAME of `steelyard model list` from now on. A box that runs goes over to it
    without closing its port, and goes back by itself if the model does not come (the admin key is
    read from STEELYARD_ADMIN_KEY). Without a box the model is loaded once and chosen for the next
    start. Exit code 1: it is not chosen."""
    from appliance.alone import InUse, only_daemon

    config = load_config(file)
    if url:
        return _asked(Reached(url, cacert or ""), name, quiet=quiet)
    before, wanted = _models(config, name)
    try:
        with only_daemon(config.server.state_dir):
            failed = _chosen(config, wanted)
    except InUse:
        failed = _asked(reach(None, cacert, file), name, quiet=quiet)
    if not failed and not quiet and before is not None and before != wanted.path:
        show_drift(before, wanted.path)
    return failed


def _models(config: "Config", name: str) -> "tuple[Path | None, Stored]":
    """The file that is served or chosen now, and what is wanted. Raises BadModel."""
    from appliance.models import BadModel, Store, locate

    if config.model.path:
        raise BadModel(
            f"model.path in the configuration names the model that is served ({config.model.path})"
            ": take it away, then models can be chosen"
        )
    wanted = Store(config.server.state_dir).get(name)
    try:
        return locate(config.model, config.server.state_dir), wanted
    except BadModel:  # what was chosen is gone: all the more reason to choose
        return None, wanted


def _chosen(config: "Config", wanted: "Stored") -> int:
    """No box runs. Raises BadModel."""
    from appliance.commands.chained import chain
    from appliance.models import Store, check_stored
    from appliance.selftest import tell

    store = Store(config.server.state_dir)
    if not wanted.packaged:
        with Working() as bar:
            store.verify(wanted.name, tell=bar.tell)
    if (failed := tell(config, check_stored(config, wanted))) != 0:
        click.echo("it is not chosen", err=True)
        return failed
    store.select(None if wanted.packaged else wanted.name)
    chain(config, "model.use", wanted.name)
    click.echo(f"chosen: {wanted.name} is served when the box starts")
    return 0


def _asked(at: Reached, name: str, *, quiet: bool) -> int:
    """Has the box go over, and waits for the end. Raises NotDone."""
    key, path = read_key(None, *_KEYS), "/admin/model"

    def now() -> dict[str, Any]:
        switch: dict[str, Any] = ask(at, path, None, key)["switch"]
        return switch

    before = now()["last"]
    if ask(at, path, {"use": name}, key)["status"] == "serving":
        click.echo(f"{name} is served already")
        return 0
    said = ""
    with Working(quiet=quiet) as bar:
        while (phase := (switch := now())["phase"]) != "none":
            if phase == "checking":
                bar.tell(phase, switch["done"], switch["total"])
            elif phase != said and not quiet:
                click.echo(_SHOWN.get(phase, phase), err=True)
            said = phase
            time.sleep(_LOOK_S)
    last = switch["last"]
    if last is None or last == before:
        raise NotDone("the box was started anew meanwhile: `steelyard model list` tells the choice")
    return _told(last)


def _told(last: dict[str, Any]) -> int:
    """How it ended. Raises NotDone."""
    if last["result"] == "switched":
        note = f" ({last['note']})" if last["note"] else ""
        click.echo(
            f"{last['target']} is served; for {last['away_s']:.1f} s nothing was let in{note}"
        )
        return 0
    still = {
        "kept": f"{last['source']} served on all the while",
        "returned": f"{last['source']} is served again",
        "failed": "neither is served, and the box starts anew",
        "stopped": "the choice is what it was",
    }
    raise NotDone(f"{last['target']} is not served: {last['why']}. {still[last['result']]}")
