"""Whether a bundle's binaries can run on this machine. Standard library only."""

import platform
import re
import sys

from appliance.bundle.errors import BundleError
from appliance.bundle.manifest import Manifest


def this_platform() -> str:
    return f"{sys.platform}-{platform.machine()}"


def this_glibc() -> str:
    """Empty where the C library is another one."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


def check_machine(manifest: Manifest) -> None:
    """Raises BundleError."""
    if manifest.platform != this_platform():
        raise BundleError(
            f"the bundle is for {manifest.platform}, and this machine is {this_platform()}"
        )
    if _numbers(this_glibc()) < _numbers(manifest.glibc):
        raise BundleError(
            f"the bundle needs glibc {manifest.glibc} or newer, and this system has "
            f"{this_glibc() or 'none'}: use a newer Debian or Ubuntu, or make the bundle on a "
            "system as old as this one"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
