"""The one way to build an image: `python -m images.build --help`.

rootfs     a Debian tree with the box in it, as a tar (mmdebstrap); --twice proves that it repeats
squashfs   that tree as a read-only file system
container  an OCI image, from that tree or from a base image by its digest (buildah)
wheels     what the tree is built from where there is no bundle: every locked wheel, our own, and
           the engine that was built for this machine's CPU
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from images.container.oci import BadBase, Base, buildah
from images.layout import HERE
from images.rootfs.debian import Source, mmdebstrap
from images.rootfs.same import difference, sha256_of

ROOT = HERE.parent
LOCKS = ("runtime", "cpu", "model")
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "mksquashfs": "squashfs-tools",
    "buildah": "buildah",
}
"""What is called, and the Debian package that has it."""


class CannotBuild(Exception):
    """Says what is missing, or what failed."""


def need(tool: str, *, root: bool = True) -> None:
    """Raises CannotBuild where it is missing, or where we may not do what it does."""
    if shutil.which(tool) is None:
        raise CannotBuild(f"{tool} is not installed: apt install {TOOLS[tool]}")
    if root and os.geteuid() != 0:
        raise CannotBuild(f"{tool} makes files of all owners here: run this as root")


def epoch(given: int | None, environment: Mapping[str, str] = os.environ) -> int:
    """The time of every file, in seconds: the one that is asked for, else of the last commit."""
    if given is not None:
        return given
    if (told := environment.get("SOURCE_DATE_EPOCH", "")).isdecimal():
        return int(told)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise CannotBuild("say which time the files get: --epoch SECONDS") from None


def run(command: Sequence[str], seconds: int) -> None:
    """Raises CannotBuild."""
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(seconds),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode:
        raise CannotBuild(f"{command[0]} failed (exit status {done.returncode}); see above")


def rootfs(given: argparse.Namespace) -> None:
    need("mmdebstrap")
    at = epoch(given.epoch)
    source = Source(given.wheels, given.bundle, given.key)
    outputs = [given.out]
    if given.twice:
        outputs.append(given.out.with_name(f"again-{given.out.name}"))
    for out in outputs:
        out.unlink(missing_ok=True)
        run(mmdebstrap(out, source, sys.executable, given.sources), at)
        print(f"{sha256_of(out)}  {out}", flush=True)
    if given.twice:
        found = difference(outputs[0], outputs[1])
        if found:
            raise CannotBuild("the two trees differ:\n  " + "\n  ".join(found))
        outputs[1].unlink()
        print("built twice, bit for bit the same")


def squashfs(given: argparse.Namespace) -> None:
    """From the tar, so that no tree of root's files is needed in between."""
    need("mksquashfs", root=False)
    given.out.unlink(missing_ok=True)
    command = ["mksquashfs", "-", str(given.out), "-tar", "-noappend", "-no-progress", "-quiet",
               "-comp", "zstd", "-Xcompression-level", "9"]  # fmt: skip
    with open(given.rootfs, "rb") as tar:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch(given.epoch))}
        done = subprocess.run(command, stdin=tar, env=environment, check=False)
    if done.returncode:
        raise CannotBuild(f"mksquashfs failed (exit status {done.returncode}); see above")
    print(f"{sha256_of(given.out)}  {given.out}")


def container(given: argparse.Namespace) -> None:
    need("buildah")
    base = Base.read(given.base, given.rootfs)
    source = Source(given.wheels, given.bundle, given.key)
    at = epoch(given.epoch)
    buildah(base, source, given.out, given.name, at, lambda command: run(command, at))
    print(f"{given.name}: {given.out}")


def wheels(given: argparse.Namespace) -> None:
    """Needs a package index, once."""
    from appliance import buildinfo
    from appliance.engine import wheel

    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    at = epoch(given.epoch)
    for name in LOCKS:
        lock = str(ROOT / f"requirements/{name}.txt")
        run([*pip, "download", "--no-deps", "--only-binary=:all:", "--require-hashes",
             "--dest", str(out), "-r", lock], at)  # fmt: skip
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index",
         "--wheel-dir", str(out), str(ROOT)], at)  # fmt: skip
    record = buildinfo.installed()
    engine = wheel.cached(wheel.cache_root(os.environ) / "wheels" / record.fingerprint)
    if engine is None:
        raise CannotBuild("no engine was built on this machine yet: make library")
    shutil.copy(engine, out)
    print(f"{len(list(out.glob('*.whl')))} wheels in {out}")


def parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser("images.build", description=__doc__, formatter_class=plain)
    made.add_argument("--epoch", type=int, help="Time of all files. Default: the last commit's.")
    kinds = made.add_subparsers(required=True, metavar="KIND")
    for kind, builder in (("rootfs", rootfs), ("container", container), ("wheels", wheels),
                          ("squashfs", squashfs)):  # fmt: skip
        one = kinds.add_parser(kind)
        one.set_defaults(builder=builder)
        one.add_argument("out", type=Path, help="What is written.")
        if kind in ("rootfs", "container"):
            one.add_argument("--wheels", type=Path, help="Folder with all wheels.")
            one.add_argument("--bundle", type=Path, help="Folder of an unpacked, signed bundle.")
            one.add_argument("--key", type=Path, help="The key that the bundle is signed with.")
        if kind == "rootfs":
            one.add_argument("--sources", type=Path, help="File with Debian's archives.")
            one.add_argument("--twice", action="store_true", help="Build again, and compare.")
        if kind == "container":
            one.add_argument("--base", default="", help="NAME@sha256:… of the base image.")
            one.add_argument("--name", default="localhost/steelyard", help="Of the image.")
        if kind in ("container", "squashfs"):
            one.add_argument("--rootfs", type=Path, required=kind == "squashfs",
                             help="Tar of the tree.")  # fmt: skip
    return made


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    try:
        given.builder(given)
    except (CannotBuild, BadBase) as error:
        print(f"images.build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
