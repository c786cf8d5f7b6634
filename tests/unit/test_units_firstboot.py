"""The first boot's script with the real command, cut off and repeated."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from images.layout import HERE

SCRIPT = HERE / "firstboot/firstboot"


@dataclass
class Machine:
    """A box before its first boot."""

    home: Path

    @property
    def state(self) -> Path:
        return self.home / "state"

    def boot(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(SCRIPT)],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "STEELYARD": str(self.home / "steelyard"),
                "STEELYARD_CONFIG": str(self.home / "steelyard.toml"),
                "STATE_DIRECTORY": str(self.state),
                "MACHINE_ID": str(self.home / "machine-id"),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.state.mkdir()
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "steelyard.toml").write_text("[server]\nport = 8421\n")
    command = tmp_path / "steelyard"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m appliance "$@"\n')
    command.chmod(0o755)
    return made


def shown(text: str) -> str:
    return next(word for word in text.split() if word.startswith("sk-steelyard-"))


def test_first_boot_makes_ca_and_key_and_a_second_one_is_not_needed(machine: Machine) -> None:
    done = machine.boot()
    assert (done.returncode, done.stderr) == (0, "")
    key = KeyStore(machine.state / FILE_NAME).authenticate(shown(done.stdout))
    assert key is not None
    assert key.scopes == {"admin"}
    ca = (machine.state / "tls/ca.pem").read_text()
    assert "BEGIN CERTIFICATE" in ca
    assert (machine.state / "firstboot.done").exists()
    assert not (machine.state / "firstboot.begun").exists()
    # The console has the key, and no file and no journal.
    files = (path for path in machine.state.rglob("*") if path.is_file())
    assert all(shown(done.stdout).encode() not in path.read_bytes() for path in files)


def test_boot_that_was_cut_off_shows_a_key_that_works(machine: Machine) -> None:
    """The power went after the key was made and before anybody could read it."""
    KeyStore(machine.state / FILE_NAME).create("admin", ["admin"])
    done = machine.boot()
    assert done.returncode == 0, done.stderr
    store = KeyStore(machine.state / FILE_NAME)
    assert store.authenticate(shown(done.stdout)) is not None
    assert sum(key.live(store.today()) for key in store.list()) == 1


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda home: (home / "machine-id").write_text(""), "no machine id"),
        (lambda home: (home / "steelyard").unlink(), "nothing is installed"),
        (lambda home: (home / "steelyard.toml").write_text("[sever]\n"), "cannot be used"),
        (lambda home: (home / "state").rmdir(), "cannot be written"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(machine: Machine, spoil: object, says: str) -> None:
    assert callable(spoil)
    spoil(machine.home)
    done = machine.boot()
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stdout == ""
    assert not (machine.state / "firstboot.done").exists()
