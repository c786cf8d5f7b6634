"""Who listens where, and who holds a lock, as the kernel tells in /proc. Nothing is taken.

What belongs to other users shows its owner only to root; then a holder is not named.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

PROC = Path("/proc")
_LISTEN = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket."""

    address: str
    port: int
    inode: int
    owner: int = -1
    """Its user's number."""

    @property
    def wild(self) -> bool:
        """It takes connections to every address of its family."""
        return ip_address(self.address).is_unspecified


@dataclass(frozen=True, slots=True)
class Holder:
    """A process. Its name as `ps` shows it, cut short."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


def listeners(proc: Path = PROC) -> list[Listener]:
    """All of this network namespace."""
    return [*_table(proc / "net/tcp"), *_table(proc / "net/tcp6")]


def on_port(port: int, host: str, proc: Path = PROC) -> list[Listener]:
    """Those that keep `host` from listening on the port."""
    found = [one for one in listeners(proc) if one.port == port]
    try:
        wanted = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return found
    return [
        one
        for one in found
        if one.wild or wanted.is_unspecified or ip_address(one.address) == wanted
    ]


def holder_of(inode: int, proc: Path = PROC) -> Holder | None:
    """The process that has this socket open; None where we may not see it."""
    for pid in _pids(proc):
        if inode in _sockets(proc, pid):
            return Holder(pid, name_of(pid, proc))
    return None


def ports_of(pid: int, proc: Path = PROC) -> list[Listener]:
    """Where this process listens; empty where we may not see it."""
    owned = _sockets(proc, pid)
    return [one for one in listeners(proc) if one.inode in owned]


def locked_by(path: Path, proc: Path = PROC) -> Holder | None:
    """Who holds an exclusive `flock` on the file. None: nobody, or nobody of this PID namespace.
    Raises PermissionError where the file is out of this user's sight."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        lines = (proc / "locks").read_text().splitlines()
    except OSError:  # a kernel that keeps no such list: who has it open will do
        return _first_with(path, _pids(proc), proc)
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 00:1b:12345 0 EOF
        parts = line.split()
        if len(parts) < 6 or parts[1] != "FLOCK" or parts[3] != "WRITE":
            continue
        device, _, inode = parts[5].rpartition(":")
        if inode != str(found.st_ino):
            continue
        pid = int(parts[4])
        if device == _device(found):
            return Holder(pid, name_of(pid, proc))
        # File systems with volumes of their own (btrfs) show another device in this list.
        if holder := _first_with(path, [pid], proc):
            return holder
    return None


def name_of(pid: int, proc: Path = PROC) -> str:
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
        text = words.decode(errors="replace").strip() or (proc / str(pid) / "comm").read_text()
    except OSError:
        return ""
    return "".join(c if c.isprintable() else "?" for c in text.strip())[:60]


def _device(found: os.stat_result) -> str:
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"


def _first_with(path: Path, pids: Iterable[int], proc: Path) -> Holder | None:
    """The first of these processes that has the file open."""
    real = str(path.resolve())
    found = next((pid for pid in pids if real in _links(proc, pid)), None)
    return None if found is None else Holder(found, name_of(found, proc))


def _sockets(proc: Path, pid: int) -> set[int]:
    found = (_SOCKET.fullmatch(target) for target in _links(proc, pid))
    return {int(match[1]) for match in found if match}


def _links(proc: Path, pid: int) -> list[str]:
    """What the process has open; empty where we may not see it."""
    folder, found = f"{proc}/{pid}/fd", []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        with contextlib.suppress(OSError):  # closed in between
            found.append(os.readlink(f"{folder}/{name}"))
    return found


def _pids(proc: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())


def _table(path: Path) -> Iterator[Listener]:
    try:
        lines = path.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        parts = line.split()
        if len(parts) > 9 and parts[3] == _LISTEN:
            address, _, port = parts[1].partition(":")
            yield Listener(_address(address), int(port, 16), int(parts[9]), int(parts[7]))


def _address(text: str) -> str:
    """The kernel prints addresses as words in the machine's own byte order."""
    words = [int(text[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(text), 8)]
    raw = b"".join(words)
    if len(raw) == 4:
        return str(IPv4Address(raw))
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)
