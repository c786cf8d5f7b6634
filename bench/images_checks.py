"""What `bench.images` checks of the tree: that it repeats, boots, and helps itself."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.images_machine import Machine, NotThere, booted, can_boot, facts
from firmware_bridge.simulation import Simulation

ROOT = Path(__file__).resolve().parents[1]
BOARD = "/dev/appliance-mcu"
DIALOUT = 20
"""Debian's number of the group."""
CONFIG = "etc/steelyard/steelyard.toml"
BOARD_S = 8
SERVICE = "steelyard.service"


class Skip(Exception):
    """The check cannot be made here. Says why."""


@dataclass
class Bench:
    """What the checks share."""

    work: Path
    wheels: Path | None = None
    bundle: Path | None = None
    key: Path | None = None
    sources: Path | None = None
    rootfs: Path | None = None

    @property
    def tar(self) -> Path:
        return self.rootfs or self.work / "rootfs.tar"

    @property
    def tree(self) -> Path:
        """Unpacked, once."""
        tree = self.work / "tree"
        if not tree.exists():
            if not self.tar.exists():
                raise Skip("there is no tree: it could not be built, or --rootfs names none")
            tree.mkdir()
            subprocess.run(["tar", "--numeric-owner", "--xattrs", "-xpf", self.tar, "-C", tree],
                           check=True)  # fmt: skip
        return tree

    @property
    def console(self) -> Path:
        return self.work / "console.log"

    def source(self) -> list[str]:
        if self.bundle is not None and self.key is not None:
            return ["--bundle", str(self.bundle), "--key", str(self.key)]
        if self.wheels is not None:
            return ["--wheels", str(self.wheels)]
        raise Skip("name what to install: --wheels or --bundle with --key")

    def configure(self, device: str) -> None:
        """As an operator would, for a board that is soon impatient."""
        text = (ROOT / "images/rootfs/steelyard.toml").read_text()
        if device:
            limits = f"timeout_s = {BOARD_S}\npretimeout_s = {BOARD_S - 2}"
            text = text.replace('device = ""', f'device = "{device}"\n{limits}')
        (self.tree / CONFIG).write_text(text)


