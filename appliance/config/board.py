"""The settings of the board that watches the box (docs/board.md)."""

from dataclasses import dataclass

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class BoardConfig:
    """The microcontroller that measures the box and cuts its power when it hangs."""

    device: str = setting(
        "",
        "The line to the board: a device such as /dev/appliance-mcu, or socket://host:port. "
        "Empty: there is no board.",
    )
    timeout_s: float = setting(
        120.0,
        "Seconds without proven progress after which the board acts. Above engine.step_timeout_s: "
        "an engine that hangs is replaced first.",
        low=1,
        high=600,
    )
    pretimeout_s: float = setting(
        90.0,
        "Seconds after which it warns. Must be below board.timeout_s.",
        low=0.5,
        high=600,
    )
    power_cycle: bool = setting(
        True, "At the timeout the board cuts the power and gives it back. Off, it only reports."
    )
    nowayout: bool = setting(
        False,
        "Once armed, the watchdog cannot be stopped: after an ordinary stop of the daemon the box "
        "is power-cycled too, 15 minutes later, unless a daemon has come back.",
    )
    pulse_button: bool = setting(
        False, "At the warning the board presses the power button, so that an OS can shut down."
    )
    slow_at_c: float = setting(
        85.0,
        "CPU temperature from which the engine does less per step, long before the board has to "
        "act (95 C). It goes back to full speed 5 C below.",
        low=30,
        high=95,
    )
