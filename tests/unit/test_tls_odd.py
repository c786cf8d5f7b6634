"""Certificates that can be read and not used: told in a sentence, at the start and later on."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtensionOID

from appliance.config import Config, ServerConfig, TlsConfig
from appliance.tls import TlsError
from appliance.tls.certificates import make_ca, make_server
from appliance.tls.own import OwnCertificates
from appliance.tls.state import TlsState
from tests.unit.certificates import NOW, issue, of_no_curve


def with_broken_names() -> tuple[bytes, bytes]:
    """Well formed, but for what stands where its names should."""
    pair = make_server(make_ca("elsewhere", NOW), ["box.local"], NOW)
    broken = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x01\x01\xff")
    made = (
        x509.CertificateBuilder()
        .subject_name(pair.certificate.subject)
        .issuer_name(pair.certificate.issuer)
        .public_key(pair.key.public_key())
        .serial_number(1)
        .not_valid_before(pair.certificate.not_valid_before_utc)
        .not_valid_after(pair.certificate.not_valid_after_utc)
        .add_extension(broken, critical=False)
        .sign(pair.key, hashes.SHA256())
    )
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), key


ODD = pytest.mark.parametrize(
    ("made", "words"),
    [(of_no_curve, "of another kind"), (with_broken_names, "made wrongly")],
    ids=["curve", "names"],
)


def serving(tmp_path: Path, cert: str, key: str) -> TlsState:
    config = Config(server=ServerConfig(state_dir=tmp_path), tls=TlsConfig(cert=cert, key=key))
    return TlsState(config, clock=lambda: NOW)


@ODD
def test_given_files_that_cannot_be_used_are_refused(
    tmp_path: Path, made: Callable[[], tuple[bytes, bytes]], words: str
) -> None:
    for path, data in zip((tmp_path / "cert.pem", tmp_path / "key.pem"), made(), strict=True):
        path.write_bytes(data)
    with pytest.raises(TlsError, match=words):
        serving(tmp_path, str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))


def test_a_given_key_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    cert, _, _ = issue(tmp_path, "box", ["box.local"])
    (tmp_path / "key.pem").write_bytes(of_no_curve()[1])
    with pytest.raises(TlsError, match=r"tls\.key: .* of another kind"):
        serving(tmp_path, cert, str(tmp_path / "key.pem"))


@ODD
def test_new_files_that_cannot_be_used_leave_the_old_ones_in_use(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    made: Callable[[], tuple[bytes, bytes]],
    words: str,
) -> None:
    cert, key, _ = issue(tmp_path, "box", ["box.local"])
    state = serving(tmp_path, cert, key)
    before = state.certificate
    for path, data in zip((cert, key), made(), strict=True):
        Path(path).write_bytes(data)
    with caplog.at_level(logging.ERROR):
        state.refresh()
        state.refresh()
    assert state.certificate is before
    assert words in state.problem(NOW)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "told once, not at every look"


@ODD
def test_the_boxes_own_certificate_is_made_anew(
    tmp_path: Path, made: Callable[[], tuple[bytes, bytes]], words: str
) -> None:
    own = OwnCertificates(tmp_path / "tls")
    own.ensure(["box.local"], NOW)
    for path, data in zip((own.cert, own.key), made(), strict=True):
        path.write_bytes(data)
    own.ensure(["box.local"], NOW)
    found = own.load_ca()
    assert found is not None
    x509.load_pem_x509_certificate(own.cert.read_bytes()).verify_directly_issued_by(found)
