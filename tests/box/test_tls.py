"""A box that speaks TLS: who gets in, with what, and what everybody else is told."""

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.box.commanded import steelyard
from tests.box.conftest import Start
from tests.box.running import RunningBox
from tests.box.wire import CHAT, HELLO, chat, connected, error_of, events_of, saying
from tests.unit.certificates import issue, issue_for_client

BOX = "box.example"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def box(home: Path) -> Iterator[RunningBox]:
    """Its own CA, on this machine only."""
    tls = {"mode": "on", "names": [BOX]}
    limits = {"write_stall_s": 2.0}
    with RunningBox.start(home, tls=tls, limits=limits, engine={"context": 8192}) as running:
        yield running


@pytest.fixture(scope="module")
def ca(home: Path, box: RunningBox) -> Path:
    """The CA as the operator exports it."""
    file = home / "exported.pem"
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "tls", "export-ca", str(file)],
        env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(home / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return file


def openai_client(box: RunningBox, **http: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{box.url}/v1",
        api_key="none",
        max_retries=0,
        timeout=60,
        http_client=httpx.Client(**http) if http else None,
    )


def said(box: RunningBox, context: ssl.SSLContext, data: bytes) -> bytes:
    """All that comes over TLS until the box closes."""
    parts = []
    with connected(box) as raw, context.wrap_socket(raw, server_hostname="localhost") as tls:
        tls.sendall(data)
        while part := tls.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_the_official_client_works_with_the_exported_ca(
    box: RunningBox, ca: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert box.url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(ca))
    with openai_client(box, verify=context) as client:
        answer = client.chat.completions.create(
            model="default", messages=HELLO, max_tokens=2, extra_body={"ignore_eos": True}
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2
        stream = client.chat.completions.create(
            model="default", messages=HELLO, stream=True, extra_body=saying("Fine.")
        )
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        assert text == "Fine."
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    with openai_client(box) as client:
        assert client.models.list().data


def test_commands_on_the_box_need_neither_its_address_nor_its_ca(
    box: RunningBox, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens on a port that no configuration tells."""
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", box.admin_key)
    monkeypatch.delenv("STEELYARD_URL", raising=False)
    config = str(home / "steelyard.toml")
    shown = steelyard(home, "status", "--line", "--config", config)
    assert shown.returncode in (0, 1, 2), shown.stderr
    assert "SERVING" in shown.stdout
    told = steelyard(home, "forecast", "Hello", "--config", config)
    assert told.returncode == 0, told.stderr
    cancelled = steelyard(home, "requests", "cancel", "chatcmpl-none", "--config", config)
    assert "chatcmpl-none" in cancelled.stderr
    assert "--url" not in cancelled.stderr
    elsewhere = steelyard(tmp_path, "forecast", "Hello", "--url", box.url)
    assert "certificate is not trusted" in elsewhere.stderr


def test_without_the_ca_the_official_client_refuses_the_box(box: RunningBox) -> None:
    with openai_client(box) as client, pytest.raises(openai.APIConnectionError) as refusal:
        client.models.list()
    assert "CERTIFICATE_VERIFY_FAILED" in str(refusal.value.__cause__)


def test_the_command_that_the_box_prints_works_over_tls(box: RunningBox, home: Path) -> None:
    (line,) = (line for line in box.log.splitlines() if line.strip().startswith("curl "))
    assert f"--cacert {home / 'state/tls/ca.pem'} https://" in line
    done = subprocess.run(
        ["bash", "-c", line.replace('"max_tokens": 64', '"max_tokens": 1')],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["usage"]["completion_tokens"] == 1, done.stderr


def test_plain_http_is_told_what_to_do_and_costs_nobody_a_thing(box: RunningBox) -> None:
    with httpx.Client(base_url=box.url.replace("https:", "http:"), timeout=10) as plain:
        answer = plain.post(CHAT, json=chat())
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "tls_required"
    assert box.http.get("/health").status_code == 200


def test_old_versions_are_refused(box: RunningBox, ca: Path) -> None:
    context = ssl.create_default_context(cafile=str(ca))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        said(box, context, b"")


def test_bounds_and_origins_hold_over_tls(box: RunningBox, ca: Path) -> None:
    for host, status in ((BOX, 200), ("localhost:99", 200), (f"evil.{BOX}", 421)):
        assert box.http.get("/props", headers={"Host": host}).status_code == status
    assert box.http.get("/props", headers={"X": "x" * 70_000}).status_code == 431
    own = box.url
    for origin, status in ((own, 200), (own.replace("https:", "http:"), 403), ("https://e", 403)):
        assert box.http.get("/props", headers={"Origin": origin}).status_code == status
    forwarded = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "https"}
    assert box.http.post(CHAT, json=chat(), headers=forwarded).status_code == 401
    context = ssl.create_default_context(cafile=str(ca))
    answer = said(
        box, context, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\0\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_client_that_stops_reading_over_tls_is_dropped(box: RunningBox) -> None:
    fields = chat(max_tokens=8000, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20)
    body = json.dumps(fields).encode()
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert box.tls is not None
    with connected(box) as raw, box.tls.wrap_socket(raw, server_hostname=BOX) as tls:
        tls.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        tls.sendall(head % CHAT.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert tls.recv(100).startswith(b"HTTP/1.1 200 ")
        box.wait_until(lambda: box.busy_slots() == 1, what="it runs")
        box.wait_until(lambda: "outcome=disconnected" in box.log, timeout=60, what="it is ended")
    box.wait_until(lambda: box.busy_slots() == 0, what="the slot is free")


def test_a_renewed_certificate_counts_without_a_restart(box: RunningBox, home: Path) -> None:
    """And a stream that runs meanwhile goes on."""

    def serial() -> Any:
        with connected(box) as raw:
            assert box.tls is not None
            with box.tls.wrap_socket(raw, server_hostname=BOX) as tls:
                return (tls.getpeercert() or {})["serialNumber"]

    before = serial()
    with box.http.stream("POST", CHAT, json=chat(max_tokens=64, stream=True)) as stream:
        done = subprocess.run(
            [sys.executable, "-m", "appliance", "tls", "renew"],
            env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(home / "state")},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        box.wait_until(lambda: serial() != before, what="the new certificate is shown")
        events = events_of(stream.read().decode())
    assert "error" not in events[-1]


def test_a_box_that_wants_client_certificates_lets_only_them_in(
    start_box: Start, tmp_path: Path
) -> None:
    cert, key, server_ca = issue(tmp_path, "server", [BOX, "127.0.0.1"])
    mine, my_key, client_ca = issue_for_client(tmp_path, "app")
    strange, strange_key, _ = issue_for_client(tmp_path, "stranger")
    box = start_box(tls={"cert": cert, "key": key, "client_ca": client_ca})
    assert box.url.startswith("https://127.0.0.1:"), "files switch TLS on"

    def ask(*pair: str) -> int:
        context = ssl.create_default_context(cafile=server_ca)
        if pair:
            context.load_cert_chain(*pair)
        with httpx.Client(base_url=box.url, verify=context) as client:
            return client.get("/health").status_code

    assert ask(mine, my_key) == 200
    for wrong in ((), (strange, strange_key)):
        with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
            ask(*wrong)
    assert ask(mine, my_key) == 200
    assert box.stop() == 0


def test_the_lan_gets_tls_without_asking_for_it(start_box: Start, tmp_path: Path) -> None:
    make = [sys.executable, "-m", "appliance", "keys", "create", "app"]
    env = {**os.environ, "STEELYARD_SERVER_STATE_DIR": str(tmp_path / "1/state")}
    assert subprocess.run(make, env=env, capture_output=True, check=False).returncode == 0
    box = start_box(server={"host": "0.0.0.0"})
    assert box.url.startswith("https://")
    assert box.http.get("/health").status_code == 200
    assert "in clear" not in box.log
    idle = socket.create_connection((httpx.URL(box.url).host, httpx.URL(box.url).port or 0))
    assert box.stop() == 0, "an open connection does not hold up the end"
    idle.close()


def test_clear_text_on_the_lan_is_warned_of(start_box: Start, tmp_path: Path) -> None:
    make = [sys.executable, "-m", "appliance", "keys", "create", "app"]
    env = {**os.environ, "STEELYARD_SERVER_STATE_DIR": str(tmp_path / "1/state")}
    assert subprocess.run(make, env=env, capture_output=True, check=False).returncode == 0
    box = start_box(server={"host": "0.0.0.0"}, tls={"mode": "off"})
    assert box.url.startswith("http://")
    assert box.log.count("cross the network in clear") == 2, "to the operator, and in the log"


@pytest.mark.parametrize("what", ["key", "cert"])
def test_a_box_whose_files_cannot_do_says_why_and_ends(tmp_path: Path, what: str) -> None:
    cert, key, _ = issue(tmp_path, "server", [BOX])
    files = {"cert": cert, "key": key, what: str(tmp_path / "missing.pem")}
    config = tmp_path / "steelyard.toml"
    config.write_text("[tls]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in files.items()))
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "serve", "--config", str(config)],
        env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"tls.{what}: {tmp_path / 'missing.pem'} cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
