"""Where each file of `images/` goes on a machine. Install, rootfs and tests follow this list."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Placed:
    """One file. `source` is relative to `images/`, `target` absolute."""

    source: str
    target: str
    mode: int = 0o644
    appliance: bool = False
    """Only for a machine that is nothing but this box: the rootfs, not an install beside others."""
    keep: bool = False
    """A file that is there already is the operator's, and stays."""


SYSTEM = "/etc/systemd/system"
LIBEXEC = "/usr/libexec/steelyard"
ONLINE = f"{SYSTEM}/systemd-networkd-wait-online.service.d"

FILES = (
    Placed("systemd/steelyard.service", f"{SYSTEM}/steelyard.service"),
    Placed("systemd/steelyard-firstboot.service", f"{SYSTEM}/steelyard-firstboot.service"),
    Placed("systemd/steelyard.sysusers.conf", "/usr/lib/sysusers.d/steelyard.conf"),
    Placed("systemd/steelyard.tmpfiles.conf", "/usr/lib/tmpfiles.d/steelyard.conf"),
    Placed("udev/70-appliance-mcu.rules", "/etc/udev/rules.d/70-appliance-mcu.rules"),
    Placed("firstboot/firstboot", f"{LIBEXEC}/firstboot", 0o755),
    Placed("rootfs/steelyard.toml", "/etc/steelyard/steelyard.toml", keep=True),
    Placed("systemd/steelyard-setup.service", f"{SYSTEM}/steelyard-setup.service", appliance=True),
    Placed(
        "systemd/steelyard-setup-resume.service",
        f"{SYSTEM}/steelyard-setup-resume.service",
        appliance=True,
    ),
    Placed("firstboot/setup", f"{LIBEXEC}/setup", 0o755, appliance=True),
    Placed(
        "systemd/10-steelyard-watchdog.conf",
        "/etc/systemd/system.conf.d/10-steelyard-watchdog.conf",
        appliance=True,
    ),
    Placed(
        "systemd/10-steelyard-journal.conf",
        "/etc/systemd/journald.conf.d/10-steelyard-journal.conf",
        appliance=True,
    ),
    Placed("systemd/10-steelyard-online.conf", f"{ONLINE}/10-steelyard.conf", appliance=True),
    Placed(
        "systemd/10-steelyard-getty.conf",
        f"{SYSTEM}/getty@tty1.service.d/10-steelyard.conf",
        appliance=True,
    ),
    Placed("rootfs/80-steelyard-dhcp.network", "/etc/systemd/network/80-steelyard-dhcp.network",
           appliance=True),
)  # fmt: skip

WANTED = (
    "steelyard.service",
    "steelyard-firstboot.service",
    "steelyard-setup.service",
    "steelyard-setup-resume.service",
)
"""Units that start at boot (WantedBy=multi-user.target), those of the appliance among them."""


def place(root: Path, *, appliance: bool) -> tuple[str, ...]:
    """Puts the files into the tree at `root` and enables the units; returns the targets."""
    placed = []
    for file in FILES:
        target = root / file.target.lstrip("/")
        if (file.appliance and not appliance) or (file.keep and target.exists()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((HERE / file.source).read_bytes())
        target.chmod(file.mode)
        placed.append(file.target)
    wants = root / f"{SYSTEM}/multi-user.target.wants".lstrip("/")
    wants.mkdir(parents=True, exist_ok=True)
    for unit in WANTED:
        if f"{SYSTEM}/{unit}" in placed:
            link = wants / unit
            link.unlink(missing_ok=True)
            link.symlink_to(f"{SYSTEM}/{unit}")
    return tuple(placed)
