"""docs/recovery.md on a real box: every command in it is run, in its order, and does what it says.

What only a machine with systemd has (`journalctl`, `timedatectl`) is named here and not run;
starting and stopping the unit is starting and stopping a daemon.
"""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from appliance.accounts.keys import KeyStore
from tests.box.asking import ask, check_complete
from tests.box.ledgered import Ledgered, Row, check_chain, settle
from tests.box.running import RunningBox

PAGE = (Path(__file__).resolve().parents[2] / "docs/recovery.md").read_text()
STATE, STICK = "/var/lib/steelyard", "/mnt/usb"
PASSPHRASE_FILE = "/etc/steelyard/backup-passphrase"
RUN = {"cp", "mv", "mkdir", "df", "du", "ls"}
NOT_RUN = {"journalctl", "timedatectl"}
TELLS = "steelyard doctor"
"""Ends with 1 where it finds something, which is up to the machine that this runs on."""
ENGINE = {"max_sequences": 3, "context": 1024}


FOLLOWED = (
    "Before anything happens",
    "The admin key is lost",
    "The disk died, or the machine",
    "The ledger is damaged",
    "The power went",
    "The disk is full",
    "The engine does not start",
    "The board has latched",
    "The clock is wrong",
)
"""The sections whose commands are run below."""


def blocks(section: str) -> list[list[str]]:
    """The commands under a heading, block by block."""
    assert section in FOLLOWED
    return found_under(section)


def found_under(section: str) -> list[list[str]]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    return [block.splitlines() for block in found]


def secrets(said: str) -> list[str]:
    """Keys that are shown whole."""
    return re.findall(r"sk-steelyard-[\w-]{20,}", said)


def serves(box: RunningBox, key: str) -> bool:
    """Whether it answers, and takes the admin key."""
    check_complete(box, ask(box, max_tokens=4))
    headers = {"Authorization": f"Bearer {key}"}
    return box.http.get("/admin/status", headers=headers).status_code == 200


class Site:
    """A box, a stick, and an operator who follows the page."""

    def __init__(self, home: Path, stick: Path, running: ExitStack) -> None:
        self.home, self.stick, self._running = home, stick, running
        self.state = home / "state"
        self.box: RunningBox | None = None
        self.admin_key = ""
        """The newest that is good."""
        self.passphrase = stick.parent / "passphrase"
        self.passphrase.write_text("correct horse battery staple\n")

    def start(self) -> RunningBox:
        self.box = self._running.enter_context(
            RunningBox.start(self.home, arguments=["--simulate-board"], engine=ENGINE)
        )
        self.admin_key = next(iter(secrets(self.box.log)), self.admin_key)
        return self.box

    def stop(self) -> None:
        if self.box is not None:
            assert self.box.stop() == 0
            self.box = None

    def backed_up(self) -> list[Row]:
        """Takes a backup; the rows that are in it."""
        box, ledger = self.box or self.start(), Ledgered(self.state)
        settle(box, ledger)
        rows = ledger.rows()
        self.follow(["steelyard backup /mnt/usb"])
        return rows

    def newest(self) -> Path:
        found = [path for path in self.stick.glob("*.steelyard-backup") if "with" not in path.name]
        return max(found, key=lambda path: path.name)

    def follow(self, lines: list[str], fails: tuple[str, ...] = ()) -> str:
        """Runs them; all must succeed but those that begin as one of `fails`. What they said."""
        return "\n".join(self._follow(line, fails=line.startswith(fails)) for line in lines)

    def _follow(self, line: str, *, fails: bool) -> str:
        if line == "systemctl stop steelyard":
            self.stop()
            return ""
        if line == "systemctl start steelyard":
            return self.start().log
        words = [self._meant(word) for word in shlex.split(line)]
        if words[0] in NOT_RUN:
            return ""
        if words[0] == "steelyard":
            words[:1] = [sys.executable, "-m", "appliance"]
        else:
            assert words[0] in RUN, line
        done = subprocess.run(
            words, env=self._env(), capture_output=True, text=True, check=False, timeout=300
        )
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        assert (done.returncode != 0) == fails or line == TELLS, (line, said)
        return said

    def _meant(self, word: str) -> str:
        word = word.replace(STATE, str(self.state)).replace(STICK, str(self.stick))
        word = word.replace(PASSPHRASE_FILE, str(self.passphrase))
        return str(self.newest()) if word == "FILE" else word

    def _env(self) -> dict[str, str]:
        env = {
            **os.environ,
            "STEELYARD_CONFIG": str(self.home / "steelyard.toml"),
            "STEELYARD_SERVER_STATE_DIR": str(self.state),
        }
        if self.box is not None:
            env |= {"STEELYARD_URL": self.box.url, "STEELYARD_ADMIN_KEY": self.admin_key}
        return env


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("recovery")
    (folder / "usb").mkdir()
    with ExitStack() as running:
        made = Site(folder / "box", folder / "usb", running)
        box = made.start()
        check_complete(box, ask(box, max_tokens=4))
        yield made


