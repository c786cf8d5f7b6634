"""Commands find the box of this machine by themselves, and show their key to nobody else."""

import fcntl
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.cli import run
from appliance.commands import reaching
from appliance.commands.exits import NotDone
from appliance.commands.reaching import USUAL, reach
from appliance.config import ConfigError
from appliance.config.server import ServerConfig
from appliance.doctor import place
from appliance.doctor.running import LOCK
from appliance.doctor.sockets import Holder
from appliance.doctor.standing import belongs, standing
from appliance.tls.certificates import make_ca
from appliance.trusted import of_file
from tests.unit.certificates import NOW, issue
from tui.trust import Trust

KEY = "sk-steelyard-" + "k" * 43
BOARD = {"state": "none", "problem": "", "device": "", "firmware": "", "slots": [],
         "inhibited_ms": 0, "update": None, "images": []}  # fmt: skip


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own, and nothing said of where the box is."""
    monkeypatch.setenv("STEELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", KEY)
    for name in ("STEELYARD_CONFIG", "STEELYARD_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


class Desk(http.server.ThreadingHTTPServer):
    """Stands in for the daemon's port; keeps what it was asked, and with which key."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Clerk)
        self.heard: list[tuple[str, str]] = []
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Clerk(http.server.BaseHTTPRequestHandler):
    server: Desk

    def do_GET(self) -> None:
        self.server.heard.append((self.path, self.headers.get("Authorization", "")))
        body = json.dumps(BOARD).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@contextmanager
def serving_elsewhere(context: ssl.SSLContext | None = None) -> Iterator[Desk]:
    with Desk(context) as desk:
        thread = threading.Thread(target=desk.serve_forever, daemon=True)
        thread.start()
        try:
            yield desk
        finally:
            desk.shutdown()


@contextmanager
def serving(state: Path, context: ssl.SSLContext | None = None) -> Iterator[Desk]:
    """A daemon, as far as the kernel tells: it holds the state's lock and listens."""
    with open(state / LOCK, "w") as lock, serving_elsewhere(context) as desk:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.MonkeyPatch.context() as patch:  # this process may listen elsewhere, too
            patch.setenv("STEELYARD_SERVER_PORT", str(desk.port))
            yield desk


def configured(folder: Path, text: str) -> Path:
    file = folder / "steelyard.toml"
    file.write_text(text)
    return file


