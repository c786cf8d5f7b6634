"""The set-up assistant of the text console: what it takes, writes and calls."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from images.firstboot import setup
from images.firstboot.setup import Assistant, Static, Wrong, static
from images.layout import HERE


class Desk:
    """A person with answers, and what became of them."""

    def __init__(self, root: Path, answers: Iterable[str], fails: str = "") -> None:
        self.told: list[str] = []
        self.ran: list[list[str]] = []
        self._answers = iter(answers)
        self._fails = fails
        self.assistant = Assistant(
            root, self._answer, self._answer, self.told.append, self._run, lambda: ["enp1s0"]
        )

    @property
    def said(self) -> str:
        return "\n".join(self.told)

    def _answer(self, question: str) -> str:
        return next(self._answers)

    def _run(self, command: list[str], told: str | None = None) -> str:
        self.ran.append(command)
        if self._fails and self._fails in " ".join(command):
            raise Wrong(f"{self._fails} failed")
        return "sk-steelyard-made\n" if "keys" in command else ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = tmp_path / setup.CONFIG
    config.parent.mkdir(parents=True)
    config.write_text((HERE / "rootfs/steelyard.toml").read_text())
    (tmp_path / "etc/shadow").write_text("root:*:20000:0:99999:7:::\n")
    return tmp_path


def test_static_address_becomes_a_file_of_networkd(root: Path) -> None:
    desk = Desk(root, ["1", "", "192.168.7.20/24", "192.168.7.1", "192.168.7.1, 192.168.7.2"])
    with pytest.raises(StopIteration):
        desk.assistant.talk()
    text = (root / setup.NETWORK).read_text()
    assert "Name=enp1s0" in text
    assert "Address=192.168.7.20/24" in text
    assert "Gateway=192.168.7.1" in text
    assert text.count("DNS=") == 2
    assert desk.ran == [["systemctl", "restart", "systemd-networkd.service"]]


def test_dhcp_replaces_a_static_address(root: Path) -> None:
    for answers in (["1", "", "10.0.0.5/8", "", ""], ["1", "enp1s0", ""]):
        with pytest.raises(StopIteration):
            Desk(root, answers).assistant.talk()
    text = (root / setup.NETWORK).read_text()
    assert "DHCP=yes" in text
    assert "Address=" not in text


def test_our_file_is_read_before_the_shipped_one() -> None:
    """networkd takes the first that matches, by name."""
    shipped = next((HERE / "rootfs").glob("*.network")).name
    assert Path(setup.NETWORK).name < shipped


@pytest.mark.parametrize(
    ("address", "gateway", "dns", "says"),
    [
        ("192.168.7.20", "", "", "lacks its prefix"),
        ("192.168.7.300/24", "", "", "192.168.7.300"),
        ("192.168.7.0/24", "", "", "network's own address"),
        ("192.168.7.255/24", "", "", "broadcast"),
        ("127.0.0.1/8", "", "", "cannot be the address"),
        ("192.168.7.20/24", "192.168.8.1", "", "not another address"),
        ("192.168.7.20/24", "192.168.7.20", "", "not another address"),
        ("192.168.7.20/24", "fd00::1", "", "not another address"),
        ("192.168.7.20/24", "", "site.example", "site.example"),
        ("10.0.0.1/24\nDHCP=yes", "", "", "DHCP"),
    ],
)
def test_address_that_cannot_work_is_refused(
    address: str, gateway: str, dns: str, says: str
) -> None:
    with pytest.raises(Wrong, match=says):
        static(address, gateway, dns)


def test_addresses_of_both_kinds_are_taken() -> None:
    assert static("10.0.0.4/31") == Static("10.0.0.4/31")
    assert static("fd00::5/64", "fd00::1").gateway == "fd00::1"


def test_refused_step_changes_nothing_and_can_be_done_again(root: Path) -> None:
    desk = Desk(root, ["1", "", "192.168.7.20", "", "", "1", "", "192.168.7.20/24", "", ""])
    with pytest.raises(StopIteration):
        desk.assistant.talk()
    assert "Not done: 192.168.7.20 lacks its prefix" in desk.said
    assert "Address=192.168.7.20/24" in (root / setup.NETWORK).read_text()


def test_serving_others_makes_the_key_before_the_address(root: Path) -> None:
    desk = Desk(root, ["4", "webapp"])
    with pytest.raises(StopIteration):
        desk.assistant.talk()
    config = tomllib.loads((root / setup.CONFIG).read_text())
    assert config["server"]["host"] == "0.0.0.0"
    assert [command[0] for command in desk.ran] == [setup.STEELYARD, "systemctl"]
    assert "sk-steelyard-made" in desk.said


@pytest.mark.parametrize(("name", "fails"), [("webapp", "keys"), ("--scope", ""), ("", "")])
def test_without_a_key_the_box_stays_by_itself(root: Path, name: str, fails: str) -> None:
    before = (root / setup.CONFIG).read_text()
    with pytest.raises(StopIteration):
        Desk(root, ["4", name], fails).assistant.talk()
    assert (root / setup.CONFIG).read_text() == before


def test_configuration_of_a_persons_own_shape_is_left_to_them(root: Path) -> None:
    (root / setup.CONFIG).write_text("server = { port = 1 }\n")
    desk = Desk(root, ["4", "webapp"])
    with pytest.raises(StopIteration):
        desk.assistant.talk()
    assert "edit it by hand" in desk.said
    assert desk.ran == []


def test_clock_is_set_from_the_site_or_by_hand(root: Path) -> None:
    desk = Desk(root, ["2", "time.site", "2", "", "2027-01-31 14:05"])
    with pytest.raises(StopIteration):
        desk.assistant.talk()
    assert "NTP=time.site" in (root / setup.TIME).read_text()
    assert ["timedatectl", "set-time", "2027-01-31 14:05:00 UTC"] in desk.ran


@pytest.mark.parametrize("server", ["time site", "x\nNTP=y", "-x", "a;b"])
def test_server_that_is_no_name_is_refused(server: str) -> None:
    with pytest.raises(Wrong):
        setup.time_file(server)


@pytest.mark.parametrize(
    ("passwords", "says"),
    [(["short"], "fewer"), (["long enough", "another one"], "not the same")],
)
def test_password_is_asked_for_twice(root: Path, passwords: list[str], says: str) -> None:
    desk = Desk(root, ["3", *passwords])
    with pytest.raises(StopIteration):
        desk.assistant.talk()
    assert says in desk.said
    assert desk.ran == []


def test_finishing_without_a_password_is_asked_about(root: Path) -> None:
    desk = Desk(root, ["q", "n", "q", "y"])
    assert desk.assistant.talk() == 0
    assert (root / setup.DONE).exists()
    (root / "etc/shadow").write_text("root:$y$j9T$abc:20000:0:99999:7:::\n")
    assert Desk(root, ["q"]).assistant.talk() == 0


def test_command_that_is_missing_or_fails_is_told() -> None:
    with pytest.raises(Wrong, match="no-such-command"):
        setup.run(["no-such-command"])
    with pytest.raises(Wrong, match="no such"):
        setup.run(["sh", "-c", "echo no such thing >&2; exit 3"])


def test_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Wrong, match="cannot be written"):
        setup.write_whole(tmp_path / "file/below", "text")
