"""Tiny signed bundles, and a machine in files on which updates can be tried and cut off."""

import hashlib
import shutil
from pathlib import Path

from appliance.bundle.create import sign
from appliance.bundle.filling import python_version
from appliance.bundle.fitting import this_glibc, this_platform
from appliance.bundle.folder import Opened, Say, Tell, open_bundle
from appliance.bundle.layout import LISTED, Layout
from appliance.bundle.manifest import NAME, Entry, Manifest
from appliance.bundle.record import Record, reached
from appliance.bundle.signing import SecretKey

KEY = SecretKey(b"keyid-01", bytes(range(32)))
STRANGER = SecretKey(b"keyid-02", bytes(range(1, 33)))
PLAIN = {"README.md": b"# Steelyard\n", "docs/install.md": b"how to\n" * 1000}


def entry_of(path: str, data: bytes, role: str = "document", unpacked: int = 0) -> Entry:
    return Entry(path, len(data), hashlib.sha256(data).hexdigest(), role, (), unpacked)


def make_manifest(
    files: tuple[Entry, ...], version: str = "0.2.0", min_version: str = "0.1.0"
) -> Manifest:
    return Manifest(
        version=version,
        min_version=min_version,
        created="2026-11-30T12:00:00Z",
        platform=this_platform(),
        glibc=this_glibc(),
        pythons=(python_version(),),
        migrations=("m001_entries",),
        files=files,
    )


def make_bundle(
    folder: Path,
    files: dict[str, bytes] | None = None,
    *,
    roles: dict[str, str] | None = None,
    version: str = "0.2.0",
    min_version: str = "0.1.0",
    key: SecretKey = KEY,
) -> Path:
    """A signed bundle of these files, which are documents unless `roles` says otherwise."""
    entries = []
    for path, data in (PLAIN if files is None else files).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        role = (roles or {}).get(path, "document")
        entries.append(entry_of(path, data, role, len(data) if role == "wheel" else 0))
    sign(folder, make_manifest(tuple(entries), version, min_version), key, f"test {version}")
    return folder


def opened(folder: Path) -> Opened:
    return open_bundle(folder, [KEY.public])


class FileMachine:
    """A box of three files: which version runs, which version its ledger is of, and its backup.

    A version that starts takes the ledger over, and an older one then refuses it, as with a real
    ledger. `bad` is the version that never becomes ready."""

    def __init__(self, home: Path, bad: str = "", free: int = 1 << 40) -> None:
        self.layout = Layout(home / "root")
        self._home = home
        self._bad = bad
        self._free = free

    def install_first(self, bundle: Path) -> None:
        """As after install.sh: slot a is in use and runs."""
        self.layout.base.mkdir(parents=True)
        self._copy_list("a", bundle)
        self.layout.switch("a")
        self._set("ledger", self._version("a"))
        self._set("running", self._version("a"))

    def get(self, name: str) -> str:
        file = self._home / name
        return file.read_text() if file.exists() else ""

    def room(self) -> int:
        return self._free

    def fill(self, name: str, opened: Opened, tell: Tell) -> None:
        shutil.rmtree(self.layout.slot(name), ignore_errors=True)
        reached("cleared")
        self._copy_list(name, opened.folder)
        reached("filled")

    def bring(self, name: str, opened: Opened, say: Say) -> None: ...

    def prove(self, name: str) -> None: ...

    def backup(self, name: str, version: str) -> str:
        self._set(f"backup-{version}", self.get("ledger"))
        return str(self._home / f"backup-{version}")

    def refused(self, name: str) -> str:
        newer = self._version(name) < self.get("ledger")
        return "the ledger is of a newer version" if newer else ""

    def restore(self, name: str, backup: str) -> None:
        self._set("ledger", Path(backup).read_text())

    def place(self, name: str) -> None:
        self._set("units", self._version(name))

    def note(self, record: Record) -> None:
        self._set("noted", f"{record.phase} {record.new_version}")

    def stop(self) -> None:
        self._set("running", "")

    def start(self) -> str | None:
        name = self.layout.in_use()
        assert name is not None
        return self.boot(name)

    def boot(self, name: str) -> str:
        """The box's own start: why it is not ready, or empty."""
        if self.refused(name):
            return "the ledger is of a newer version"
        self._set("ledger", self._version(name))
        if self._version(name) == self._bad:
            self._set("running", "")
            return "it crashed"
        self._set("running", self._version(name))
        return ""

    def _version(self, name: str) -> str:
        made = self.layout.installed(name)
        return made.version if made is not None else ""

    def _copy_list(self, name: str, bundle: Path) -> None:
        slot = self.layout.slot(name)
        slot.mkdir(parents=True)
        part = slot / "part"
        shutil.copy(bundle / NAME, part)
        part.rename(slot / LISTED)

    def _set(self, name: str, text: str) -> None:
        part = self._home / f".{name}"
        part.write_text(text)
        part.rename(self._home / name)
