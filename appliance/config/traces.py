"""The settings of what a collector of traces is told."""

from dataclasses import dataclass

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class TracesConfig:
    """A collector on the local network that is told of each request (docs/operating.md)."""

    endpoint: str = setting(
        "",
        "Where spans are sent, by OTLP over HTTP as JSON, such as "
        "`http://collector:4318/v1/traces`. Empty: nothing is sent.",
        pattern=r"(https?://[^\s/?#@]+(/[^\s?#]*)?)?",
        form="a URL that begins with http:// or https://, without user name, query and fragment",
        high=512,
    )
    names: bool = setting(
        True, "Tell the collector the names of keys and tenants too, not only their requests."
    )
