"""`steelyard tls`: the certificate that the box shows, and the CA that clients need."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.chained import chain
from appliance.commands.configured import config_option, load_config

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from appliance.config import Config
    from appliance.tls.own import OwnCertificates

_HINTS = """\
With curl:                 curl --cacert {file} https://…
With the openai client:    export SSL_CERT_FILE={file}
                           or OpenAI(http_client=httpx.Client(verify=ssl_context)) with
                           ssl_context = ssl.create_default_context(cafile="{file}")
For all of a Debian or Ubuntu client: copy it to /usr/local/share/ca-certificates/steelyard.crt
                           and run `update-ca-certificates`
Its SHA-256, to compare on the client: {fingerprint}"""


@click.group("tls")
def tls_group() -> None:
    """Show and renew the certificate, export the CA."""


@tls_group.command("show")
@config_option
def tls_show(file: Path | None) -> None:
    """Show the certificate: names, end, fingerprint."""
    _show(load_config(file))


def _show(config: "Config") -> None:
    from appliance.tls import in_clear, tls_on
    from appliance.tls.given import read_given

    click.echo(f"TLS is {'on' if tls_on(config) else 'off'} (tls.mode {config.tls.mode!r}).")
    if warning := in_clear(config):
        click.echo(f"Warning: {warning}.")
    if config.tls.cert:
        tls = config.tls
        certificate = read_given(tls.cert, tls.key, tls.names, time.time())
        _print("Certificate", config.tls.cert, certificate)
        return
    own = _own(config)
    ca = own.load_ca()
    if ca is None:
        click.echo("No certificate yet: the first start of the box makes one.")
        return
    if own.cert.exists():
        certificate = read_given(str(own.cert), str(own.key), (), time.time())
        _print("Certificate", str(own.cert), certificate)
    _print("CA", str(own.ca), ca)


@tls_group.command("renew")
@config_option
def tls_renew(file: Path | None) -> None:
    """Make a new certificate now. Clients notice nothing: the CA stays."""
    from appliance.tls.names import wanted_names

    config = load_config(file)
    own = _own(config)
    own.ensure(wanted_names(config), time.time(), renew=True)
    chain(config, "tls.renew")
    _show(config)
    click.echo("A running box takes it within a minute.", err=True)


@tls_group.command("export-ca")
@click.argument("target", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE")
@config_option
def tls_export_ca(target: Path, file: Path | None) -> None:
    """Write the CA's certificate to FILE (`-`: standard output), for clients. It is no secret."""
    from cryptography.hazmat.primitives.serialization import Encoding

    from appliance.tls import TlsError
    from appliance.tls.certificates import fingerprint
    from appliance.tls.names import wanted_names

    config = load_config(file)
    own = _own(config)
    own.ensure(wanted_names(config), time.time())
    ca = own.load_ca()
    assert ca is not None
    try:
        with click.open_file(str(target), "wb") as out:
            out.write(ca.public_bytes(Encoding.PEM))
    except OSError as error:
        raise TlsError(f"{target} cannot be written: {error.strerror}") from None
    named = "FILE" if str(target) == "-" else target
    click.echo(_HINTS.format(file=named, fingerprint=fingerprint(ca)), err=True)


def _own(config: "Config") -> "OwnCertificates":
    """The box's own certificates. Raises TlsError where it uses others."""
    from appliance.tls import TlsError
    from appliance.tls.own import OwnCertificates
    from appliance.tls.state import FOLDER

    if config.tls.cert:
        raise TlsError(
            f"the certificate comes from tls.cert, {config.tls.cert}: replace that file, and a "
            "running box takes the new one within a minute; its CA is where you have it from"
        )
    return OwnCertificates(config.server.state_dir / FOLDER)


def _print(what: str, file: str, certificate: "Certificate") -> None:
    from appliance.tls.certificates import days_left, fingerprint, names_of

    left = days_left(certificate, time.time())
    click.echo(f"\n{what}: {file}")
    if names := names_of(certificate):
        click.echo(f"  for      {', '.join(names)}")
    click.echo(f"  issuer   {certificate.issuer.rfc4514_string()}")
    click.echo(
        f"  until    {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, {left:.0f} days left"
    )
    click.echo(f"  SHA-256  {fingerprint(certificate)}")
