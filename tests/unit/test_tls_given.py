"""TLS with certificates of the operator's own, and clients that must show one."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from appliance.tls import TlsError
from appliance.tls.certificates import make_ca
from tests.unit.certificates import DAY, NOW, Handshake, client_context, issue_for_client, write
from tests.unit.tls_parts import Clock, given, make_state, shake


def test_files_from_the_configuration_are_served(tmp_path: Path) -> None:
    files = given(tmp_path)
    state = make_state(tmp_path, names=("box.example",), **files)
    assert state.ca is None
    assert shake(state, "10.0.0.9", ca=str(tmp_path / "given-ca.pem")).subject_names
    assert not (tmp_path / "state").exists(), "no CA of our own is made"


def replaced(folder: Path, what: str) -> dict[str, Any]:
    """Settings that name files of which one is wrong."""
    files: dict[str, Any] = given(folder)
    if what == "another key":
        files["key"] = given(folder, "other")["key"]
    elif what == "an encrypted key":
        files["key"] = write(make_ca("x", NOW), folder, "locked", b"secret")[1]
    elif what == "no key":
        files["key"] = files["cert"]
    elif what == "no certificate":
        files["cert"] = files["key"]
    elif what == "no file":
        files["cert"] = str(folder / "missing.pem")
    elif what == "other names":
        files["names"] = ("box.example", "elsewhere.example")
    return files


WRONG = {
    "another key": "is not the key of",
    "an encrypted key": "encrypted.*openssl pkey",
    "no key": r"tls\.key: .* is no PEM file of a private key",
    "no certificate": r"tls\.cert: .* is no PEM file of certificates",
    "no file": r"tls\.cert: .*missing\.pem cannot be read: No such file",
    "other names": r"is not for elsewhere\.example, .* but for box\.example",
}


@pytest.mark.parametrize("what", WRONG)
def test_files_that_cannot_do_are_refused_with_the_reason(tmp_path: Path, what: str) -> None:
    with pytest.raises(TlsError, match=WRONG[what]):
        make_state(tmp_path, **replaced(tmp_path, what))


def test_a_certificate_that_has_ended_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="ended 3 days ago: replace it"):
        make_state(tmp_path, Clock(NOW + 399 * DAY), **given(tmp_path))


def test_new_files_are_taken_without_a_restart(tmp_path: Path) -> None:
    state = make_state(tmp_path, **given(tmp_path))
    before = state.certificate
    given(tmp_path)
    state.refresh()
    assert state.certificate != before
    assert shake(state, "box.example", ca=str(tmp_path / "given-ca.pem")).subject_names


def test_new_files_that_cannot_do_leave_the_old_ones_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = make_state(tmp_path, **given(tmp_path))
    before, context = state.certificate, state.context()
    (tmp_path / "given.pem").write_text("half a copy")
    for _ in range(3):
        state.refresh()
    assert (state.certificate, state.context()) == (before, context)
    assert "no PEM file" in state.problem(NOW)
    assert caplog.text.count("no PEM file") == 1, "said once"
    given(tmp_path)
    state.refresh()
    assert state.certificate != before
    assert state.problem(NOW) == ""


def test_the_operator_is_told_before_a_given_certificate_ends(tmp_path: Path) -> None:
    state = make_state(tmp_path, **given(tmp_path))
    assert state.problem(NOW + 370 * DAY) == ""
    assert "ends in 6 days: replace" in state.problem(NOW + 390 * DAY)
    assert "it has ended" in state.problem(NOW + 400 * DAY)


# -- clients ---------------------------------------------------------------------------------------


def test_with_a_client_ca_only_its_clients_get_in(tmp_path: Path) -> None:
    cert, key, ca = issue_for_client(tmp_path, "friend")
    stranger, strange_key, _ = issue_for_client(tmp_path, "stranger")
    state = make_state(tmp_path, client_ca=ca)
    assert dict(*shake(state, cert=cert, key=key).server.getpeercert()["subject"]) == {
        "commonName": "friend"
    }
    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        shake(state)
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake(state, cert=stranger, key=strange_key)


def test_an_optional_client_certificate_must_be_a_right_one(tmp_path: Path) -> None:
    cert, key, ca = issue_for_client(tmp_path, "friend")
    stranger, strange_key, _ = issue_for_client(tmp_path, "stranger")
    state = make_state(tmp_path, client_ca=ca, client_auth="optional")
    assert shake(state, cert=cert, key=key).server.getpeercert()
    assert not shake(state).server.getpeercert()
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake(state, cert=stranger, key=strange_key)


def test_another_client_ca_counts_without_a_restart(tmp_path: Path) -> None:
    cert, key, ca = issue_for_client(tmp_path, "friend")
    state = make_state(tmp_path, client_ca=ca)
    assert shake(state, cert=cert, key=key)
    _, _, other = issue_for_client(tmp_path, "stranger")
    Path(ca).write_bytes(Path(other).read_bytes())
    state.refresh()
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake(state, cert=cert, key=key)
    Path(ca).write_text("")
    state.refresh()
    assert "tls.client_ca" in state.problem(NOW)


def test_versions_before_1_2_are_refused(tmp_path: Path) -> None:
    state = make_state(tmp_path)
    assert state.context().minimum_version == ssl.TLSVersion.TLSv1_2
    client = client_context(state.ca or "")
    client.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol|version"):
        Handshake(state.context(), client, "box.lan")


def test_1_2_has_forward_secrecy(tmp_path: Path) -> None:
    state = make_state(tmp_path)
    client = client_context(state.ca or "")
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_alpn_protocols(["h2", "http/1.1"])
    found = Handshake(state.context(), client, "box.lan")
    assert (found.client.cipher() or ("",))[0].startswith("ECDHE-ECDSA-")
    assert found.client.selected_alpn_protocol() == "http/1.1"
    client.set_ciphers("AES128-SHA:ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError):
        Handshake(state.context(), client, "box.lan")
