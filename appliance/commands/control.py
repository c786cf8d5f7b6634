"""`steelyard control`: prove the control loop's corrections."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import FAILED
from appliance.commands.terminal import one_line

if TYPE_CHECKING:
    from appliance.control.replay import Difference, Replay


@click.group("control")
def control_group() -> None:
    """Look into the control loop."""


@control_group.command("replay")
@click.argument("ledger", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@config_option
def control_replay(ledger: Path | None, as_json: bool, file: Path | None) -> int:
    """Work out every correction of the box's ledger, or of LEDGER, again from what was logged with
    it. The box may be running. Exit code 1: one does not come out bit for bit; it is named."""
    from appliance.accounts.keys import FILE_NAME
    from appliance.control.replay import replayed
    from appliance.ledger.corrections import read

    path = ledger if ledger is not None else load_config(file).server.state_dir / FILE_NAME
    replay, different = replayed(read(path))
    click.echo(_json(replay, different) if as_json else _words(replay, different))
    return FAILED if different is not None else 0


def _json(replay: "Replay", different: "Difference | None") -> str:
    import msgspec

    verdict = {
        "ok": different is None,
        "corrections": replay.entries,
        "channels": replay.channels,
        "gaps": replay.gaps,
        "unread": replay.unread,
        "first_difference": different,
    }
    return msgspec.json.encode(verdict).decode()


def _words(replay: "Replay", different: "Difference | None") -> str:
    told = f"{replay.entries} corrections of {replay.channels} channels"
    more = []
    if replay.unread:
        more.append(f"{replay.unread} older ones left out, whose beginning is no longer kept")
    if replay.gaps:
        more.append(f"begun anew {replay.gaps} times, where some could not be written")
    beside = f" ({'; '.join(more)})" if more else ""
    if different is None:
        return f"the same, bit for bit: {told}{beside}"
    return (
        f"NOT the same: {told} came out right{beside}, then row {different.seq} does not\n"
        f"  channel {one_line(different.channel)}, entry {different.number} of run "
        f"{different.run}, {different.what}\n"
        f"  stored  {one_line(different.stored)}\n"
        f"  found   {one_line(different.found)}"
    )
