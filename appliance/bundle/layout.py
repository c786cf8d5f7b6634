"""Where things lie on a machine, and which slot is in use. Standard library only.

/opt/steelyard/slots/a, b   a whole installation each: venv/, system/, bundle.json
/opt/steelyard/current      a link to the slot in use; it is switched in one step
/opt/steelyard/boot         what looks after an update at boot, outside of both slots
/opt/steelyard/update.json  how far an update has come
/etc/steelyard              the configuration, and the keys that bundles must be signed with
"""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from appliance.bundle import durable, manifest
from appliance.bundle.errors import BundleError
from appliance.bundle.manifest import Manifest
from appliance.bundle.minisign import PublicKey, parse_keys, read_small

SLOTS = ("a", "b")
LISTED = "bundle.json"
STATE_DIR = "/var/lib/steelyard"


@dataclass(frozen=True, slots=True)
class Layout:
    """All paths of an installation below `root`, which is `/` on a machine of its own."""

    root: Path = Path("/")

    @property
    def base(self) -> Path:
        return self.root / "opt/steelyard"

    @property
    def current(self) -> Path:
        return self.base / "current"

    @property
    def boot(self) -> Path:
        return self.base / "boot"

    @property
    def record(self) -> Path:
        return self.base / "update.json"

    @property
    def lock(self) -> Path:
        return self.base / "update.lock"

    @property
    def command(self) -> Path:
        return self.root / "usr/local/bin/steelyard"

    @property
    def config(self) -> Path:
        return self.root / "etc/steelyard/steelyard.toml"

    @property
    def backups(self) -> Path:
        return self.root / "var/backups/steelyard"

    def state_dir(self) -> Path:
        """The box's state directory, as the configuration names it. Raises BundleError."""
        try:
            found = tomllib.loads(self.config.read_text("utf-8")).get("server", {})
            named = found.get("state_dir", STATE_DIR)
        except FileNotFoundError:
            named = STATE_DIR
        except (OSError, ValueError, AttributeError) as error:
            raise BundleError(
                f"{self.config} cannot be read: {error}. `steelyard config check` tells more"
            ) from None
        if not isinstance(named, str) or not named.startswith("/"):
            raise BundleError(f"{self.config}: server.state_dir must be an absolute path")
        return self.root / named.lstrip("/")

    @property
    def trusted(self) -> Path:
        return self.root / "etc/steelyard/bundle.pub"

    def slot(self, name: str) -> Path:
        return self.base / "slots" / name

    def python(self, name: str) -> Path:
        return self.slot(name) / "venv/bin/python"

    def in_use(self) -> str | None:
        """The slot that `current` names; None where nothing is installed."""
        try:
            name = self.current.readlink().name
        except OSError:
            return None
        return name if name in SLOTS else None

    def switch(self, name: str) -> None:
        """Puts a slot in use, for whatever is started from now on."""
        durable.replace_link(self.current, f"slots/{name}")

    def installed(self, name: str) -> Manifest | None:
        """What a slot was made of; None where it is empty or was not finished."""
        try:
            data = (self.slot(name) / LISTED).read_bytes()
        except OSError:
            return None
        try:
            return manifest.parse(data)
        except BundleError:
            return None

    def digest(self, name: str) -> str:
        """Names the bundle that a slot was made of; empty where it was not finished."""
        try:
            return hashlib.sha256((self.slot(name) / LISTED).read_bytes()).hexdigest()
        except OSError:
            return ""

    def trusted_keys(self) -> tuple[PublicKey, ...]:
        """Raises BundleError where there are none."""
        if not self.trusted.exists():
            raise BundleError(
                f"{self.trusted} is missing, and with it the public key that bundles must be "
                "signed with: write it there, or give --key"
            )
        return parse_keys(read_small(self.trusted))


def other(name: str) -> str:
    return SLOTS[1 - SLOTS.index(name)]
