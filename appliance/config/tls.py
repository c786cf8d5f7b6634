"""The settings of TLS."""

from dataclasses import dataclass
from typing import Literal

from appliance.config.setting import setting

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
_NAME = rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*|[0-9A-Fa-f:.]+"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Encryption of what goes over the network."""

    mode: Literal["auto", "on", "off"] = setting(
        "auto",
        "Whether the box speaks HTTPS. `auto`: wherever other machines can reach it, and where "
        "`cert` or `client_ca` is set. `off` on an address that others can reach sends keys and "
        "texts in clear.",
    )
    names: tuple[str, ...] = setting(
        (),
        "Names and addresses by which clients call the box, besides the machine's own, "
        "`server.host` and `server.allowed_hosts`: the certificate covers them, and requests may "
        "be addressed to them. With `cert` it is checked that the certificate does.",
        high=64,
        pattern=_NAME,
        form="host names or IP addresses",
    )
    cert: str = setting(
        "",
        "PEM file of the server's certificate, followed by the certificates between it and its "
        "CA. Empty: the box makes a CA and a certificate of its own. Read again when it changes.",
        path=True,
    )
    key: str = setting("", "PEM file of the private key of `cert`, not encrypted.", path=True)
    client_ca: str = setting(
        "",
        "PEM file of the CAs whose certificates clients must show. Empty: none is asked for. "
        "Read again when it changes.",
        path=True,
    )
    client_auth: Literal["required", "optional"] = setting(
        "required",
        "With `client_ca`: refuse clients without a certificate, or only those with a wrong one.",
    )
