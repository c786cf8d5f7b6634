"""What `bench.images` checks of an install without a network: from a bundle, into a bare tree."""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.images_checks import Bench, Skip
from bench.images_machine import CHAT, NotThere, can_boot
from images.rootfs.customize import public

STATE = "var/lib/steelyard"
_JOB = """
set -eu
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount --bind -o ro "$2" "$1/mnt"
ip link set lo up
chroot "$1" sh /mnt/install.sh --key "$3" --no-start
chroot "$1" /usr/local/bin/steelyard serve >"$1/tmp/log" 2>&1 & box=$!
trap 'kill $box; wait $box || :' EXIT
for try in $(seq 480); do
  grep -q 'Steelyard serves' "$1/tmp/log" && break
  kill -0 $box 2>/dev/null || { cat "$1/tmp/log" >&2; exit 1; }
  sleep 0.5
done
"$4" -c "$5"
"""


def offline(bench: Bench) -> str:
    """install.sh in a machine whose only network is its loopback, then the README's main job."""
    if bench.bundle is None or bench.key is None:
        raise Skip("needs a bundle: --bundle FOLDER --key FILE")
    if why := can_boot():
        raise Skip(why)
    said = alone(
        "sh", "-c", _JOB, "job", str(bare(bench)), str(bench.bundle.absolute()),
        public(bench.key), sys.executable, CHAT,
    )  # fmt: skip
    return f"installed with loopback alone, then {said.splitlines()[-1]!r}"


def bare(bench: Bench) -> Path:
    """The tree without the box: a stock Debian."""
    tree = bench.work / "bare"
    if tree.exists():
        shutil.rmtree(tree)
    subprocess.run(["cp", "-a", "--reflink=auto", str(bench.tree), str(tree)], check=True)
    for part in ("opt/steelyard", STATE, "var/lib/private/steelyard", "etc/steelyard"):
        found = tree / part
        if found.is_symlink():
            found.unlink()
        elif found.exists():
            shutil.rmtree(found)
    return tree


def alone(*command: str) -> str:
    """Standard output of a command that has no network. Raises NotThere."""
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise NotThere(f"{command[1][-40:]}: {done.stderr.strip()[-800:] or done.stdout[-400:]}")
    return done.stdout.strip()
