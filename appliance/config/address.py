"""What a listening address means for who can reach it."""

import ipaddress

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on that are none to connect to, and what this machine connects to then."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`. A name other than localhost
    counts as reachable, because what it resolves to may change."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
