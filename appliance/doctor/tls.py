"""Area `tls`: the certificates that clients meet. Nothing is made or renewed by looking."""

import time
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509

from appliance.config import is_loopback
from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground
from appliance.tls import TlsError, tls_on
from appliance.tls.certificates import days_left, missing_names
from appliance.tls.given import read_given
from appliance.tls.names import wanted_names
from appliance.tls.own import OwnCertificates
from appliance.tls.state import FOLDER, WARN_DAYS

_RENEW = "`steelyard tls renew` makes a new one; clients notice nothing"


def look(ground: Ground, wall: float | None = None) -> Iterator[Finding]:
    config = ground.config
    now = time.time() if wall is None else wall
    if not tls_on(config):
        yield _in_clear(config.server.host)
        return
    if config.tls.cert:
        yield from _given(ground, now)
    else:
        yield from _own(ground, now)
    if config.tls.client_ca:
        yield _client_ca(Path(config.tls.client_ca), now)


def _in_clear(host: str) -> Finding:
    if is_loopback(host):
        return ok("tls.on", f"{host} is this machine alone, so plain HTTP will do")
    return warn(
        "tls.on",
        f"{host} can be reached by other machines, and keys cross the network in clear",
        'leave tls.mode at "auto"',
    )


def _given(ground: Ground, now: float) -> Iterator[Finding]:
    tls = ground.config.tls
    try:
        found = read_given(tls.cert, tls.key, tls.names, now)
    except TlsError as error:
        yield fail("tls.dates", str(error), "correct tls.cert and tls.key")
        return
    yield _dates(found, now, f"replace {tls.cert}, its key first; a running box takes both")


def _own(ground: Ground, now: float) -> Iterator[Finding]:
    own = OwnCertificates(ground.state_dir / FOLDER)
    try:
        ca = own.load_ca()
        if ca is None:
            yield note("tls.dates", "there is no certificate yet: the first start makes one")
            return
        found = read_given(str(own.cert), str(own.key), (), now)
    except TlsError as error:
        yield fail("tls.dates", str(error), "what to do stands there; docs/operating.md, TLS")
        return
    yield _dates(found, now, _RENEW)
    left = days_left(ca, now)
    if left < WARN_DAYS:
        yield warn(
            "tls.ca",
            f"the box's CA ends in {left:.0f} days",
            "at its end the box makes a new one: plan to give it to all clients "
            "(`steelyard tls export-ca`)",
        )
    else:
        yield ok("tls.ca", f"the box's CA is good for {left:.0f} days more")
    missing = missing_names(found, wanted_names(ground.config))
    if missing:
        yield note("tls.names", f"the certificate is not for {', '.join(missing)}", _RENEW)


def _dates(certificate: x509.Certificate, now: float, advice: str) -> Finding:
    left = days_left(certificate, now)
    told = f"good until {certificate.not_valid_after_utc:%Y-%m-%d}, {left:.0f} days more"
    if certificate.not_valid_before_utc.timestamp() > now:
        return fail(
            "tls.dates",
            f"the certificate begins on {certificate.not_valid_before_utc:%Y-%m-%d}, by this clock "
            "in the future",
            "set the clock; see `clock`",
        )
    return warn("tls.dates", told, advice) if left < WARN_DAYS else ok("tls.dates", told)


def _client_ca(path: Path, now: float) -> Finding:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror}"
        return fail("tls.client_ca", told, "correct tls.client_ca")
    except ValueError:
        told = f"{path} is no PEM file of certificates"
        return fail("tls.client_ca", told, "correct tls.client_ca")
    left = min(days_left(one, now) for one in found)
    told = f"{len(found)} CAs of clients, the first ends in {left:.0f} days"
    if left < WARN_DAYS:
        return warn("tls.client_ca", told, f"replace it in {path} in time")
    return ok("tls.client_ca", told)