def only(section: str) -> list[str]:
    (found,) = blocks(section)
    return found


def test_a_running_box_is_backed_up(site: Site) -> None:
    first, second = blocks("Before anything happens")
    said = site.follow(first)
    assert "every byte is as it was written" in said
    site.follow(second)
    assert {path.stat().st_mode & 0o777 for path in site.stick.iterdir()} == {0o600}
    assert site.box is not None
    assert serves(site.box, site.admin_key)


def test_a_lost_admin_key_is_replaced_while_the_box_runs(site: Site) -> None:
    assert site.box is not None
    lost = site.admin_key
    (site.admin_key,) = secrets(site.follow(only("The admin key is lost")))
    assert serves(site.box, site.admin_key)
    assert not serves(site.box, lost)


def test_what_helps_a_running_box_helps(site: Site) -> None:
    assert "intact" in site.follow(only("The power went"))
    assert "armed" in site.follow(only("The board has latched"))
    site.follow(only("The disk is full"))
    site.follow(only("The clock is wrong"))


def test_a_box_goes_on_with_its_keys_on_a_new_machine(site: Site) -> None:
    before, key = site.backed_up(), site.admin_key
    site.stop()
    new = site.home.with_name("new-machine")
    new.mkdir()
    (new / "steelyard.toml").write_bytes((site.home / "steelyard.toml").read_bytes())
    (new / "state").mkdir()
    made = KeyStore(new / "state/ledger.sqlite").create_first()
    assert made is not None, "the first start of a new box makes a ledger and a key of its own"
    site.home, site.state = new, new / "state"
    said = site.follow(only("The disk died, or the machine"))
    assert "intact" in said
    assert "what was there before is kept in" in said
    assert Ledgered(site.state).rows() == before
    assert site.box is not None
    assert serves(site.box, key)
    assert not serves(site.box, made)
    check_chain(Ledgered(site.state))


def test_a_damaged_ledger_is_replaced_by_the_newest_backup(site: Site) -> None:
    site.backed_up()
    site.stop()
    with closing(sqlite3.connect(site.state / "ledger.sqlite")) as db, db:
        db.execute("UPDATE entries SET body = replace(body, 'stop', 'halt') WHERE kind = 'request'")
    with_backup, _ = blocks("The ledger is damaged")
    said = site.follow(with_backup, fails=("steelyard audit verify",))
    assert "not the hash" in said or "row" in said
    assert site.box is not None
    assert serves(site.box, site.admin_key)
    check_chain(Ledgered(site.state))


def test_without_a_backup_the_box_begins_a_new_ledger(site: Site) -> None:
    site.stop()
    (site.state / "ledger.sqlite").write_bytes(b"not a database, but some text " * 400)
    _, without = blocks("The ledger is damaged")
    lost = site.admin_key
    site.follow(without)
    assert site.admin_key != lost
    assert site.box is not None
    assert serves(site.box, site.admin_key)
    Ledgered(site.state).wait_for(1)


def test_an_engine_that_does_not_start_is_looked_into(site: Site) -> None:
    site.stop()
    site.follow(only("The engine does not start"))


def test_every_command_of_the_page_is_run_here() -> None:
    sections = re.findall(r"^## (.*)$", PAGE, re.M)
    assert [name for name in sections if found_under(name)] == list(FOLLOWED)
