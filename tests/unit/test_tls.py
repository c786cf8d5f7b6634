"""TLS: the box's own certificates, files from the configuration, and what clients make of them."""

import dataclasses
import fcntl
import os
import ssl
import stat
from pathlib import Path

import pytest

from appliance.cli import run
from appliance.config import Config, ConfigError, ServerConfig, TlsConfig, load
from appliance.tls import TlsError, TlsState, in_clear, tls_on
from appliance.tls.certificates import RELEASED, days_left, due, make_ca, make_server, names_of
from appliance.tls.names import wanted_names
from appliance.tls.own import OwnCertificates
from tests.unit.certificates import DAY, NOW, Handshake, client_context, issue, write
from tests.unit.tls_parts import NAMES, Clock, given, make_config, make_state, shake

# -- the box's own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["box.lan", "BOX.lan", "a.models.lan", "10.1.2.3", "fd00::1"])
def test_a_client_that_knows_the_ca_accepts_the_box_under_each_name(
    tmp_path: Path, name: str
) -> None:
    found = shake(make_state(tmp_path), name)
    assert found.client.version() == "TLSv1.3"
    assert found.client.compression() is None


@pytest.mark.parametrize("name", ["evil.example", "a.b.models.lan", "10.1.2.4", "lan"])
def test_under_another_name_it_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(make_state(tmp_path), name)


def test_a_client_with_another_ca_refuses_the_box(tmp_path: Path) -> None:
    _, _, other = issue(tmp_path, "other", ["box.lan"])
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake(make_state(tmp_path), ca=other)


def test_the_ca_cannot_sign_further_cas(tmp_path: Path) -> None:
    """Nor can the server's key sign anything: both are told apart by clients."""
    ca = make_ca("box", NOW)
    rogue = make_server(ca, ["rogue"], NOW)
    cert, key, _ = issue(tmp_path, "box", ["box.lan"], ca=rogue)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(
        Path(cert).read_bytes() + Path(write(rogue, tmp_path, "rogue")[0]).read_bytes()
    )
    context.load_cert_chain(chain, key)
    root, _ = write(ca, tmp_path, "root")
    with pytest.raises(ssl.SSLCertVerificationError):
        Handshake(context, client_context(root), "box.lan")


