"""What makes the box of a Debian tree; run by mmdebstrap as its hook, as root.

python -m images.rootfs.customize --root TREE (--wheels FOLDER | --bundle FOLDER --key FILE)
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from images.layout import place
from images.rootfs.debian import DROPPED

SLOT = "opt/steelyard/slots/a"
CURRENT = "opt/steelyard/current"
COMMAND = "usr/local/bin/steelyard"
MOUNTED = "mnt"
ENABLED = {
    "multi-user.target.wants": ("systemd-networkd.service",),
    "sysinit.target.wants": ("systemd-timesyncd.service",),
    "network-online.target.wants": ("systemd-networkd-wait-online.service",),
}
"""Units of Debian's that a box with nothing else on it needs."""
UNWANTED = (
    "multi-user.target.wants/smartmontools.service",
    "timers.target.wants/apt-daily.timer",
    "timers.target.wants/apt-daily-upgrade.timer",
)
"""Those that look for the internet, or for disks that a virtual machine has not."""


def customize(root: Path, wheels: Path | None, bundle: Path | None, key: Path | None) -> None:
    """Everything, in the order in which it must happen."""
    if bundle is not None and key is not None:
        install_bundle(root, bundle, key)
    elif wheels is not None:
        install_wheels(root, wheels)
        place(root, appliance=True)
    compile_modules(root)
    enable(root)
    name(root)
    settle_accounts(root)
    drop(root)


def install_wheels(root: Path, wheels: Path) -> None:
    """A slot by hand, from exactly these files."""
    with mounted(wheels, root / MOUNTED):
        python = f"/{SLOT}/venv/bin/python"
        inside(root, "python3", "-m", "venv", f"/{SLOT}/venv")
        names = sorted(path.name for path in wheels.glob("*.whl"))
        files = [f"/{MOUNTED}/{name}" for name in names]
        inside(root, python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile",
               "--no-cache-dir", "--quiet", *files)  # fmt: skip
    relink(root / CURRENT, "slots/a")
    relink(root / COMMAND, f"/{CURRENT}/venv/bin/steelyard")


def install_bundle(root: Path, bundle: Path, key: Path) -> None:
    """As on any machine, by the bundle's own installer, with the tree's own Python. No model is
    loaded: the machine that the tree is for may have another CPU."""
    with mounted(bundle, root / MOUNTED):
        inside(root, "sh", f"/{MOUNTED}/install.sh", "--key", public(key), "--no-start",
               "--no-selftest", "--appliance")  # fmt: skip


def public(key: Path) -> str:
    """The key itself: its file is not in the tree."""
    return key.read_text("utf-8").strip().splitlines()[-1].strip()


def compile_modules(root: Path) -> None:
    """Here, once: /opt is read-only to the daemon. In one process and by the sources' hashes, so
    that two builds give the same files."""
    for cache in sorted((root / "opt").rglob("__pycache__")):
        shutil.rmtree(cache)
    inside(root, "env", "PYTHONHASHSEED=0", f"/{SLOT}/venv/bin/python", "-m", "compileall", "-q",
           "--invalidation-mode", "unchecked-hash", f"/{SLOT}/venv/lib")  # fmt: skip


def enable(root: Path) -> None:
    for wants, units in ENABLED.items():
        folder = root / "etc/systemd/system" / wants
        folder.mkdir(parents=True, exist_ok=True)
        for unit in units:
            relink(folder / unit, f"/lib/systemd/system/{unit}")
    for unwanted in UNWANTED:
        (root / "etc/systemd/system" / unwanted).unlink(missing_ok=True)


def name(root: Path) -> None:
    (root / "etc/hosts").write_text("127.0.0.1\tlocalhost\n127.0.1.1\tsteelyard\n::1\tlocalhost\n")


def settle_accounts(root: Path) -> None:
    """Groups of the units. Passwords carry the day of the build, which would differ."""
    inside(root, "systemd-sysusers")
    for file in ("shadow", "shadow-"):
        path = root / "etc" / file
        rows = (row.split(":") for row in path.read_text().splitlines())
        path.write_text("".join(":".join([*row[:2], "20000", *row[3:]]) + "\n" for row in rows))


def drop(root: Path) -> None:
    for entry in DROPPED:
        path = root / entry.lstrip("/")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            if entry.startswith("/var/"):
                path.mkdir()
        else:
            path.unlink(missing_ok=True)
    (root / "etc/machine-id").touch()  # empty: made anew at the first boot
    (root / "etc/hostname").write_text("steelyard\n")
    (root / "var/cache/apt/archives/partial").mkdir(parents=True, exist_ok=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True, exist_ok=True)


@contextmanager
def mounted(folder: Path, at: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", "-o", "ro", str(folder), str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


def relink(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def inside(root: Path, *command: str) -> None:
    subprocess.run(["chroot", str(root), *command], check=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=__spec__.name if __spec__ else None)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--key", type=Path)
    given = parser.parse_args(arguments)
    if (given.wheels is None) == (given.bundle is None):
        parser.error("name either --wheels or --bundle")
    if (given.bundle is None) != (given.key is None):
        parser.error("a bundle needs the key that it must be signed with: --key")
    customize(given.root, given.wheels, given.bundle, given.key)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
