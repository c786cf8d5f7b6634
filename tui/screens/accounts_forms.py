"""What is typed on screen 4: a new key, limits. Each ends in a dialog, never in an action."""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any
from urllib.parse import quote

from tui.cells import clip
from tui.form import Blank, Form, Invalid
from tui.screen import Ask, Call, Effect
from tui.screens.accounts_rows import LIMITS, Key, Limits, Tenant, amount, today_of
from tui.view import View

SCOPES = ("infer", "metrics", "admin")
TIERS = ("priority", "default", "flex")
DAYS = 90
"""What a new key is good for, unless something else is typed."""
_NAME = re.compile(r"(?!k_)[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,62}[A-Za-z0-9])?")
_DAYS = re.compile(r"([0-9]{1,5}) ?d?")
_MONEY = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_TITLE = 30


def titled(view: View, key: str, name: str) -> str:
    """The title of a dialog about a name, which may be long."""
    return view.words(key, name=clip(view.foreign(name), _TITLE))


def new_key(view: View, tenant: str) -> Form:
    """The form for a key; Enter needs a name and no more."""
    blanks = (
        Blank("name", "accounts.field.name", "accounts.takes.name"),
        Blank("tenant", "accounts.field.tenant", "accounts.takes.tenant", tenant),
        Blank("scopes", "accounts.field.scopes", "accounts.takes.scopes", "infer"),
        Blank("expires", "accounts.field.expires", "accounts.takes.expires", f"{DAYS} d"),
    )
    return Form(view.words("accounts.form.new"), blanks, _create)


def _create(texts: Mapping[str, str], view: View) -> Effect:
    words = view.words
    name, tenant = _name(texts, "name"), _name(texts, "tenant")
    scopes, expires = _scopes(texts["scopes"]), _expires(texts["expires"], view)
    until = (
        words("accounts.create.forever")
        if expires is None
        else words("accounts.create.until", day=expires)
    )
    body = {"name": name, "tenant": tenant, "scopes": scopes}
    body |= {} if expires is None else {"expires": expires}
    call = Call("POST", "/admin/keys", body, done=words("accounts.create.done", name=name))
    what = words("accounts.create.what", tenant=tenant, scopes="+".join(scopes), expires=until)
    lines = (what, words("accounts.create.once"))
    return Ask(titled(view, "accounts.create.title", name), lines, call)


def key_limits(view: View, key: Key) -> Form:
    """The limits of a key, as they are."""
    path = f"/admin/keys/{quote(key.id, safe='', errors='replace')}/limits"

    def then(texts: Mapping[str, str], view: View) -> Effect:
        return _limits_ask(view, key.name, path, limits_from(texts), limits_from(texts))

    return Form(titled(view, "accounts.form.limits", key.name), _blanks(key.limits), then)


def tenant_limits(view: View, tenant: Tenant) -> Form:
    """The same of a tenant."""

    def then(texts: Mapping[str, str], view: View) -> Effect:
        found = limits_from(texts)
        body = {"name": tenant.name, "limits": found}
        return _limits_ask(view, tenant.name, "/admin/tenants", body, found)

    return Form(titled(view, "accounts.form.tenant", tenant.name), _blanks(tenant.limits), then)


def new_tenant(view: View) -> Form:
    """A tenant is made by its limits."""

    def then(texts: Mapping[str, str], view: View) -> Effect:
        name, found = _name(texts, "name"), limits_from(texts)
        body = {"name": name, "limits": found}
        return _limits_ask(view, name, "/admin/tenants", body, found)

    blank = Blank("name", "accounts.field.name", "accounts.takes.name")
    return Form(view.words("accounts.form.newtenant"), (blank, *_blanks(Limits())), then)


def _limits_ask(
    view: View, name: str, path: str, body: Mapping[str, Any], limits: Mapping[str, Any]
) -> Ask:
    words, shown = view.words, view.foreign(name)
    call = Call("POST", path, body, done=words("accounts.limits.done", name=shown))
    lines = (told(limits, view), words("accounts.limits.what"))
    return Ask(titled(view, "accounts.limits.title", name), lines, call)


def told(limits: Mapping[str, Any], view: View) -> str:
    """Limits in words: `60 req/min, 20000 tok/min`."""
    parts = [
        view.words(
            f"accounts.limit.{name}",
            amount(limits[name]) if name == "cost_per_month" else view.foreign(str(limits[name])),
        )
        for name in LIMITS
        if limits.get(name) is not None
    ]
    return ", ".join(parts) or view.words("accounts.limits.none")


def _blanks(limits: Limits) -> tuple[Blank, ...]:
    takes = {"cost_per_month": "money", "priority": "tier"}
    return tuple(
        Blank(
            name,
            f"accounts.field.{name}",
            f"accounts.takes.{takes.get(name, 'number')}",
            "" if (value := getattr(limits, name)) is None else str(value),
            20,
        )
        for name in LIMITS
    )


# -- reading what was typed ------------------------------------------------------------------------


def limits_from(texts: Mapping[str, str]) -> dict[str, Any]:
    """As the box takes them; what is empty is left out. Raises Invalid."""
    return {name: _limit(name, texts[name]) for name in LIMITS if texts[name]}


def _limit(name: str, text: str) -> int | str:
    if name == "priority":
        if text in TIERS:
            return text
        raise Invalid(name, "accounts.bad.tier")
    if name == "cost_per_month":
        if _MONEY.fullmatch(text) and float(text) > 0:
            return text
        raise Invalid(name, "accounts.bad.money")
    plain = text.replace(" ", "").replace(",", "")
    if plain.isascii() and plain.isdecimal() and len(plain) < 16 and int(plain):
        return int(plain)
    raise Invalid(name, "accounts.bad.number")


def _name(texts: Mapping[str, str], field: str) -> str:
    """As appliance/accounts takes names."""
    if not _NAME.fullmatch(texts[field]):
        raise Invalid(field, "accounts.bad.name")
    return texts[field]


def _scopes(text: str) -> list[str]:
    found = text.replace(",", " ").replace("+", " ").split()
    if not found or any(scope not in SCOPES for scope in found):
        raise Invalid("scopes", "accounts.bad.scopes")
    return sorted(set(found))


def _expires(text: str, view: View) -> str | None:
    """A day; None for never."""
    today = today_of(view)
    if not text:
        return None
    try:
        if (days := _DAYS.fullmatch(text)) and today is not None:
            return str(today + timedelta(days=int(days[1])))
        found = date.fromisoformat(text)
    except (ValueError, OverflowError):
        raise Invalid("expires", "accounts.bad.expires") from None
    if today is not None and found < today:
        raise Invalid("expires", "accounts.bad.past")
    return str(found)
