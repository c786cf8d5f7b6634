"""Where the box of this machine is, for the commands that talk to it: nothing needs to be said, and
the key goes to nobody else."""

import os
from dataclasses import dataclass

from appliance.config import Config
from appliance.doctor.running import Box
from appliance.doctor.standing import belongs


@dataclass(frozen=True, slots=True)
class Place:
    """`url` empty: no box is known to be here, and `why` says what was looked for."""

    url: str = ""
    cacert: str = ""
    """File of the CA to believe, or of the box's certificate; empty: the system's CAs."""
    answers: bool = False
    """False: it is starting, stopping, or hangs."""
    barred: bool = False
    """Nothing must be asked by guess: the key would go to others. `why` says all."""
    why: str = ""


def here(config: Config) -> Place:
    """The box that runs on the configuration's state directory. It is asked for its health, without
    a key."""
    where = config.server.state_dir
    box = Box.find(config)
    if not box.url and box.holder is None:
        return Place(why=f"no box runs on {where}")
    if not box.url:
        why = f"the box on {where} does not listen yet: is it starting? Try again"
        return Place(barred=True, why=why)
    ours = belongs(box.holder, config.server)
    if ours is None:
        return Place(why=f"this user may not see whether a box runs on {where}")
    if not ours:
        why = f"what listens at {box.url} is another user's than {where}: name the box with --url"
        return Place(barred=True, why=why)
    answers = box.get("/health").status != 0  # which also tells whether it wants TLS
    return Place(box.url, _ca(config, box.url), answers)


def _ca(config: Config, url: str) -> str:
    if not url.startswith("https:"):
        return ""
    own = config.server.state_dir / "tls" / "ca.pem"
    file = str(config.tls.cert or own)
    return file if os.access(file, os.R_OK) else ""