def test_a_command_asks_the_box_of_this_machine_at_the_port_it_listens_on(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(state) as desk:
        assert run(["board", "status"]) == 0
    assert desk.heard[-1] == ("/admin/board", f"Bearer {KEY}")
    assert all(not key for path, key in desk.heard if path != "/admin/board")
    assert "none" in capsys.readouterr().out


@pytest.mark.parametrize("given", [False, True], ids=["its own CA", "a certificate of ours"])
def test_a_box_on_tls_is_believed_for_what_its_files_say(
    state: Path, tmp_path: Path, given: bool
) -> None:
    """A certificate from elsewhere is believed whatever its names are, its CA's others are not."""
    name = "box.example" if given else "127.0.0.1"
    cert, key, ca = issue(tmp_path, "server", [name])
    chain = Path(cert).read_bytes() + Path(ca).read_bytes()
    Path(cert).write_bytes(chain)
    lines = f'[tls]\nmode = "on"\ncert = "{cert}"\nkey = "{key}"\n'
    if not given:
        lines = '[tls]\nmode = "on"\n'
        (state / "tls").mkdir()
        (state / "tls" / "ca.pem").write_bytes(Path(ca).read_bytes())
        (state / "tls" / "server.pem").write_bytes(chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with serving(state, context) as desk:
        file = configured(tmp_path, lines)
        assert run(["board", "status", "--config", str(file)]) == 0
    assert desk.heard[-1] == ("/admin/board", f"Bearer {KEY}")


def test_a_certificate_first_in_the_file_stands_for_itself_alone(tmp_path: Path) -> None:
    ca = make_ca("elsewhere", NOW)
    cert, _, signer = issue(tmp_path, "server", ["box.example"], ca=ca)
    Path(cert).write_bytes(Path(cert).read_bytes() + Path(signer).read_bytes())
    for context in (of_file(cert), Trust("https://box", ca=cert).context()):
        assert len(context.get_ca_certs()) == 0
        assert context.cert_store_stats()["x509"] == 1
        assert not context.check_hostname
    for context in (of_file(signer), Trust("https://box", ca=signer).context()):
        assert context.check_hostname
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(ssl.SSLError, match="holds no certificate"):
        of_file(str(tmp_path / "none.pem"))


def test_what_was_said_counts_and_nothing_is_looked_for(state: Path) -> None:
    with serving(state) as here, serving_elsewhere() as other:
        url = f"http://127.0.0.1:{other.port}"
        assert run(["board", "status", "--url", url]) == 0
    assert [path for path, _ in other.heard] == ["/admin/board"]
    assert here.heard == []


def test_the_environments_address_counts_too(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(state) as here, serving_elsewhere() as other:
        monkeypatch.setenv("STEELYARD_URL", f"http://127.0.0.1:{other.port}")
        assert run(["board", "status"]) == 0
    assert here.heard == []


def test_without_a_box_the_usual_address_is_asked_and_the_message_says_why(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reach(None, None, None) == reaching.Reached(USUAL, "", f"no box runs on {state}")
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(reaching, "USUAL", nowhere)
        for arguments, code in ((["board", "status"], 1), (["status", "--lang", "en"], 3)):
            assert run(arguments) == code
            said = capsys.readouterr().err
            assert f"Nothing listens at {nowhere}" in said
            assert f"No --url was given: no box runs on {state}, so the usual address" in said


def test_a_box_that_does_not_listen_yet_is_not_sought_elsewhere(
    state: Path, tmp_path: Path
) -> None:
    """Else the key would go to whoever listens at the usual address."""
    file = configured(tmp_path, "[server]\nport = 0\n")
    holder = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(state / LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(NotDone, match="does not listen yet: is it starting"):
            reach(None, None, file)
        process.stdin.close()


def test_a_configuration_that_is_of_no_use_is_told_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = configured(tmp_path, "[server]\nprot = 1\n")
    with pytest.raises(ConfigError):
        reach(None, None, file)
    monkeypatch.setenv("STEELYARD_CONFIG", str(file))
    found = reach(None, None, None)
    assert found.url == USUAL
    assert "server.prot" in found.looked


def a_process(proc: Path, owner: int, address: str, *, seen: bool) -> None:
    """Process 7 listens on port 8421 of that address, in the kernel's own spelling."""
    (proc / "net").mkdir(parents=True)
    row = f"0: {address}:20E5 00000000:0000 0A 0:0 0:0 0 {owner} 0 4711 1\n"
    (proc / "net/tcp").write_text(f"head\n{row}")
    (proc / "net/tcp6").write_text("head\n")
    (proc / "7/fd").mkdir(parents=True)
    if seen:
        (proc / "7/fd/3").symlink_to("socket:[4711]")


def kernels(host: str) -> str:
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}"


@pytest.mark.parametrize(
    ("configured", "listens", "asked"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0", "0.0.0.0"),
        ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("0.0.0.0", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "0.0.0.0", "192.0.2.7"),
        ("box.example", "192.0.2.7", "box.example"),
    ],
)
def test_the_address_is_one_that_is_listened_on(
    tmp_path: Path, configured: str, listens: str, asked: str
) -> None:
    proc = tmp_path / "proc"
    a_process(proc, 0, kernels(listens), seen=True)
    server = ServerConfig(host=configured, port=9000, state_dir=tmp_path)
    assert standing(Holder(7, ""), server, proc) == (asked, 8421)


@pytest.mark.parametrize(("above", "ours"), [(0, True), (1, False), (None, True)])
def test_who_listens_out_of_sight_must_be_the_states_owner_or_root(
    tmp_path: Path, above: int | None, ours: bool
) -> None:
    user = 0 if above is None else tmp_path.stat().st_uid + above
    a_process(tmp_path / "proc", user, kernels("127.0.0.1"), seen=False)
    server = ServerConfig(state_dir=tmp_path)
    assert belongs(None, server, tmp_path / "proc") is ours
    assert belongs(Holder(7, ""), server, tmp_path / "proc") is ours


def test_where_the_owner_is_out_of_sight_nothing_is_claimed(tmp_path: Path) -> None:
    a_process(tmp_path / "proc", 0, kernels("127.0.0.1"), seen=False)
    assert belongs(None, ServerConfig(state_dir=tmp_path / "unseen"), tmp_path / "proc") is None


def test_another_users_process_in_the_boxes_place_is_not_asked(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(place, "belongs", lambda holder, server: False)
    with serving(state) as desk:
        assert run(["board", "status"]) == 1
    assert desk.heard == []
    assert "is another user's" in capsys.readouterr().err
