#!/usr/bin/python3
"""The set-up assistant of the text console: network, time, password, who is served.

Standard library only, and lines rather than a drawn screen, so that it works on a serial line and
through a screen reader. Every step writes one file whole, or calls one command; what was done
before a power cut stays, and the assistant comes back until it was finished.
"""

import getpass
import ipaddress
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

STEELYARD = "/opt/steelyard/current/venv/bin/steelyard"
NETWORK = "etc/systemd/network/70-steelyard.network"
TIME = "etc/systemd/timesyncd.conf.d/70-steelyard.conf"
CONFIG = "etc/steelyard/steelyard.toml"
DONE = "var/lib/steelyard-setup/done"
LEAST_PASSWORD = 8
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
_INTERFACE = re.compile(r"[^/\s\x00-\x1f]{1,15}")


class Wrong(Exception):
    """What was entered cannot be used, or a command failed. Says why."""


@dataclass(frozen=True, slots=True)
class Static:
    """An address that stays. `gateway` and `dns` may be empty: a site may have neither."""

    address: str
    gateway: str = ""
    dns: tuple[str, ...] = ()


def static(address: str, gateway: str = "", dns: str = "") -> Static:
    """From what was typed: ADDRESS/PREFIX, an address or nothing, addresses with blanks between.
    Raises Wrong."""
    try:
        at = ipaddress.ip_interface(address.strip())
        if "/" not in address:
            raise Wrong(f"{address.strip()} lacks its prefix: write it as {address.strip()}/24")
        way = ipaddress.ip_address(gateway.strip()) if gateway.strip() else None
        names = tuple(str(ipaddress.ip_address(one)) for one in dns.replace(",", " ").split())
    except ValueError as error:
        raise Wrong(f"{error}") from None
    if at.ip.is_multicast or at.ip.is_unspecified or at.ip.is_loopback:
        raise Wrong(f"{at.ip} cannot be the address of an interface")
    if at.version == 4 and at.network.prefixlen < 31 and at.ip in (at.network[0], at.network[-1]):
        raise Wrong(f"{at.ip} is the network's own address or its broadcast address")
    if way is not None and (way.version != at.version or way not in at.network or way == at.ip):
        raise Wrong(f"the gateway {way} is not another address of {at.network}")
    return Static(str(at), str(way or ""), names)


def network_file(interface: str, chosen: Static | None) -> str:
    """For systemd-networkd; None: by DHCP. Raises Wrong."""
    if not _INTERFACE.fullmatch(interface):
        raise Wrong(f"{interface!r} is no name of an interface")
    lines = ["# Written by the set-up assistant.", "[Match]", f"Name={interface}", "", "[Network]"]
    if chosen is None:
        lines += ["DHCP=yes", "LinkLocalAddressing=yes"]
    else:
        lines += ["DHCP=no", f"Address={chosen.address}"]
        lines += [f"Gateway={chosen.gateway}"] if chosen.gateway else []
        lines += [f"DNS={one}" for one in chosen.dns]
    return "\n".join(lines) + "\n"


def time_file(server: str) -> str:
    """For systemd-timesyncd. Raises Wrong."""
    if not _HOST.fullmatch(server):
        raise Wrong(f"{server!r} is neither a host name nor an address")
    return f"# Written by the set-up assistant.\n[Time]\nNTP={server}\nFallbackNTP=\n"


def moment(text: str) -> str:
    """A UTC time as timedatectl takes it. Raises Wrong."""
    try:
        return f"{datetime.strptime(text.strip(), '%Y-%m-%d %H:%M'):%Y-%m-%d %H:%M:00}"
    except ValueError:
        raise Wrong("write the time as 2027-01-31 14:05, in UTC") from None


def listening_on(text: str, host: str) -> str:
    """The configuration with another server.host. Raises Wrong where that line is not as it
    was shipped: then a person edits it."""
    found, count = re.subn(r'(?m)^host = "[^"\n]*"$', f'host = "{host}"', text)
    if count != 1:
        raise Wrong(f"/{CONFIG} has no line `host = …` of its own: edit it by hand")
    return found


