"""`steelyard bundle`: making and checking what a box is installed and updated from."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.passphrases import passphrase, passphrase_option
from appliance.commands.progress import Working

if TYPE_CHECKING:
    from appliance.bundle.minisign import PublicKey

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

key_option = click.option(
    "--key",
    "given",
    metavar="KEY",
    help="Public key, or its file, instead of those in /etc/steelyard/bundle.pub.",
)
root_option = click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/"),
    help="A tree in place of /.",
)


@click.group("bundle")
def bundle_group() -> None:
    """Make and check bundles, from which boxes are installed and updated."""


@bundle_group.command("keygen")
@click.argument("secret", type=click.Path(path_type=Path))
def bundle_keygen(secret: Path) -> None:
    """Make a key that signs bundles: SECRET, and the public key beside it (.pub)."""
    from appliance.bundle.signing import make_key, write_pair

    key = make_key()
    public = write_pair(key, secret)
    click.echo(f"secret key: {secret} (keep it off the boxes and off the network)")
    click.echo(f"public key: {public}\n{key.public.line()}")


@bundle_group.command("create")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--key", "secret", type=_FILE, required=True, help="Secret key to sign with.")
@passphrase_option
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="3.N",
    help="Python version of the boxes; repeat it for several. Default: this one's.",
)
@click.option(
    "--backend", type=click.Choice(["cpu", "cuda"]), default="cpu", help="cuda: NVIDIA GPUs."
)
@click.option("--engine", type=_FILE, help="llama-cpp-python wheel, instead of building one.")
@click.option("--model", "models", type=_FILE, multiple=True, help="GGUF file to bring along.")
@click.option("--firmware", type=_FILE, multiple=True, help="Signed board image to bring along.")
@click.option("--min-version", default="0.1.0", help="Oldest version that this one may replace.")
@click.option("--comment", default="", help="A line that is signed, and shown by verify.")
def bundle_create(
    target: Path,
    secret: Path,
    passphrase_file: Path | None,
    pythons: tuple[str, ...],
    backend: str,
    engine: Path | None,
    models: tuple[Path, ...],
    firmware: tuple[Path, ...],
    min_version: str,
    comment: str,
) -> None:
    """Make the bundle TARGET, a folder. Needs a network and a checkout of the sources."""
    from appliance.bundle.create import Plan, create
    from appliance.bundle.filling import python_version
    from appliance.bundle.signing import read_secret

    plan = Plan(
        pythons=pythons or (python_version(),),
        backend=backend,
        engine=engine,
        models=models,
        firmware=firmware,
        min_version=min_version,
        comment=comment,
    )
    key = read_secret(secret, lambda: passphrase(passphrase_file))
    with Working() as bar:
        made = create(target, plan, key, _say, tell=lambda n, of: bar.tell("fetch", n, of))
    click.echo(f"{target}: Steelyard {made.version}, {len(made.files)} files, {_mib(made.size)}")


@bundle_group.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path))
@key_option
@root_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def bundle_verify(bundle: Path, given: str | None, root: Path, as_json: bool, quiet: bool) -> None:
    """Check a bundle's signature and the SHA-256 of every file."""
    from appliance.bundle.folder import check_files, open_bundle
    from appliance.bundle.signing import verify

    opened = open_bundle(bundle, keys_of(given, root), verify)
    with Working(quiet=quiet) as bar:
        check_files(opened, lambda done, total: bar.tell("verify", done, total))
    made = opened.manifest
    facts = {
        "version": made.version,
        "min_version": made.min_version,
        "created": made.created,
        "platform": made.platform,
        "glibc": made.glibc,
        "pythons": list(made.pythons),
        "files": len(made.files),
        "bytes": made.size,
        "key": opened.key.name,
        "comment": opened.comment,
        "manifest_sha256": opened.digest,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(
        f"ok: Steelyard {made.version} for Python {', '.join(made.pythons)}, {len(made.files)} "
        f"files, {_mib(made.size)}\nsigned with {opened.key.name}: {opened.comment}"
    )


@bundle_group.command("list")
@click.argument("bundle", type=click.Path(path_type=Path))
@key_option
@root_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bundle_list(bundle: Path, given: str | None, root: Path, as_json: bool) -> None:
    """List a bundle's files. Checks the signature, and does not read the files."""
    from appliance.bundle.folder import open_bundle
    from appliance.bundle.signing import verify

    opened = open_bundle(bundle, keys_of(given, root), verify)
    if as_json:
        click.echo(opened.manifest.dump().decode(), nl=False)
        return
    for entry in opened.manifest.files:
        click.echo(f"{entry.role:9} {entry.size:>12}  {entry.path}")


def keys_of(given: str | None, root: Path) -> "tuple[PublicKey, ...]":
    """Whom a bundle may come from. Raises BundleError."""
    from appliance.bundle.layout import Layout
    from appliance.bundle.signing import key_given

    return (key_given(given),) if given else Layout(root).trusted_keys()


def _say(text: str) -> None:
    click.echo(text, err=True)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
