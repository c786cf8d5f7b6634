"""Certificate files that the configuration names."""

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from appliance.tls.certificates import days_left, missing_names, names_of
from appliance.tls.errors import TlsError

_KINDS = "Ask for a certificate with an EC key (P-256) or an RSA key"


def read_given(cert: str, key: str, names: Sequence[str], wall: float) -> x509.Certificate:
    """The server's certificate, once all is right with the files. Raises TlsError."""
    certificate = _certificate(cert)
    private = _key(key)
    if private.public_key() != certificate.public_key():
        raise TlsError(
            f"tls.key: {key} is not the key of {cert}: name the key that the certificate was "
            "asked for with, and put the server's own certificate first in tls.cert"
        )
    left = days_left(certificate, wall)
    if left < 0:
        raise TlsError(
            f"tls.cert: {cert} ended {-left:.0f} days ago: replace it, or leave tls.cert and "
            "tls.key out for the box's own"
        )
    if missing := missing_names(certificate, names):
        raise TlsError(
            f"tls.cert: {cert} is not for {', '.join(missing)}, which tls.names asks for, but for "
            f"{', '.join(names_of(certificate)) or 'no name at all'}"
        )
    return certificate


def _certificate(name: str) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificates(_read("tls.cert", name))[0]
    except ValueError:
        raise TlsError(f"tls.cert: {name} is no PEM file of certificates") from None
    try:  # what is only read when it is asked for
        found.public_key(), names_of(found), found.not_valid_after_utc
    except UnsupportedAlgorithm as error:
        raise TlsError(f"tls.cert: {name} has a key of another kind: {error}. {_KINDS}") from None
    except ValueError:
        raise TlsError(
            f"tls.cert: {name} is damaged, or was made wrongly: get it anew from its CA"
        ) from None
    return found


def _key(name: str) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(_read("tls.key", name), None)
    except TypeError:
        raise TlsError(
            f"tls.key: {name} is encrypted, and nobody is there to give the password when the box "
            f"starts: `openssl pkey -in {Path(name).name} -out plain.pem` takes it off"
        ) from None
    except UnsupportedAlgorithm as error:
        raise TlsError(f"tls.key: {name} is a key of another kind: {error}. {_KINDS}") from None
    except ValueError:
        raise TlsError(f"tls.key: {name} is no PEM file of a private key") from None


def _read(setting: str, name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise TlsError(f"{setting}: {name} cannot be read: {error.strerror}") from None
