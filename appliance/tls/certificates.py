"""Certificates of a box: its own CA, and the server certificate that the CA signs.

Pure: the time is an argument, and nothing is read or written. A clock that stands before `RELEASED`
is wrong, so it is taken to stand there: a first start with an empty clock battery must not make
certificates that have ended when the clock is set right.
"""

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = 86400.0
RELEASED = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
CA_DAYS = 3652
"""Ten years: clients of an offline site get the CA by hand."""
SERVER_DAYS = 397
"""The most that browsers accept, back-dating included."""
BACKDATED_DAYS = 1
"""Clients whose clocks are behind must not find a certificate of the future."""
RENEW_DAYS = 30


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_ca(machine: str, wall: float) -> Pair:
    """A CA that can sign certificates of servers and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Two boxes, or two CAs of one box, must not look the same in a client's list.
    subject = _named(f"Steelyard CA {machine[:40]} {serial & 0xFFFFFFFF:08x}")
    builder = (
        _begun(wall, CA_DAYS)
        .serial_number(serial)
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_server(ca: Pair, names: Iterable[str], wall: float) -> Pair:
    """A server's certificate for the names and addresses; it never outlives the CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    known = list(dict.fromkeys(names))
    signer = ca.key.public_key()
    builder = (
        _begun(wall, SERVER_DAYS, ca.certificate.not_valid_after_utc)
        .serial_number(x509.random_serial_number())
        .subject_name(_named(known[0][:64]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, known)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def _begun(wall: float, days: int, latest: datetime | None = None) -> x509.CertificateBuilder:
    start = datetime.fromtimestamp(sane(wall), UTC).replace(microsecond=0)
    start -= timedelta(days=BACKDATED_DAYS)
    end = start + timedelta(days=days)
    builder = x509.CertificateBuilder().not_valid_before(start)
    return builder.not_valid_after(end if latest is None else min(end, latest))


def sane(wall: float) -> float:
    """The time, or the box's release where the clock stands before it."""
    return max(wall, RELEASED)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# -- what a certificate says -----------------------------------------------------------------------


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses it is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def missing_names(certificate: x509.Certificate, wanted: Iterable[str]) -> list[str]:
    """Those that the certificate is not for."""
    names = {normal(name) for name in names_of(certificate)}
    return [name for name in wanted if not covers(names, name)]


def covers(names: Collection[str], wanted: str) -> bool:
    """Whether a certificate for `names` (normal ones) is good for that name."""
    wanted = normal(wanted)
    return wanted in names or f"*.{wanted.partition('.')[2]}" in names


def normal(name: str) -> str:
    """One spelling for each name and address."""
    name = name.strip("[]").partition("%")[0].rstrip(".").lower()
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def days_left(certificate: x509.Certificate, wall: float) -> float:
    """Until it ends; negative afterwards."""
    return (certificate.not_valid_after_utc.timestamp() - wall) / DAY


def due(certificate: x509.Certificate, wall: float) -> str:
    """Why a new one is needed as to time; empty while it is good."""
    now = sane(wall)
    if certificate.not_valid_before_utc.timestamp() > now + DAY:
        return "it begins in the future"
    left = days_left(certificate, now)
    if left < 0:
        return "it has ended"
    return f"it ends in {left:.0f} days" if left < RENEW_DAYS else ""


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256, as browsers and openssl show it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()
