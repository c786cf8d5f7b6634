"""`steelyard keys` and `steelyard tenants`: who may use the box, and how much."""

import textwrap
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.commands.chained import operator
from appliance.commands.configured import config_option, load_config

if TYPE_CHECKING:
    from appliance.accounts.keys import By, Key, KeyStore
    from appliance.accounts.limits import Limits

WIDTH = 80
LIMITS_HELP = (
    "A limit as name=value, several times: requests_per_min, tokens_per_min, tokens_per_day, "
    "cost_per_month, concurrent, priority."
)

limit_option = click.option("--limit", "limits", multiple=True, help=LIMITS_HELP)
none_option = click.option("--none", is_flag=True, help="Take all limits away.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("keys")
def keys_group() -> None:
    """Make, list, limit, rotate and revoke API keys. A running daemon follows at once."""


@keys_group.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["infer", "metrics", "admin"]),
    multiple=True,
    default=["infer"],
    show_default=True,
    help="What the key may do; may be given several times.",
)
@click.option("--tenant", default="default", show_default=True, help="Whose key it is.")
@click.option(
    "--expires", type=click.DateTime(["%Y-%m-%d"]), help="Last day on which it is good (UTC)."
)
@limit_option
@config_option
def keys_create(
    name: str,
    scopes: tuple[str, ...],
    tenant: str,
    expires: datetime | None,
    limits: tuple[str, ...],
    file: Path | None,
) -> None:
    """Make a key and print its secret, which nothing can show again."""
    last = expires.date() if expires else None
    secret = _store(file).create(
        name, scopes, last, tenant=tenant, limits=_limits(limits), by=_by()
    )
    click.echo(secret)
    click.echo(
        f"Key {name} of tenant {tenant} may: {', '.join(sorted(set(scopes)))}. "
        "It is not shown again.",
        err=True,
    )


@keys_group.command("list")
@json_option
@config_option
def keys_list(as_json: bool, file: Path | None) -> None:
    """Show all keys, with their limits below; secrets are not kept."""
    store = _store(file)
    keys, today = store.list(), store.today()
    if as_json:
        _print_json([_facts(key, key.state(today)) for key in keys])
    elif not keys:
        click.echo("No keys. `steelyard keys create NAME --scope infer` makes one.", err=True)
    else:
        click.echo(_table([(key, key.state(today)) for key in keys]))


@keys_group.command("revoke")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also the last valid key with scope admin.")
@config_option
def keys_revoke(name: str, force: bool, file: Path | None) -> None:
    """End the key of that NAME (or id) for good. Its name is free again."""
    from appliance.accounts.keys import LastAdmin

    try:
        key = _store(file).revoke(name, force=force, by=_by())
    except LastAdmin as error:
        raise LastAdmin(f"{error} with --force") from None
    click.echo(f"Revoked {key.name} ({key.id}).", err=True)


@keys_group.command("rotate")
@click.argument("name")
@click.option("--grace", type=float, default=0, help="Seconds for which the old secret is good.")
@config_option
def keys_rotate(name: str, grace: float, file: Path | None) -> None:
    """Give the key of that NAME (or id) a new secret and print it."""
    key, secret = _store(file).rotate(name, grace, by=_by())
    click.echo(secret)
    until = f"until {key.grace_until:%Y-%m-%d %H:%M:%S} UTC" if key.grace_until else "no more"
    click.echo(f"The old secret of {key.name} is good {until}.", err=True)


@keys_group.command("limits")
@click.argument("name")
@limit_option
@none_option
@config_option
def keys_limits(name: str, limits: tuple[str, ...], none: bool, file: Path | None) -> None:
    """Show the limits of the key of that NAME (or id), or set all of them anew."""
    store = _store(file)
    if _asks_to_set(limits, none):
        key = store.set_limits(name, _limits(limits), by=_by())
    else:
        key = store.find(name)
    click.echo(f"{key.name}: {_words(key.limits)}")