def test_keys_are_for_the_owner_alone(tmp_path: Path) -> None:
    make_state(tmp_path)
    folder = tmp_path / "state/tls"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("ca-key.pem", "server-key.pem"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert not [file for file in folder.iterdir() if file.name.endswith(".new")]


def test_the_next_start_finds_the_same_certificates(tmp_path: Path) -> None:
    first, second = make_state(tmp_path), make_state(tmp_path)
    assert first.certificate == second.certificate


def test_two_boxes_have_different_cas(tmp_path: Path) -> None:
    one, two = make_ca("box", NOW).certificate, make_ca("box", NOW).certificate
    assert one.subject != two.subject


def test_a_certificate_about_to_end_is_replaced_while_the_box_runs(tmp_path: Path) -> None:
    clock = Clock()
    state = make_state(tmp_path, clock)
    ca, first, context = state.own.load_ca(), state.certificate, state.context()
    assert 395 < state.days_left(NOW) <= 396
    clock.now += 360 * DAY
    state.refresh()
    assert state.certificate == first
    clock.now += 7 * DAY
    state.refresh()
    assert state.certificate != first
    assert 395 < state.days_left(clock.now) <= 396
    assert state.problem(clock.now) == ""
    assert state.own.load_ca() == ca, "clients keep what they have"
    assert state.context() is not context, "new connections get the new one"


def test_ten_years_on_the_ca_is_replaced_too_and_never_outlived(tmp_path: Path) -> None:
    clock = Clock()
    state = make_state(tmp_path, clock)
    ca = state.own.load_ca()
    clock.now += 3500 * DAY
    state.refresh()
    assert state.own.load_ca() == ca
    assert days_left(ca, clock.now) == state.days_left(clock.now)
    clock.now += 130 * DAY
    state.refresh()
    assert state.own.load_ca() != ca
    assert state.days_left(clock.now) > 390


def test_a_clock_that_was_wrong_for_a_while_costs_no_client_its_ca(tmp_path: Path) -> None:
    clock = Clock()
    state = make_state(tmp_path, clock)
    ca = state.own.load_ca()
    clock.now += 20 * 365 * DAY
    state.refresh()
    assert state.own.load_ca() != ca
    clock.now = NOW
    state.refresh()
    assert state.own.load_ca() == ca
    assert shake(state).subject_names


def test_a_first_start_without_a_clock_makes_certificates_that_are_good_once_it_is_set() -> None:
    ca = make_ca("box", 0.0)
    server = make_server(ca, ["box.lan"], 0.0).certificate
    assert due(ca.certificate, 0.0) == due(server, 0.0) == ""
    assert due(ca.certificate, RELEASED + 3000 * DAY) == ""
    assert server.not_valid_before_utc.timestamp() < RELEASED
    assert due(server, RELEASED + 300 * DAY) == ""


def test_other_names_give_another_certificate_at_once(tmp_path: Path) -> None:
    names = ["old.lan"]
    state = TlsState(make_config(tmp_path), clock=Clock(), names=lambda _: tuple(names))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(state, "new.lan")
    names[:] = ["new.lan", "old.lan"]
    state.refresh()
    assert shake(state, "new.lan").subject_names == ["new.lan", "old.lan"]
    before = state.certificate
    names.pop()
    state.refresh()
    assert state.certificate == before, "a name too many is no reason"


@pytest.mark.parametrize("name", ["server.pem", "server-key.pem"])
@pytest.mark.parametrize("damage", ["", "-----BEGIN CERTIFICATE-----\nAAAA", None])
def test_a_damaged_server_certificate_is_made_anew(
    tmp_path: Path, name: str, damage: str | None
) -> None:
    make_state(tmp_path)
    file = tmp_path / "state/tls" / name
    file.unlink() if damage is None else file.write_text(damage)
    assert shake(make_state(tmp_path)).subject_names


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem"])
def test_a_damaged_ca_is_never_replaced_behind_the_operators_back(
    tmp_path: Path, name: str
) -> None:
    make_state(tmp_path)
    (tmp_path / "state/tls" / name).write_text("-----BEGIN NONSENSE-----")
    with pytest.raises(TlsError, match="Restore the folder from a copy"):
        make_state(tmp_path)


def test_a_ca_without_its_own_key_is_refused(tmp_path: Path) -> None:
    make_state(tmp_path)
    key = tmp_path / "state/tls/ca-key.pem"
    key.unlink()
    with pytest.raises(TlsError, match=r"ca-key\.pem"):
        make_state(tmp_path)
    key.write_bytes((tmp_path / "state/tls/server-key.pem").read_bytes())
    with pytest.raises(TlsError, match="do not belong together"):
        make_state(tmp_path)


def test_a_write_that_broke_off_leaves_nothing_half_done(tmp_path: Path) -> None:
    """As after a loss of power between the key and its certificate."""
    make_state(tmp_path)
    folder = tmp_path / "state/tls"
    (folder / "ca.pem").unlink()
    (folder / ".server.pem.new").write_text("half")
    assert shake(make_state(tmp_path)).subject_names


def test_while_nothing_can_be_written_the_old_certificate_serves_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    state = make_state(tmp_path, clock)
    before, folder = state.certificate, tmp_path / "state/tls"
    folder.rename(tmp_path / "state/elsewhere")
    folder.write_text("in the way")
    clock.now += 380 * DAY
    for _ in range(3):
        state.refresh()
    assert state.certificate == before
    assert "cannot be written" in state.problem(clock.now)
    assert [r.levelname for r in caplog.records if "stays" in r.message] == ["ERROR"]
    folder.unlink()
    (tmp_path / "state/elsewhere").rename(folder)
    state.refresh()
    assert state.certificate != before
    assert state.problem(clock.now) == ""


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "mode", "cert", "on", "warned"),
    [
        ("127.0.0.1", "auto", "", False, False), ("::1", "auto", "", False, False),
        ("localhost", "auto", "c", True, False), ("0.0.0.0", "auto", "", True, False),
        ("10.1.2.3", "auto", "", True, False), ("10.1.2.3", "off", "", False, True),
        ("127.0.0.1", "on", "", True, False), ("127.0.0.1", "off", "c", False, False),
    ],
)  # fmt: skip
def test_tls_is_on_where_others_can_listen(
    tmp_path: Path, host: str, mode: str, cert: str, on: bool, warned: bool
) -> None:
    config = make_config(tmp_path, host, mode=mode, cert=cert)
    assert tls_on(config) is on
    assert bool(in_clear(config)) is warned


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('cert = "a.pem"', "tls.key: tls.cert is set"),
        ('key = "a.pem"', "tls.cert: tls.key is set"),
        ('mode = "off"\nclient_ca = "a.pem"', "tls.client_ca: it has no effect"),
        ('names = ["http://box"]', "tls.names"),
        ('names = ["a b"]', "tls.names"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text(f"[tls]\n{text}\n")
    with pytest.raises(ConfigError, match=problem):
        load(file, {})


def test_the_certificate_is_for_every_name_that_the_box_answers_to() -> None:
    config = Config(
        server=ServerConfig(host="0.0.0.0", allowed_hosts=("Models.example.", "[fd00::7]")),
        tls=TlsConfig(names=("*.box.lan",)),
    )
    names = wanted_names(config)
    machine = os.uname().nodename.lower()
    assert names[:3] == ("*.box.lan", "models.example", "fd00::7")
    assert {machine, f"{machine}.local", "localhost", "127.0.0.1", "::1"} <= set(names)
    assert "0.0.0.0" not in names
    assert len(names) == len(set(names))
    only = dataclasses.replace(config.server, host="box7", allowed_hosts=())
    assert "box7" in wanted_names(dataclasses.replace(config, server=only))


def test_the_address_shown_is_one_that_the_certificate_covers(tmp_path: Path) -> None:
    own = TlsState(make_config(tmp_path), clock=Clock())
    assert own.name_for("0.0.0.0") == "127.0.0.1"
    assert own.name_for("::") == "::1"
    assert own.name_for("10.1.2.3") == "10.1.2.3"
    assert make_state(tmp_path, **given(tmp_path)).name_for("0.0.0.0") == "box.example"


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("STEELYARD_CONFIG", raising=False)
    return tmp_path


def test_the_ca_can_be_exported_before_the_first_start(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tls", "show"]) == 0
    assert "No certificate yet" in capsys.readouterr().out
    assert run(["tls", "export-ca", str(home / "ca.pem")]) == 0
    hints = capsys.readouterr().err
    assert f"curl --cacert {home / 'ca.pem'} https://" in hints
    assert "SSL_CERT_FILE" in hints
    state = TlsState(make_config(home, mode="on", names=("box.lan",)), clock=Clock())
    assert shake(state, ca=str(home / "ca.pem")).subject_names
    assert "PRIVATE" not in (home / "ca.pem").read_text()


def test_a_renewed_certificate_is_taken_by_the_running_box(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = TlsState(make_config(home, "127.0.0.1", mode="on"), clock=Clock())
    before = state.certificate
    assert run(["tls", "renew"]) == 0
    shown = capsys.readouterr().out
    state.refresh()
    assert state.certificate != before
    assert run(["tls", "show"]) == 0
    assert capsys.readouterr().out == shown
    assert "396 days left" in shown
    assert all(name in shown for name in names_of(state.certificate))


def test_the_command_says_that_given_files_are_the_operators_own(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = given(home)
    monkeypatch.setenv("STEELYARD_TLS_CERT", files["cert"])
    monkeypatch.setenv("STEELYARD_TLS_KEY", files["key"])
    assert run(["tls", "show"]) == 0
    assert "box.example" in capsys.readouterr().out
    assert run(["tls", "renew"]) == 1
    assert "replace that file" in capsys.readouterr().err
    assert run(["tls", "export-ca", str(home / "ca.pem")]) == 1
    (home / "given-key.pem").write_text("")
    assert run(["tls", "show"]) == 1
    assert "no PEM file of a private key" in capsys.readouterr().err


def test_an_export_that_cannot_be_written_says_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tls", "export-ca", str(home / "no/such/ca.pem")]) == 1
    assert "cannot be written: No such file" in capsys.readouterr().err


def test_who_else_writes_there_waits(tmp_path: Path) -> None:
    """The daemon and the command line: a pair is never read half-replaced."""
    own = OwnCertificates(tmp_path / "tls")
    own.ensure(NAMES, NOW)
    with own.locked(), open(tmp_path / "tls/lock") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
