"""Who may do what. Pure: keys and addresses in, a verdict out.

Rules:
1. A path that is not public needs somebody known, also when it does not exist.
2. Scopes do not include each other, except that operators (admin) may look at everything.
3. From a loopback address, and not through a proxy, inference is open while no key for it exists
   and `auth.loopback_open` is on. Admin routes are never open, the documentation is there always,
   because a browser cannot send a key.
"""

import ipaddress
from typing import Literal

from starlette.datastructures import Headers

from appliance.accounts.keys import Key
from appliance.errors import ApiError, Forbidden, Unauthorized

Need = Literal["public", "infer", "read", "metrics", "docs", "known", "admin"]

_SCOPES: dict[Need, frozenset[str]] = {
    "infer": frozenset({"infer"}),
    "read": frozenset({"infer", "metrics", "admin"}),
    "metrics": frozenset({"metrics", "admin"}),
    "docs": frozenset({"infer", "metrics", "admin"}),
    "known": frozenset({"infer", "metrics", "admin"}),
    "admin": frozenset({"admin"}),
}
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")


def secret_in(headers: Headers) -> str | None:
    """The key that a request carries: `Authorization: Bearer …`, else `X-Api-Key`."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return secret.strip()
    return headers.get("x-api-key") or None


def is_local(host: str | None, headers: Headers) -> bool:
    """Whether the request comes from this machine itself, not through a proxy on it."""
    if host is None or any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def refuse(need: Need, *, key: Key | None, given: str | None, open_here: bool) -> ApiError | None:
    """Why the request may not go on; None when it may.

    `given`: the secret that it carried, known or not. `open_here`: rule 3 holds for it.
    """
    if need == "public" or (open_here and need != "admin"):
        return None
    if key is None:
        return _unknown(given)
    wanted = _SCOPES[need]
    if key.scopes & wanted:
        return None
    return Forbidden(
        f"the key {key.name!r} has the scopes {', '.join(sorted(key.scopes)) or 'none'}; this "
        f"needs {' or '.join(sorted(wanted))}: use another key",
        code="insufficient_scope",
    )


def _unknown(given: str | None) -> Unauthorized:
    if given is None:
        why = "this needs a key: send it as 'Authorization: Bearer …' or 'X-Api-Key: …'"
    elif not given.isascii():
        why = (
            "the key holds a character that no key has, such as a letter of another script that "
            "looks the same: copy it again from where it was made"
        )
    else:
        why = "the key is not known here, was revoked or has expired"
    return Unauthorized(
        f"{why} (`steelyard keys create` makes one)",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )
