"""The text in a bundle that says what is in it."""

import time

from appliance import __version__
from appliance.support.pack import Bundle

_ABOUT = {
    "about.json": "version, build, host, user, where things are",
    "config.toml": "the configuration in effect; defaults commented out",
    "packages.txt": "Python packages and their versions",
    "hardware.json": "CPU, memory, disks, GPUs, kernel, limits; no serial numbers",
    "log.txt": "the newest lines of the box's log",
    "kernel-log.txt": "the kernel's warnings",
    "unit.txt": "the systemd unit",
    "ready.json": "GET /readyz",
    "props.json": "GET /props",
    "model.json": "GET /admin/model: the model, and how going over to another stands",
    "metrics.txt": "GET /metrics",
    "admin-status.json": "GET /admin/status",
    "alarms.json": "GET /admin/alarms",
    "board.json": "GET /admin/board",
    "control.json": "GET /admin/control",
    "status.json": "steelyard status --json",
    "ledger.json": "the newest states of the ledger: times, counts, outcomes; no texts, no names",
    "models.json": "manifests of models, tuned settings, names of forecasters",
    "installed.json": "the installed bundle's manifest, and how far an update has come",
    "files.txt": "names and sizes of the state's files",
    "doctor.json": "steelyard doctor --json",
    "manifest.json": "sizes and SHA-256 of these files, how much was struck out of each",
    "README.txt": "this text",
}


def readme(bundle: Bundle, wall: float) -> str:
    """What is in the bundle, for whoever opens it."""
    names = sorted({*bundle.members, "README.txt", "manifest.json"})
    struck = sum(sum(counts.values()) for counts in bundle.struck.values())
    lines = [
        "A support bundle of a Steelyard box",
        f"Made {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(wall))} by steelyard "
        f"{__version__}.",
        "",
        "It holds no prompts, no answers, no keys and no names of keys' owners from the ledger.",
        "Passwords, keys and tokens were struck out of every file here and show as [redacted]:",
        f"{struck} of them. The log and the alarms name client addresses, keys by their names,",
        "and request ids; look through log.txt and alarms.json before you hand this over, if",
        "those must stay with you.",
        "",
    ]
    lines += [f"  {name:<18} {_ABOUT.get(name, '')}".rstrip() for name in names]
    if bundle.missing:
        lines += ["", "Not in it:"]
        lines += [f"  {name:<18} {why}" for name, why in sorted(bundle.missing.items())]
    return "\n".join(lines) + "\n"
