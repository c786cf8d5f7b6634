"""The settings of how others on the network find the box."""

from dataclasses import dataclass

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class DiscoveryConfig:
    """How others on the local network find the box (docs/operating.md)."""

    mdns: bool = setting(
        False,
        "Announce the box on the local network as a service `_openai._tcp` (multicast DNS). "
        "Not possible while `server.host` is a loopback address.",
    )
    name: str = setting(
        "",
        "What people see in a list of services. Empty: `Steelyard` and the machine's name.",
        high=48,
        pattern=r"[^\x00-\x1f\x7f]*",
        form="a name without control characters",
    )
