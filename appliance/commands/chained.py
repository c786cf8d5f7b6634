"""What an operator does on the box's own command line is an entry of the ledger too."""

import getpass
import time
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from appliance.commands.terminal import one_line

if TYPE_CHECKING:
    from appliance.config import Config

_MOST_NAME = 64


def operator() -> str:
    """Who is logged in, as far as the system knows: a word that the ledger can hold, whatever the
    environment says."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return ""  # a user without a name, as in some containers
    return one_line(name)[:_MOST_NAME]


def chain(
    config: "Config", action: str, target: str = "", detail: Mapping[str, Any] | None = None
) -> None:
    """Appends the action to the ledger, which is made if there is none. Raises LedgerError."""
    from appliance.accounts.keys import FILE_NAME
    from appliance.ledger.append import append
    from appliance.ledger.database import connect, transaction
    from appliance.ledger.rows import Action

    row = Action(
        wall_ns=time.time_ns(),
        action=action,
        target=target,
        operator=operator(),
        host="local",
        detail=dict(detail or {}),
    )
    path = config.server.state_dir / FILE_NAME
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(connect(path)) as db, transaction(db, path):
        append(db, [(row, None)])
