"""`steelyard support`: one file to hand over when somebody is to help."""

import platform
import re
import time
from pathlib import Path

import click

from appliance.commands.looking import ground_given, ground_options
from appliance.commands.progress import Working
from appliance.commands.targets import refuse_unwritable


@click.command("support")
@click.argument("target", metavar="[FILE]", type=click.Path(path_type=Path), required=False)
@click.option("--no-doctor", is_flag=True, help="Leave the doctor's findings out: they take time.")
@click.option("--force", is_flag=True, help="Replace FILE.")
@ground_options
def support_command(
    target: Path | None,
    no_doctor: bool,
    force: bool,
    file: Path | None,
    url: str | None,
    key_file: Path | None,
    cacert: str | None,
) -> int:
    """Write a support bundle: configuration, versions, log, metrics, the doctor's findings and the
    ledger's newest states, without texts, keys or passwords. FILE is a tar.gz, in the current
    directory unless named; what is in it says its README.txt. Nothing is sent anywhere."""
    from appliance.doctor.report import AREAS
    from appliance.support.pack import Bundle, archive, refuse_taken, write
    from appliance.support.parts import gather, known_secrets
    from appliance.support.redact import Redactor

    wall = time.time()
    found = ground_given(file, url, key_file, cacert)
    chosen = target if target is not None else Path(default_name(platform.node(), wall))
    refuse_taken(chosen, force=force)
    refuse_unwritable(chosen)
    bundle = Bundle(Redactor(known_secrets(found)))
    with Working() as working:
        gather(bundle, found, wall, working.tell, () if no_doctor else AREAS)
    data = archive(bundle.members, wall)
    write(chosen, data, force=force)
    click.echo(str(chosen))
    struck = sum(sum(counts.values()) for counts in bundle.struck.values())
    click.echo(
        f"{len(bundle.members)} files, {len(data) / 1e3:.0f} kB; {struck} secrets struck out, "
        f"{len(bundle.missing)} parts missing (its README.txt says why). Look through it before "
        "you hand it over.",
        err=True,
    )
    return 0


def default_name(host: str, wall: float) -> str:
    """Of this box, at this second."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall))
    return f"steelyard-support-{re.sub(r'[^A-Za-z0-9.-]', '-', host)[:64] or 'box'}-{when}.tar.gz"
