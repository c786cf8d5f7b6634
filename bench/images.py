"""`python -m bench.images --wheels FOLDER`: whether the images are what they promise.

Builds the tree twice and compares, boots it, hangs the engine, the daemon and all of it, runs the
container, installs without a network. Needs root and Debian's tools (images/README.md); what is
missing is skipped, and said. Every check is yes or no; no figure is held against a limit.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import (
    images_checks,
    images_container,
    images_offline,
    images_setup,
    images_update,
)
from bench.images_checks import Bench, Skip
from bench.images_machine import NotThere
from bench.servers import unwind_on_sigterm

CHECKS: dict[str, Callable[[Bench], str]] = {
    "tree": images_checks.tree,
    "squashfs": images_checks.squashfs,
    "boot": images_checks.boot,
    "setup": images_setup.setup,
    "engine": images_checks.engine,
    "daemon": images_checks.daemon,
    "board": images_checks.board,
    "update": images_update.update,
    "container": images_container.container,
    "offline": images_offline.offline,
}
"""In the order in which they are made; each says what it saw."""


@dataclass(slots=True)
class Result:
    check: str
    came_to: str = "ok"
    """ok, failed or skipped."""
    detail: str = ""


def make(check: str, bench: Bench) -> Result:
    try:
        return Result(check, "ok", CHECKS[check](bench))
    except Skip as why:
        return Result(check, "skipped", str(why))
    except NotThere as why:
        return Result(check, "failed", str(why))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("bench.images", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(CHECKS), help="Checks, with commas between.")
    parser.add_argument("--wheels", type=Path, help="From `python -m images.build wheels`.")
    parser.add_argument("--bundle", type=Path, help="A signed bundle, in place of the wheels.")
    parser.add_argument("--key", type=Path, help="The key that the bundle is signed with.")
    parser.add_argument("--sources", type=Path, help="File with Debian's archives.")
    parser.add_argument("--rootfs", type=Path, help="A tree that is built already.")
    parser.add_argument("--work", type=Path, help="Folder that is kept. Default: one that is not.")
    parser.add_argument("--json", type=Path, help="File for the results.")
    given = parser.parse_args(arguments)
    if unknown := set(given.only.split(",")) - set(CHECKS):
        parser.error(f"unknown checks: {', '.join(sorted(unknown))}")
    unwind_on_sigterm()
    folder = (
        nullcontext(given.work) if given.work else tempfile.TemporaryDirectory(prefix="images-")
    )
    with folder as work:
        Path(work).mkdir(parents=True, exist_ok=True)
        bench = Bench(Path(work).absolute(), given.wheels, given.bundle, given.key, given.sources,
                      given.rootfs)  # fmt: skip
        results = []
        for check in given.only.split(","):
            begun = time.monotonic()
            results.append(made := make(check, bench))
            print(f"{check:10} {made.came_to:8} {time.monotonic() - begun:5.0f} s  {made.detail}",
                  flush=True)  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    return int(any(one.came_to == "failed" for one in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
