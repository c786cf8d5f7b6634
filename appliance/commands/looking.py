"""What the commands share that look at the whole box from outside, running or not."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.commands.configured import config_option
from appliance.commands.reaching import cacert_option, key_option, read_key, url_option

if TYPE_CHECKING:
    from appliance.doctor.ground import Ground


def ground_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--config`, `--url`, `--key-file` and `--cacert`: the arguments of `ground_given`."""
    admin = key_option("File with an admin key. Default: $STEELYARD_ADMIN_KEY.")
    for option in (cacert_option, admin, url_option, config_option):
        command = option(command)
    return command


def ground_given(
    file: Path | None, url: str | None, key_file: Path | None, cacert: str | None
) -> "Ground":
    """The box that the options name. What this process logs from now on is not shown: what the
    command finds says it better."""
    from appliance.doctor.ground import ground
    from appliance.ownership import keep_owner

    key = read_key(key_file, "STEELYARD_ADMIN_KEY")
    found = ground(file, url=url or "", key=key, cacert=cacert or "")
    logging.getLogger("appliance").addHandler(logging.NullHandler())
    if found.usable:
        keep_owner(found.state_dir)
    return found
