"""The settings of the daemon itself."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.config.setting import computed, setting

_HOST = r"[A-Za-z0-9._:%-]+|\[[0-9A-Fa-f:.%]+\]"

NOBODYS = Path("/var/lib/steelyard")
"""The state of a box whose user has neither $HOME nor an entry in /etc/passwd."""


def default_state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """$STEELYARD_STATE, else what systemd gives, else the user's own state directory."""
    named = env.get("STEELYARD_STATE") or env.get("STATE_DIRECTORY", "").split(":")[0]
    if named:
        return Path(named).absolute()
    try:
        home = Path(env.get("HOME") or Path.home())
    except RuntimeError:  # a number without a name, as in a container
        return NOBODYS
    return home / ".local" / "state" / "steelyard"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the daemon listens and keeps its state."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on. Anything but a loopback address needs at least one key with scope "
        "`infer`.",
        high=253,
        pattern=_HOST,
        form="an IP address or a host name",
    )
    port: int = setting(8421, "TCP port. 0 takes any free one.", low=0, high=65535)
    drain_s: float = setting(
        20.0,
        "Seconds that running requests may go on after SIGTERM before they are ended.",
        low=0,
        high=3600,
    )
    state_dir: Path = computed(
        default_state_dir,
        "$STEELYARD_STATE, else $STATE_DIRECTORY, else ~/.local/state/steelyard "
        "(/var/lib/steelyard for a user without a home)",
        "Directory for keys and everything else the daemon writes. Made if missing, mode 0700.",
        path=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Host names a request may be addressed to (its `Host` header). Empty: loopback names and "
        "`server.host`.",
        high=256,
        pattern=_HOST,
        form="host names without a port",
    )
    sse_ping_s: float = setting(
        10.0,
        "Seconds between comment lines on a stream that has nothing else to send.",
        low=0.1,
        high=3600,
    )