def interfaces(folder: Path = Path("/sys/class/net")) -> list[str]:
    """Those with hardware behind them."""
    if not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if (one / "device").exists())


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """All of it or nothing, whatever happens to the power. Raises Wrong."""
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(new, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
        new.replace(path)
    except OSError as error:
        raise Wrong(f"{path} cannot be written: {error.strerror}") from None


def run(command: Sequence[str], told: str | None = None) -> str:
    """What the command says on its standard output. Raises Wrong."""
    try:
        done = subprocess.run(
            command, input=told, capture_output=True, text=True, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Wrong(f"{command[0]}: {error}") from None
    if done.returncode:
        raise Wrong(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@dataclass
class Assistant:
    """The conversation. Everything that reaches out of it can be replaced."""

    root: Path = Path("/")
    ask: Callable[[str], str] = input
    secret: Callable[[str], str] = getpass.getpass
    tell: Callable[[str], None] = print
    run: Callable[..., str] = run
    found: Callable[[], list[str]] = interfaces

    def talk(self) -> int:
        """Until it was finished; the exit status."""
        self.tell("\nSteelyard set-up. Each step can be done again; Enter alone goes back.")
        steps = {
            "1": ("Network: DHCP or a static address", self.network),
            "2": ("Time: the site's time server, or by hand", self.time),
            "3": ("Password of root, for the login at this console", self.password),
            "4": ("Serve other machines: makes a key for an app", self.serve),
        }
        while True:
            self.tell("")
            for number, (what, _) in steps.items():
                self.tell(f"  {number}  {what}")
            self.tell("  q  Finish: this console then asks for a login\n")
            chosen = self.ask("Step: ").strip()
            if chosen == "q" and self.finish():
                return 0
            if chosen in steps:
                self._try(steps[chosen][1])

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Wrong as error:
            self.tell(f"  Not done: {error}")

    def network(self) -> None:
        names = self.found()
        if not names:
            raise Wrong("this machine has no network interface")
        self.tell(f"  Interfaces: {', '.join(names)}")
        name = self.ask(f"  Interface [{names[0]}]: ").strip() or names[0]
        if name not in names:
            raise Wrong(f"there is no interface {name}")
        chosen: Static | None = None
        if address := self.ask("  Static address with prefix, or Enter for DHCP: ").strip():
            gateway = self.ask("  Gateway, or Enter for none: ")
            chosen = static(address, gateway, self.ask("  DNS servers, or Enter for none: "))
        write_whole(self.root / NETWORK, network_file(name, chosen))
        self.run(["systemctl", "restart", "systemd-networkd.service"])
        self.tell(f"  {name}: {chosen.address if chosen else 'DHCP'}")

    def time(self) -> None:
        server = self.ask("  Time server of the site, or Enter to set the clock by hand: ").strip()
        if server:
            write_whole(self.root / TIME, time_file(server))
            self.run(["systemctl", "restart", "systemd-timesyncd.service"])
            self.run(["timedatectl", "set-ntp", "true"])
        elif now := self.ask("  Time in UTC, as 2027-01-31 14:05: ").strip():
            at = moment(now)
            self.run(["timedatectl", "set-ntp", "false"])
            self.run(["timedatectl", "set-time", f"{at} UTC"])
        self.tell(f"  It is {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}")

    def password(self) -> None:
        first = self.secret("  Password: ")
        if len(first) < LEAST_PASSWORD:
            raise Wrong(f"it has fewer than {LEAST_PASSWORD} characters")
        if any(ord(sign) < 32 for sign in first) or first != self.secret("  Again: "):
            raise Wrong("the two are not the same, or hold a control character")
        self.run(["chpasswd"], f"root:{first}\n")
        self.tell("  root has a password.")

    def serve(self) -> None:
        """The key first: the box does not start for others without one."""
        config = self.root / CONFIG
        try:
            changed = listening_on(config.read_text("utf-8"), "0.0.0.0")
        except OSError as error:
            raise Wrong(f"/{CONFIG} cannot be read: {error.strerror}") from None
        name = self.ask("  Name of the app: ").strip()
        if not _NAME.fullmatch(name):
            raise Wrong("a name has letters, digits, dots and dashes")
        key = self.run([STEELYARD, "keys", "create", name, "--scope", "infer"]).strip()
        self.tell(f"\n  Key of {name}, shown this once:\n\n    {key}\n")
        write_whole(config, changed)
        self.run(["systemctl", "restart", "steelyard.service"])
        self.tell("  The box serves https://ADDRESS:8421/v1, with its own CA:")
        self.tell("  `steelyard tls export-ca FILE` gives it to you for the clients.")

    def finish(self) -> bool:
        """False when it is to go on: without a password nobody could log in."""
        shadow = self.root / "etc/shadow"
        locked = not has_password(shadow.read_text("utf-8") if shadow.exists() else "")
        if locked and self.ask("  root has no password: nobody can log in. Finish? [y/N] ") != "y":
            return False
        write_whole(self.root / DONE, "")
        return True


def has_password(shadow: str) -> bool:
    """Whether root may log in with one."""
    fields = next((row.split(":") for row in shadow.splitlines() if row[:5] == "root:"), [])
    return len(fields) > 1 and fields[1][:1] not in ("", "!", "*")


if __name__ == "__main__":
    try:
        sys.exit(Assistant().talk())
    except (EOFError, KeyboardInterrupt):
        sys.exit(1)
