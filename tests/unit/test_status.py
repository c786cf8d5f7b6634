"""`steelyard status` against a scripted server on a real socket: what it prints, how it ends."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.cli import run
from appliance.frames import Frame, Live, encode
from tests.unit.certificates import issue
from tests.unit.console_views import GPU, LIVE, ROWS, STATE

CONSOLE_NAMES = (
    "schema host version state degraded ready at_ms age_ms out_tok_s prefill_tok_s ttft_p50_ms "
    "ttft_p99_ms itl_p50_ms itl_p99_ms e2e_p50_ms e2e_p99_ms running waiting oldest_wait_ms "
    "last_eta_ms kv_a_pct kv_b_pct prefix_hit_pct refused_min failed_min engine_state step_ms "
    "step_age_ms restarts_5min board_state dog_left_ms power_w temp_c j_per_tok tick_late_p99_ms "
    "tick_overrun_pct forecaster forecast_state coverage_pct ledger_state ledger_rows chain_ok "
    "disk_free_gb tls_days tok_today cost_today currency alarms_1 alarms_2 alarms_3 alarm_top"
)
LINE = "box7 SERVING 212 t/s run 6 wait 3 ttft 910 ms kvA 61 % 68 C al 0/0/0 age 0.0 s"


def event(frame: Frame) -> bytes:
    name = type(frame).__name__.lower()
    return f"event: {name}\ndata: ".encode() + encode(frame) + b"\n\n"


def frames(live: Live = LIVE) -> bytes:
    return event(live) + event(ROWS) + event(STATE)


def error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


class Server(ThreadingHTTPServer):
    """Answers with its replies in turn, the last one again and again."""

    daemon_threads = True

    def __init__(self, replies: Sequence[tuple[int, bytes, str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = list(replies)
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        replies = self.server.replies
        status, body, kind = replies.pop(0) if len(replies) > 1 else replies[0]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def serving(*replies: tuple[int, bytes] | tuple[int, bytes, str]) -> Iterator[Server]:
    kinds = {200: "text/event-stream"}
    whole = [(*reply, kinds.get(reply[0], "application/json"))[:3] for reply in replies]
    server = Server(whole)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STEELYARD_ADMIN_KEY", "STEELYARD_URL", "LC_ALL", "LC_MESSAGES", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def status(server: Server, *options: str) -> int:
    return run(["status", "--url", server.url, *options])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"state": "DEGRADED", "degraded": "gpu"}, 1),
        ({"state": "OVERLOAD"}, 1),
        ({"alarms_2": 1}, 1),
        ({"alarms_3": 1}, 1),
        ({"alarms_1": 1}, 2),
        ({"state": "DOWN", "ready": False}, 2),
        ({"state": "STARTING", "ready": False}, 2),
        ({"state": "DRAINING"}, 2),
        ({"state": "HOLDING"}, 2),
    ],
)
def test_the_exit_code_tells_how_the_box_is(changes: dict[str, Any], code: int) -> None:
    with serving((200, frames(replace(LIVE, **changes)))) as server:
        assert status(server) == code


def test_status_is_line_1_and_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    with serving((200, frames())) as server:
        assert status(server) == 0
        assert server.asked == [("/events?frames=live,rows,state&once=1", "")]
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == LINE
    assert any(row.startswith("output            212 t/s  >150") for row in rows)
    assert rows[-1].startswith(" wiki")
    assert all(len(row) <= 80 for row in rows)


def test_the_worst_alarm_is_the_last_row(capsys: pytest.CaptureFixture[str]) -> None:
    live = replace(LIVE, alarms_2=1, worst=GPU)
    with serving((200, frames(live))) as server:
        assert status(server) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "[!2] GPU: no device, CPU serves. 7 shows it"


def test_line_alone_asks_for_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with serving((200, event(LIVE))) as server:
        assert status(server, "--line") == 0
        assert server.asked == [("/events?frames=live&once=1", "")]
    assert capsys.readouterr().out == LINE + "\n"


def test_json_is_one_flat_object_with_the_agreed_names(capsys: pytest.CaptureFixture[str]) -> None:
    with serving((200, event(replace(LIVE, temp_c=None)))) as server:
        assert status(server, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert set(CONSOLE_NAMES.split()) <= set(told)
    assert not any(isinstance(value, dict | list) for value in told.values())
    assert told["temp_c"] is None
    assert (told["ttft_p99_ms"], told["chain_ok"], told["degraded"]) == (910.0, True, "")


def test_unknown_is_a_question_mark_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    live = replace(LIVE, out_tok_s=None, ttft_p99_ms=None, kv_a_pct=None, temp_c=None)
    with serving((200, event(live))) as server:
        status(server, "--line")
    assert " ? t/s run 6 wait 3 ttft ? kvA ? ? C " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        ((401, error("invalid_api_key", "no")), 4, "The key is not accepted"),
        ((403, error("insufficient_scope", "no")), 4, "lacks scope"),
        ((404, b"<html>"), 3, "no Steelyard"),
        ((302, b""), 3, "no Steelyard"),
        ((421, error("unknown_host", "no")), 3, "server.allowed_hosts"),
        ((503, error("too_many_consoles", "16 consoles listen. Close one.")), 3, "Close one."),
        ((500, b"oops"), 3, "500"),
        ((200, b"<html></html>", "text/html"), 3, "no Steelyard"),
        ((200, b""), 3, "no frame `live`"),
        ((200, b'event: live\ndata: {"type":"live"}\n\n'), 3, "another version"),
        ((200, b"event: live\ndata: \xff\xfe\n\n"), 3, "another version"),
        ((200, b"event: news\ndata: {}\n\n"), 3, "no frame `live`"),
    ],
)
def test_a_bad_answer_is_told_with_a_remedy(
    reply: tuple[Any, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(reply) as server:
        assert status(server) == code
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert run(["status", "--url", f"http://127.0.0.1:{port}"]) == 3
    assert "Nothing listens" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://box7", "box7", "http://", "http://[::1", "http://a b"])
def test_what_is_no_address_is_not_asked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--url", url]) == 3
    assert "is no address" in capsys.readouterr().err


def test_something_else_than_http_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_say, args=(server, b"SSH-2.0-OpenSSH_9.6\r\n"))
        thread.start()
        code = run(["status", "--url", f"http://127.0.0.1:{server.getsockname()[1]}"])
        thread.join()
    assert code == 3
    assert "does not speak HTTP" in capsys.readouterr().err


def test_tls_asked_of_a_box_without_tls(capsys: pytest.CaptureFixture[str]) -> None:
    with serving((200, frames())) as server:
        url = server.url.replace("http:", "https:")
        assert run(["status", "--url", url]) == 3
    assert "does not speak TLS" in capsys.readouterr().err


def test_a_certificate_must_be_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cert, key, ca = issue(tmp_path, "box", ["127.0.0.1"], wall=time.time())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    with serving((200, frames())) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        assert run(["status", "--url", url]) == 3
        assert "--cacert FILE" in capsys.readouterr().err
        assert run(["status", "--line", "--url", url, "--cacert", ca]) == 0
        assert run(["status", "--url", url, "--cacert", key]) == 3
    assert "--cacert cannot be used" in capsys.readouterr().err


def _say(server: socket.socket, text: bytes) -> None:
    peer, _ = server.accept()
    with peer:
        peer.recv(65536)
        peer.sendall(text)


def test_the_key_comes_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-steelyard-file\n")
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", "sk-steelyard-env")
    with serving((200, frames())) as server:
        status(server)
        status(server, "--key-file", str(file))
        assert [key for _, key in server.asked] == [
            "Bearer sk-steelyard-env",
            "Bearer sk-steelyard-file",
        ]


def test_a_key_that_is_none_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", "sk\r\nHost: evil")
    with serving((200, frames())) as server:
        assert status(server) == 4
        assert server.asked == []


def test_text_of_the_box_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    live = replace(
        LIVE, host="box\x1b[2J", currency="\x9b", worst=replace(GPU, text="\x1b]0;x\x07")
    )
    rows = replace(ROWS, keys=(replace(ROWS.keys[0], key="k\x1b[31m\u202e"),))
    with serving((200, event(live) + event(rows) + event(STATE))) as server:
        status(server)
    with serving((403, error("x", "no\x1b[2J"))) as server:
        status(server)
    told = capsys.readouterr()
    assert "box\\x1b[2J SERVING" in told.out
    assert not set("\x1b\x9b\x07\u202e") & set(told.out + told.err)


def test_chinese_where_the_locale_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    with serving((200, frames())) as server:
        status(server)
    told = capsys.readouterr().out
    assert told.startswith(LINE)
    assert "端到端" in told


def test_watch_draws_again_after_the_connection_broke(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("appliance.commands.status._RETRIES_S", (0.0,))
    refused = (401, error("invalid_api_key", "revoked"))
    with serving((200, frames()), (200, frames()), refused) as server:
        assert status(server, "--watch") == 4
        assert server.asked[0][0] == "/events?frames=live,rows,state"
    told = capsys.readouterr()
    assert told.out.count(LINE) == 2
    assert "LOST: The box ended the connection" in told.err
    assert "The key is not accepted" in told.err


def test_watch_as_json_is_one_object_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("appliance.commands.status._LINE_EVERY_S", 0.0)
    many = b"".join(event(replace(LIVE, seq=seq)) for seq in range(3))
    with serving((200, many), (401, b"")) as server:
        monkeypatch.setattr("appliance.commands.status._RETRIES_S", (0.0,))
        status(server, "--watch", "--json")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["host"] for line in lines] == ["box7"] * 3
