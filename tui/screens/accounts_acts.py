"""What may be done to a key: the dialogs, and the secret that is shown once."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from tui.screen import Ask, Call, Effect, Show, Tell
from tui.screens.accounts_forms import titled
from tui.screens.accounts_rows import Key, KeyRow
from tui.view import View


def rotate(view: View, key: Key) -> Effect:
    """`O`: another secret for the same key."""
    if key.state != "valid":
        return over(view, key)
    words, name = view.words, view.foreign(key.name)
    call = Call("POST", f"{_path(key)}/rotate", {}, done=words("accounts.rotate.done", name=name))
    lines = (words("accounts.rotate.what"), words("accounts.rotate.grace"))
    return Ask(titled(view, "accounts.rotate.title", key.name), lines, call)


def revoke(view: View, row: KeyRow, keys: Sequence[Key]) -> Effect:
    """`X`: the end of a key. For the last one that may administer the box, its name is typed."""
    key, words = row.key, view.words
    if key.revoked is not None:
        return over(view, key)
    last = is_last_admin(key, keys)
    call = Call(
        "DELETE",
        f"{_path(key)}?force=1" if last else _path(key),
        done=words("accounts.revoke.done", name=view.foreign(key.name)),
        idempotent=False,
    )
    whom = words(
        "accounts.revoke.whom",
        tenant=view.foreign(key.tenant),
        scopes=view.foreign("+".join(key.scopes)),
        tokens=row.tok_min,
    )
    lines = (whom, words("accounts.revoke.what"))
    title = titled(view, "accounts.revoke.title", key.name)
    if not last:
        return Ask(title, lines, call)
    return Ask(title, (*lines, words("accounts.revoke.last")), call, typed=key.name)


def is_last_admin(key: Key, keys: Sequence[Key]) -> bool:
    """Whether nobody could administer the box over the network without it."""
    admins = {one.id for one in keys if one.state == "valid" and "admin" in one.scopes}
    return admins == {key.id}


def over(view: View, key: Key) -> Tell:
    """It has ended, and nothing can be done to it."""
    state = view.words.or_else(f"accounts.state.{key.state}", view.foreign(key.state))
    return Tell(view.words("accounts.over", name=view.foreign(key.name), state=state))


def secret(view: View, data: Any) -> Show | None:
    """The secret in an answer, to be shown once; nobody keeps it."""
    found = data.get("secret") if isinstance(data, dict) else None
    if not isinstance(found, str):
        return None
    name = str(data.get("key", {}).get("name", ""))
    lines = ("", view.foreign(found), "", view.words("accounts.secret.keep"))
    return Show(titled(view, "accounts.secret.title", name), lines)


def _path(key: Key) -> str:
    return f"/admin/keys/{quote(key.id, safe='', errors='replace')}"