def build(kind: str, out: Path, *options: str) -> str:
    """Raises NotThere with the last line that it said, or Skip where a tool is missing."""
    command = [sys.executable, "-m", "images.build", kind, str(out), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = (done.stderr.strip().splitlines() or [""])[-1]
    if "is not installed" in said or "run this as root" in said:
        raise Skip(said)
    if done.returncode:
        raise NotThere(done.stderr.strip()[-2000:])
    return done.stdout.strip().splitlines()[-1]


def tree(bench: Bench) -> str:
    if bench.rootfs is not None:
        raise Skip(f"--rootfs {bench.rootfs.name} is used as it is")
    sources = ["--sources", str(bench.sources)] if bench.sources else []
    return build("rootfs", bench.tar, *bench.source(), *sources, "--twice")


def squashfs(bench: Bench) -> str:
    """Twice too: it is cheap."""
    if not bench.tar.exists():
        raise Skip("there is no tree: it was not built, and --rootfs names none")
    sums = [
        build("squashfs", bench.work / f"{n}.squashfs", "--rootfs", str(bench.tar)) for n in (1, 2)
    ]
    if sums[0].split()[0] != sums[1].split()[0]:
        raise NotThere("two file systems of one tree differ")
    return f"{(bench.work / '1.squashfs').stat().st_size >> 20} MiB, twice the same"


def ready(bench: Bench) -> None:
    """Raises Skip."""
    if why := can_boot():
        raise Skip(why)
    bench.configure("")


def keys_shown(machine: Machine) -> list[str]:
    return [word for word in machine.console.split() if word.startswith("sk-steelyard-")]


def boot(bench: Bench) -> str:
    """The first boot shows a key on the console, the second none; both answer."""
    ready(bench)
    bench.console.unlink(missing_ok=True)
    with booted(bench.tree, bench.console) as machine:
        machine.wait_serving()
        answer, shown = machine.chat(), keys_shown(machine)
        if len(shown) != 1:
            raise NotThere(f"the console shows {len(shown)} keys at the first boot")
        if shown[0] in machine.run("journalctl", "--no-pager"):
            raise NotThere("the journal has the admin key")
        sandboxed(machine)
        enforced = facts(machine)
    with booted(bench.tree, bench.console) as machine:
        machine.wait_serving()
        if machine.chat() != answer:
            raise NotThere("the second boot answers otherwise")
        if keys_shown(machine) != shown:
            raise NotThere("the second boot shows a key again")
    return f"{answer!r}; {enforced}"


def sandboxed(machine: Machine) -> None:
    """What the unit forbids is forbidden: asked of the daemon's own view. Raises NotThere."""
    pid = str(machine.main_pid())
    for path in ("/usr/x", "/etc/steelyard/x", "/opt/steelyard/x"):
        try:
            machine.run("nsenter", "--target", pid, "--mount", "--", "touch", path)
        except NotThere as error:
            if "Read-only" in str(error):
                continue
            raise
        raise NotThere(f"the daemon can write {path}")
    status = machine.run("cat", f"/proc/{pid}/status")
    rows = dict(row.split(":\t", 1) for row in status.splitlines() if ":\t" in row)
    if int(rows["CapEff"], 16) or rows["NoNewPrivs"] != "1" or rows["Seccomp"] != "2":
        raise NotThere(f"the daemon may do more than its unit says: {status}")
    if rows["Uid"].split()[0] == "0":
        raise NotThere("the daemon is root")


def engine(bench: Bench) -> str:
    """An engine that hangs is replaced by the daemon; systemd has nothing to do."""
    ready(bench)
    with booted(bench.tree, bench.console) as machine:
        machine.wait_serving()
        first = machine.pids("steelyard: engine")
        machine.freeze(first[0])
        took = machine.wait(lambda: answers_after(machine, first), "another engine answers", 180)
        if (count := machine.shows(SERVICE, "NRestarts")) != "0":
            raise NotThere(f"systemd restarted the daemon {count} times for it")
    return f"another engine answered after {took:.0f} s, the daemon stayed"


def answers_after(machine: Machine, engines: list[int]) -> bool:
    now = machine.pids("steelyard: engine")
    return bool(now) and now != engines and bool(machine.chat())


def daemon(bench: Bench) -> str:
    """A daemon that hangs no longer feeds the watchdog: systemd ends it and starts another."""
    ready(bench)
    with booted(bench.tree, bench.console) as machine:
        machine.wait_serving()
        machine.freeze(machine.main_pid())
        took = machine.wait(lambda: machine.shows(SERVICE, "NRestarts") == "1", "a restart", 180)
        machine.wait_serving()
        machine.chat()
        if "Watchdog timeout" not in machine.run("journalctl", "--no-pager", "-u", SERVICE):
            raise NotThere("it was restarted, but not by the watchdog")
    return f"watchdog timeout and restart after {took:.0f} s, then it answers again"


def board(bench: Bench) -> str:
    """A box in which everything hangs loses its power, gets it back, and serves."""
    ready(bench)
    flash = bench.work / "board.json"
    flash.unlink(missing_ok=True)
    try:
        twin = Simulation(
            {"STEELYARD_SIMULATED_STATE": str(flash), "STEELYARD_SIMULATED_OFF_MS": "500"}
        )
    except OSError as error:
        raise Skip(f"the board cannot be simulated here: {error}") from None
    with twin:
        os.chown(twin.path, 0, DIALOUT)
        os.chmod(twin.path, 0o660)
        bench.configure(BOARD)
        try:
            with booted(bench.tree, bench.console, f"{twin.path}:{BOARD}") as machine:
                return hang_all(machine, flash)
        finally:
            bench.configure("")


def hang_all(machine: Machine, flash: Path) -> str:
    """Raises NotThere."""
    machine.wait_serving()
    machine.wait(lambda: machine.board() == "armed", "the board is armed", 60)
    stopped = stop_all(machine.init)
    begun = time.monotonic()
    while cycles(flash) < 1:
        if time.monotonic() - begun > 120:
            raise NotThere("the board has not cut the power within 120 s")
        time.sleep(0.1)
    took = time.monotonic() - begun
    machine.power_off()
    machine.power_on()
    machine.wait_serving()
    return f"{stopped} processes hung, power cut after {took:.0f} s, then {machine.chat()!r}"


def stop_all(init: int) -> int:
    """SIGSTOP to all of the machine, PID 1 too: from out here even that one can be stopped."""
    space, count = Path(f"/proc/{init}/ns/pid").readlink(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "ns/pid").readlink() == space:
                os.kill(int(folder.name), signal.SIGSTOP)
                count += 1
        except OSError:
            continue  # it has ended
    return count


def cycles(flash: Path) -> int:
    """The times that the board has cut the power."""
    try:
        return int(json.loads(flash.read_text())["power_cycles"])
    except (OSError, ValueError, KeyError):
        return 0
