"""The Debian tree under the box: what mmdebstrap is told.

The same packages, the same time and the same files give the same tar, bit for bit; packages change
when Debian publishes new ones, so the list of those that were used is written beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.layout import HERE

SUITE = "bookworm"
PACKAGES = HERE / "rootfs/packages.txt"
CUSTOMIZE = "images.rootfs.customize"

# What differs between two builds and nobody needs; and what belongs to the builder, not the box.
DROPPED = (
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/var/cache/ldconfig/aux-cache",
    "/var/log/alternatives.log",
    "/var/log/apt",
    "/var/log/bootstrap.log",
    "/var/log/dpkg.log",
    "/var/lib/apt/lists",
    "/var/cache/apt",
    "/var/lib/systemd/catalog/database",
)

UNPACKED = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
"""Of Debian's packages: no manuals, but every licence."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the software comes from: a folder with the wheels of one installation, or a bundle."""

    wheels: Path | None = None
    bundle: Path | None = None
    key: Path | None = None
    """The public key that the bundle must be signed with."""

    def arguments(self) -> list[str]:
        """As `images.rootfs.customize` takes them."""
        found = {"--wheels": self.wheels, "--bundle": self.bundle, "--key": self.key}
        return [part for name, path in found.items() if path for part in (name, str(path))]


def packages(path: Path = PACKAGES) -> tuple[str, ...]:
    """Those of the list, comments left out."""
    rows = (row.partition("#")[0].strip() for row in path.read_text("utf-8").splitlines())
    return tuple(row for row in rows if row)


def mmdebstrap(target: Path, source: Source, python: str, sources: Path | None) -> list[str]:
    """The command. `target` is a tar. `sources` names the file with
    Debian's archives; without one mmdebstrap uses its own."""
    hook = [python, "-m", CUSTOMIZE, *source.arguments()]
    return [
        "mmdebstrap",
        "--mode=root",
        "--format=tar",
        "--variant=minbase",
        f"--include={','.join(packages())}",
        "--aptopt=Acquire::Languages none",
        *(f"--dpkgopt={rule}" for rule in UNPACKED),
        "--customize-hook=" + quoted([*hook, "--root"]) + ' "$1"',
        SUITE,
        str(target),
        *([str(sources)] if sources else []),
    ]


def quoted(words: Sequence[str]) -> str:
    """For the shell that mmdebstrap runs its hooks in."""
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