@keys_group.command("prune")
@click.option(
    "--days", type=click.IntRange(0), default=90, show_default=True,
    help="Keep those that were revoked within so many days.",
)  # fmt: skip
@config_option
def keys_prune(days: int, file: Path | None) -> None:
    """Take keys that were revoked long ago off the list. The ledger keeps what they did."""
    from datetime import timedelta

    store = _store(file)
    gone = store.prune(store.today() - timedelta(days=days), by=_by())
    click.echo(f"{len(gone)} taken off the list.", err=True)


@click.group("tenants")
def tenants_group() -> None:
    """Limit what all keys of a tenant together may use."""


@tenants_group.command("list")
@json_option
@config_option
def tenants_list(as_json: bool, file: Path | None) -> None:
    """Show all tenants and their limits."""
    from appliance.accounts.limits import shown

    tenants = _store(file).tenants.list()
    if as_json:
        _print_json([{"name": one.name, "limits": shown(one.limits)} for one in tenants])
        return
    for tenant in tenants:
        click.echo(_wrapped(f"{tenant.name}: {_words(tenant.limits)}"))


@tenants_group.command("set")
@click.argument("name")
@limit_option
@none_option
@config_option
def tenants_set(name: str, limits: tuple[str, ...], none: bool, file: Path | None) -> None:
    """Set all limits of the tenant NAME anew."""
    if not _asks_to_set(limits, none):
        raise click.UsageError("give one or more --limit name=value, or --none")
    tenant = _store(file).tenants.set(name, _limits(limits), _by())
    click.echo(f"{tenant.name}: {_words(tenant.limits)}")


# -- what is read ----------------------------------------------------------------------------------


def _store(file: Path | None) -> "KeyStore":
    from appliance.accounts.keys import FILE_NAME, KeyStore

    return KeyStore(load_config(file).server.state_dir / FILE_NAME)


def _by() -> "By":
    """Whoever is logged in; the ledger keeps the name."""
    from appliance.accounts.keys import By

    return By(operator=operator())


def _limits(pairs: tuple[str, ...]) -> "Limits":
    from appliance.accounts.limits import LimitsRefused, limits_from_text

    try:
        return limits_from_text(pairs)
    except LimitsRefused as error:
        raise click.UsageError(f"--limit {error}") from None


def _asks_to_set(limits: tuple[str, ...], none: bool) -> bool:
    if limits and none:
        raise click.UsageError("--limit and --none exclude each other")
    return bool(limits) or none


# -- what is shown ---------------------------------------------------------------------------------


def _table(keys: "list[tuple[Key, str]]") -> str:
    """A line per key, cut to the terminal, and its limits below."""
    rows = [("ID", "NAME", "TENANT", "SCOPES", "EXPIRES", "STATE")]
    rows += [_row(key, state) for key, state in keys]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for column in (1, 2):
        over = sum(widths) + 2 * 5 - WIDTH
        widths[column] = max(8, widths[column] - max(0, over))
    gap = "  " if sum(widths) + 2 * 5 <= WIDTH else " "
    lines = [gap.join(map(_cut, row, widths)).rstrip() for row in rows]
    for place, (key, _) in reversed(list(enumerate(keys, 1))):
        if (words := _words(key.limits)) != "no limits":
            lines.insert(place + 1, _wrapped(words, " " * (widths[0] + len(gap))))
    return "\n".join(lines)


def _row(key: "Key", state: str) -> tuple[str, str, str, str, str, str]:
    scopes = ",".join(sorted(key.scopes))
    return key.id, key.name, key.tenant, scopes, str(key.expires or "never"), state


def _cut(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "~"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent or "    ")


def _words(limits: "Limits") -> str:
    from appliance.accounts.limits import shown

    found = [f"{name}={value}" for name, value in shown(limits).items() if value is not None]
    return " ".join(found) or "no limits"


def _facts(key: "Key", state: str) -> dict[str, Any]:
    import msgspec

    from appliance.accounts.limits import shown

    found: dict[str, Any] = msgspec.to_builtins(key)
    return {**found, "scopes": sorted(key.scopes), "limits": shown(key.limits), "state": state}


def _print_json(data: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
