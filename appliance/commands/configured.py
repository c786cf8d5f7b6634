"""What the commands that read the configuration share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from appliance.config import Config


DAY = click.DateTime(["%Y-%m-%d"])


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--config FILE`, as the argument `file`."""
    return click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        help="TOML file. Default: $STEELYARD_CONFIG, else /etc/steelyard/steelyard.toml.",
    )(command)


def load_config(file: Path | None, *, opens_state: bool = True) -> "Config":
    """The configuration. Raises ConfigError, and CannotServe where the command opens the state and
    this user may not; the command line reports both."""
    from appliance.alone import refuse_strangers
    from appliance.config import load
    from appliance.ownership import keep_owner

    config = load(file)
    if opens_state:
        refuse_strangers(config.server.state_dir)
    keep_owner(config.server.state_dir)
    return config
