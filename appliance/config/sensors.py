"""The settings of the machine's own sensors."""

from dataclasses import dataclass

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class SensorsConfig:
    """Temperature, power and energy of this machine, where its hardware tells them."""

    enabled: bool = setting(
        True,
        "Read hwmon, RAPL and NVML. Off, nothing is measured, and energy costs what "
        "`cost.watts_busy` says.",
    )
    poll_s: float = setting(
        0.5,
        "Seconds between two reads. Fewer part the energy of short requests better.",
        low=0.1,
        high=10,
    )
