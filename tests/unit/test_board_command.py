"""`steelyard board`: keys, images, a new board's files, and the board of a running box."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from appliance.cli import run
from appliance.commands import board
from firmware_bridge.firmware.schema import VERSION
from firmware_bridge.image import is_signed_by, read, trusted
from firmware_bridge.update import dotted
from tests.unit.certificates import of_no_curve
from tests.unit.update_parts import small_image

BOARD: dict[str, Any] = {
    "state": "armed", "problem": "", "device": "/dev/appliance-mcu", "firmware": "1.1.0",
    "slots": [
        {"slot": "a", "version": "1.1.0", "state": "confirmed"},
        {"slot": "b", "version": "", "state": "empty"},
    ],
    "inhibited_ms": None, "update": None,
    "images": [{"name": "new.fw", "version": "1.2.0", "problem": ""}],
}  # fmt: skip


class Desk(HTTPServer):
    """A box that answers what the test says, one state of the update after the other."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Clerk)
        self.bodies: list[dict[str, Any]] = []
        self.operators: list[str] = []
        self.updates: list[Any] = []
        self.refusal: tuple[int, str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Clerk(BaseHTTPRequestHandler):
    server: Desk

    def do_GET(self) -> None:
        updates = self.server.updates
        update = updates.pop(0) if len(updates) > 1 else updates[0] if updates else None
        self._say(200, {**BOARD, "update": update})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append({"path": self.path, **body})
        self.server.operators.append(self.headers["X-Operator"])
        if self.server.refusal is not None:
            status, message = self.server.refusal
            self._say(status, {"error": {"message": message}})
        else:
            self._say(202, {"status": "updating", "recorded": True})

    def _say(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", "sk-steelyard-x")
    monkeypatch.setattr(board, "_LOOK_S", 0.001)
    with Desk() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_key_signs_the_firmware_that_a_board_with_it_trusts(tmp_path: Path) -> None:
    key, image, flash = tmp_path / "key", tmp_path / "new.fw", tmp_path / "flash"
    assert run(["board", "keygen", str(key)]) == 0
    assert key.stat().st_mode & 0o077 == 0
    assert run(["board", "sign", str(image), "--key", str(key), "--minimum", "1.0.5"]) == 0
    made = read(image.read_bytes())
    assert (made.version, made.minimum) == (VERSION, (1, 0, 5))
    assert is_signed_by(made, trusted(Path(f"{key}.pub").read_text()))
    assert run(["board", "files", str(flash), "--trust", f"{key}.pub"]) == 0
    assert (flash / "trusted_key").read_text() == Path(f"{key}.pub").read_text()
    assert (flash / "a/firmware_bridge/firmware/main.py").exists()


def test_a_key_of_no_kind_that_is_known_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(of_no_curve()[1])
    assert run(["board", "sign", str(tmp_path / "x"), "--key", str(key)]) == 1
    assert "is no RSA key: `steelyard board keygen` makes one" in capsys.readouterr().err


def test_a_key_can_have_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board.click, "prompt", lambda *args, **given: "open sesame")
    key, image = tmp_path / "key", tmp_path / "new.fw"
    assert run(["board", "keygen", str(key), "--encrypt"]) == 0
    with pytest.raises(TypeError):
        load_pem_private_key(key.read_bytes(), None)
    words = tmp_path / "words"
    words.write_text("open sesame\n")
    given = ["--key", str(key), "--passphrase-file", str(words)]
    assert run(["board", "sign", str(image), *given]) == 0
    words.write_text("guess\n")
    assert run(["board", "sign", str(tmp_path / "x"), *given]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sign", "out.fw", "--key", "gone"], "cannot be read"),
        (["sign", "out.fw", "--key", "no_key"], "no private key"),
        (["sign", "no_key", "--key", "key"], "exists already"),
        (["sign", "out.fw", "--key", "key", "--minimum", "1"], "no version"),
        (["sign", "folder/none/out.fw", "--key", "key"], "cannot be written"),
        (["keygen", "key"], "exists already"),
        (["files", "flash", "--trust", "gone"], "gone"),
        (["files", "flash", "--trust", "no_key"], "no public key"),
        (["update", "no_key"], "no firmware image"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["board", "keygen", "key"]) == 0
    Path("no_key").write_text("nothing")
    assert run(["board", *words]) == 1
    assert said in capsys.readouterr().err


def test_status_shows_the_board_on_a_few_lines(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.updates = [{"version": "1.2.0", "phase": "files", "done": 5, "total": 9, "problem": ""}]
    assert run(["board", "status", "--url", desk.url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "board     armed",
        "device    /dev/appliance-mcu",
        "firmware  1.1.0",
        "slots     a 1.1.0 confirmed, b - empty",
        "update    1.2.0 files, 5 of 9 bytes",
        "image     new.fw 1.2.0",
    ]


def phases(*names: str, problem: str = "") -> list[dict[str, Any]]:
    return [
        {"version": "1.2.0", "phase": name, "done": 0, "total": 9, "problem": problem}
        for name in names
    ]


def test_update_sends_the_image_and_waits_until_it_is_confirmed(
    desk: Desk,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("appliance.commands.asking.operator", lambda: "zoë")
    image = small_image("1.2.0")
    (tmp_path / "new.fw").write_bytes(image.data)
    desk.updates = [None, *phases("head", "files", "files", "trying", "confirming", "done")]
    assert run(["board", "update", str(tmp_path / "new.fw"), "--url", desk.url]) == 0
    (body,) = desk.bodies
    assert body["path"] == "/admin/board/update"
    assert base64.b64decode(body["image"]) == image.data
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == f"The board runs {dotted(image.version)}."
    assert told.count("sending") == 1
    assert desk.operators == ["zoë".encode().decode("latin-1")]


@pytest.mark.parametrize("phase", ["refused", "reverted", "failed"])
def test_an_update_that_came_to_nothing_is_a_failure(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str], phase: str
) -> None:
    (tmp_path / "new.fw").write_bytes(small_image("1.2.0").data)
    desk.updates = phases("files", phase, problem="it is not newer")
    assert run(["board", "update", str(tmp_path / "new.fw"), "--url", desk.url]) == 1
    assert f"the update was {phase}: it is not newer" in capsys.readouterr().err


def test_what_the_box_refuses_is_told_in_its_words(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.refusal = (409, "the box has no board")
    (tmp_path / "new.fw").write_bytes(small_image("1.2.0").data)
    assert run(["board", "update", str(tmp_path / "new.fw"), "--url", desk.url]) == 1
    assert "the box has no board" in capsys.readouterr().err


def test_without_an_admin_key_it_says_which_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STEELYARD_ADMIN_KEY", raising=False)
    assert run(["board", "status"]) == 1
    assert "STEELYARD_ADMIN_KEY" in capsys.readouterr().err
