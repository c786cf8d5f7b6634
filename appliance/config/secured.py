"""Whether the box speaks TLS, and what it means where it does not. Light: short commands ask it."""

from appliance.config.address import is_loopback
from appliance.config.sections import Config


def tls_on(config: Config) -> bool:
    """Whether the box speaks TLS."""
    tls = config.tls
    if tls.mode != "auto":
        return tls.mode == "on"
    return bool(tls.cert or tls.client_ca) or not is_loopback(config.server.host)


def in_clear(config: Config) -> str:
    """A warning where keys would cross a network unencrypted, else empty."""
    if tls_on(config) or is_loopback(config.server.host):
        return ""
    return (
        'tls.mode is "off": keys and texts cross the network in clear, and who listens can read '
        "and use them"
    )
