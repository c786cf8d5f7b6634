"""Versions of Steelyard, and which may follow which. Standard library only."""

import re

from appliance.bundle.errors import BundleError

Version = tuple[int, int, int]

_FORM = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)


def parse_version(text: str) -> Version:
    """Three numbers. Raises BundleError."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BundleError(f"{text[:40]!r} is no version: three numbers, as in 1.2.3")
    major, minor, patch = (int(part) for part in found.groups())
    return major, minor, patch


def check_step(installed: str, offered: str, lowest: str, *, allow_downgrade: bool) -> None:
    """Raises BundleError where `offered` may not replace `installed`."""
    if parse_version(offered) < parse_version(installed) and not allow_downgrade:
        raise BundleError(
            f"the bundle has version {offered}, older than the installed {installed}: an older one "
            "may lack what protects this box. If it is wanted: --allow-downgrade"
        )
    if parse_version(installed) < parse_version(lowest):
        raise BundleError(
            f"version {offered} replaces {lowest} and later, and {installed} is installed: update "
            f"to {lowest} first"
        )
