"""The set-up assistant in a booted machine, as its unit runs it: with what that unit may do, and
answers from a file in place of a console. Every line is one answer; an empty one keeps what is."""

import shutil
import subprocess
import time

from bench.images_checks import SERVICE, Bench, ready
from bench.images_machine import Machine, NotThere, booted

UNIT = "steelyard-setup.service"
DROP_IN = f"etc/systemd/system/{UNIT}.d/10-bench.conf"
ANSWERS, SAID = "/run/bench-answers", "/run/bench-said"
CONSOLE = f"""[Unit]
ConditionPathExists=
[Service]
Type=oneshot
Restart=no
StandardInput=file:{ANSWERS}
StandardOutput=file:{SAID}
StandardError=journal
TTYPath=
TTYReset=no
TTYVHangup=no
ExecStopPost=
"""


def setup(bench: Bench) -> str:
    """Time, root's password, other machines, two keys; then the box serves all of its networks."""
    ready(bench)
    tree = bench.work / "set-up"  # the other checks ask without a key
    subprocess.run(["cp", "--archive", "--reflink=auto", str(bench.tree), str(tree)], check=True)
    drop_in = tree / DROP_IN
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text(CONSOLE)
    try:
        with booted(tree, bench.console) as machine:
            machine.wait_serving()
            return answered(machine, f"{int(time.time())}")
    finally:
        shutil.rmtree(tree)


def answers(mark: str) -> list[str]:
    """In the order of the steps. The machine has no network but its loopback."""
    language, network = "", ""
    login = ["a password of root", "a password of root"]
    others = ["2", "box.site", f"app-{mark}"]
    admin = ["2", f"admin-{mark}"]
    board, model = "", ""
    apply, noted, finish = "y", "y", "y"
    return [language, network, "2", "192.0.2.1", *login, *others, *admin, board, model,
            apply, noted, finish]  # fmt: skip


def answered(machine: Machine, mark: str) -> str:
    """Raises NotThere."""
    text = "\\n".join(answers(mark))
    machine.run("sh", "-c", f"printf '{text}\\n' > {ANSWERS}")
    machine.run("systemctl", "start", UNIT)
    said = machine.run("cat", SAID)
    keys = [word for word in said.split() if word.startswith("sk-steelyard-")]
    if len(keys) != 2 or "Finished" not in said:
        raise NotThere(f"the assistant did not come to its end: {said[-1000:]}")
    if any(key in machine.run("journalctl", "--no-pager") for key in keys):
        raise NotThere("the journal has a key")
    shadow = machine.run("grep", "^root:", "/etc/shadow")
    if shadow.split(":")[1][:1] != "$":
        raise NotThere("root has no password")
    machine.wait_serving()
    shown = machine.run("/usr/local/bin/steelyard", "config", "show")
    if 'host = "0.0.0.0"' not in shown or "box.site" not in shown:
        raise NotThere("the configuration is not what was answered")
    return f"two keys, root's password, TLS name; {SERVICE} serves all networks"
