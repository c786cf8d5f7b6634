"""What `bench.images` checks of the container: built, and run as an operator would run it."""

import json
import os
import shutil
import subprocess
import time

from bench.images_checks import Bench, Skip, build
from bench.images_machine import NotThere

NAME = "localhost/steelyard-bench"
# Works inside other containers too: without control groups of its own, and with the limits that are
# in force already.
_RUNTIME = ("--runtime", "runc", "--cgroup-manager", "cgroupfs")
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_HARD = ("--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all",
         "--security-opt", "no-new-privileges")  # fmt: skip
PYTHON = "/opt/steelyard/current/venv/bin/python"
CHECK = "/usr/libexec/steelyard/healthcheck"
START_S = 240.0
_CHAT = """
import json, ssl, sys, urllib.request
body = {"model": "default", "max_tokens": 24, "temperature": 0, "messages": [
    {"role": "user", "content": "What is the capital of France?"}]}
asked = urllib.request.Request("https://127.0.0.1:8421/v1/chat/completions",
    json.dumps(body).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + sys.argv[1]})
ca = ssl.create_default_context(cafile="/var/lib/steelyard/tls/ca.pem")
answer = urllib.request.urlopen(asked, timeout=120, context=ca)
print(json.load(answer)["choices"][0]["message"]["content"])
"""


def container(bench: Bench) -> str:
    """Non-root, read-only, without a network: refuses to serve without a key, then answers."""
    if bench.wheels is None or not bench.tar.exists():
        raise Skip("needs --wheels, and a tree as its base")
    archive = bench.work / "image.tar"
    build("container", archive, "--wheels", str(bench.wheels), "--rootfs", str(bench.tar),
          "--name", NAME)  # fmt: skip
    missing = [tool for tool in ("podman", "runc") if shutil.which(tool) is None]
    if missing:
        size = archive.stat().st_size >> 20
        raise Skip(f"built ({size} MiB); to run it: apt install {' '.join(missing)}")
    volume = f"steelyard-bench-{os.getpid()}"
    try:
        return run(volume)
    finally:
        podman("rm", "--force", "--time", "0", volume)
        podman("volume", "rm", "--force", volume)


def run(volume: str) -> str:
    """Raises NotThere."""
    options = (*_LIMITS, *_HARD, "--volume", f"{volume}:/var/lib/steelyard")
    refused = podman("run", "--rm", *options, NAME)
    if refused.returncode != 1 or "keys create" not in refused.stderr:
        raise NotThere(f"without a key it should refuse to serve: {refused.stderr[-400:]}")
    key = wanted("run", "--rm", *options, NAME, "keys", "create", "bench").strip()
    wanted("run", "--detach", "--name", volume, *options, NAME)
    begun = time.monotonic()
    while podman("exec", volume, PYTHON, CHECK).returncode:
        if time.monotonic() - begun > START_S:
            raise NotThere(f"never healthy: {podman('logs', volume).stderr[-600:]}")
        time.sleep(0.5)
    answer = wanted("exec", volume, PYTHON, "-c", _CHAT, key).strip()
    stayed(volume)
    wanted("stop", "--time", "60", volume)
    code = wanted("inspect", "--format", "{{.State.ExitCode}}", volume).strip()
    if code != "0":
        raise NotThere(f"SIGTERM ended it with {code}")
    return f"refuses without a key; {answer!r} over TLS; healthy; SIGTERM ends it with 0"


def stayed(name: str) -> None:
    """It is what its file says. Raises NotThere."""
    if wanted("exec", name, "id", "-u").strip() == "0":
        raise NotThere("it runs as root")
    if not podman("exec", name, "touch", "/opt/steelyard/x").returncode:
        raise NotThere("its root can be written")
    found = json.loads(wanted("image", "inspect", NAME))[0]
    if not any(key.lower() == "healthcheck" and value for key, value in found.items()):
        raise NotThere("the image has no health check")


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["podman", *_RUNTIME, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def wanted(*arguments: str) -> str:
    """Standard output. Raises NotThere."""
    done = podman(*arguments)
    if done.returncode:
        raise NotThere(f"podman {' '.join(arguments)[:60]}: {done.stderr.strip()[-400:]}")
    return done.stdout
