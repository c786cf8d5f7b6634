"""The settings of the log."""

from dataclasses import dataclass
from typing import Literal

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """What the daemon writes to standard error, and where else."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The least important lines shown."
    )
    json: bool = setting(False, "One JSON object a line instead of text.")
    file: str = setting(
        "",
        "A file that gets all lines too, for boxes where nothing else keeps them. Empty: none; "
        "under systemd the journal has them.",
        path=True,
    )
    file_mb: int = setting(
        8,
        "MiB at which that file is renamed to `.1` and begun anew; the newest four full ones stay.",
        low=1,
        high=1024,
    )
