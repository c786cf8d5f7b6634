"""The OCI image: what buildah is told.

The isolation is `chroot`, which works inside other containers too. The format is Docker's: OCI's
own knows no health check. Same base, same wheels and same time give the same digest.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from images.layout import HERE
from images.rootfs.debian import Source

CONTAINERFILE = HERE / "container/Containerfile"
HEALTHCHECK = HERE / "container/healthcheck.py"
_PINNED = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")
ROOTFS_IMAGE = "localhost/steelyard-rootfs"


class BadBase(Exception):
    """The image cannot stand on that. Says why."""


@dataclass(frozen=True, slots=True)
class Base:
    """What the image stands on: a published image by its digest, or a tree of ours."""

    reference: str = ""
    rootfs: Path | None = None

    @classmethod
    def read(cls, reference: str, rootfs: Path | None) -> "Base":
        """Raises BadBase."""
        if bool(reference) == (rootfs is not None):
            raise BadBase("name one base: --base NAME@sha256:… or --rootfs TAR")
        if reference and not _PINNED.fullmatch(reference):
            raise BadBase(
                f"{reference} is no image by its digest: a tag may mean another image tomorrow. "
                "`skopeo inspect` tells the digest of a tag"
            )
        if rootfs is not None and not rootfs.is_file():
            raise BadBase(f"{rootfs} is no file")
        return cls(reference, rootfs)


def buildah(
    base: Base, source: Source, out: Path, name: str, seconds: int, run: Callable[[list[str]], None]
) -> None:
    """Calls `run` with one command after another. Raises BadBase, and what `run` raises."""
    wheels = source.wheels or (source.bundle / "wheels" if source.bundle else None)
    if wheels is None or not any(wheels.glob("*.whl")):
        raise BadBase(f"no wheels in {wheels}: see `python -m images.build wheels`")
    stamp = ["--timestamp", str(seconds)]
    reference = base.reference
    if base.rootfs is not None:
        reference = ROOTFS_IMAGE
        _of_tree(base.rootfs, stamp, run)
    with tempfile.TemporaryDirectory(dir=wheels.parent, prefix="context-") as folder:
        fill(Path(folder), wheels)
        run(["buildah", "bud", "--isolation", "chroot", "--format", "docker", "--no-cache",
             *stamp, "--build-arg", f"BASE={reference}", "--tag", name,
             "--file", str(CONTAINERFILE), folder])  # fmt: skip
    out.unlink(missing_ok=True)
    run(["buildah", "push", "--quiet", name, f"docker-archive:{out}:{name}"])


def _of_tree(rootfs: Path, stamp: list[str], run: Callable[[list[str]], None]) -> None:
    """A base from a tree that has the box in it already: all of it but that."""
    work = "steelyard-base"
    run(["buildah", "from", "--quiet", "--name", work, "scratch"])
    try:
        run(["buildah", "add", "--quiet", work, str(rootfs), "/"])
        run(["buildah", "run", "--isolation", "chroot", work, "rm", "-rf", "/opt/steelyard"])
        run(["buildah", "commit", "--quiet", "--format", "docker", *stamp, work, ROOTFS_IMAGE])
    finally:
        run(["buildah", "rm", work])


def fill(context: Path, wheels: Path) -> None:
    """Links where the file system allows, else copies. Raises BadBase: a bundle may hold an engine
    for each kind of CPU, and an image has one."""
    (context / "wheels").mkdir()
    found = sorted(wheels.glob("*.whl"))
    names = [wheel.name.partition("-")[0] for wheel in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadBase(
            f"{wheels} has several wheels of {', '.join(twice)}: leave the one that is for the "
            "machines on which the image will run"
        )
    for wheel in found:
        try:
            os.link(wheel, context / "wheels" / wheel.name)
        except OSError:
            shutil.copy(wheel, context / "wheels" / wheel.name)
    shutil.copy(HEALTHCHECK, context / HEALTHCHECK.name)
