"""What may be done to a request, and written down of it: dialogs and files."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from appliance.frames import RequestRow
from tui.screen import Ask, Call, Choose, Effect, Save, Tell
from tui.screens.audit_replay import replay_ask
from tui.screens.requests_rows import Ended, short, state_of
from tui.throttle import throttle
from tui.view import View


def cancel(view: View, row: RequestRow | Ended, *, over: bool) -> Effect:
    """`X`: the end of a request. `over`: it has ended meanwhile."""
    words, name = view.words, view.foreign(row.id)
    if isinstance(row, Ended) or over:
        return Tell(words("requests.cancel.ended", id=name))
    whom = words(
        "requests.cancel.whom",
        whose=view.foreign(row.key),
        tenant=view.foreign(row.tenant),
        state=state_of(row, view),
        gen=row.gen_tok,
    )
    call = Call(
        "DELETE",
        f"/admin/requests/{quote(row.id, safe='', errors='replace')}",
        done=words("requests.cancel.done", id=short(name)),
        idempotent=False,
    )
    lines = (name, whom, words("requests.cancel.what"))
    return Ask(words("requests.cancel.title", id=short(name)), lines, call)


PLACES = ((-1, "a"), (0, "a"), (0, "b"), (1, "b"))
"""Priority and pool that a request can be moved to: the tiers, and before other batch requests."""


def prioritise(view: View, row: RequestRow | Ended, *, over: bool) -> Effect:
    """`P`: another place in the queue, another pool. `over`: it has ended meanwhile."""
    words, name = view.words, view.foreign(row.id)
    if isinstance(row, Ended) or over:
        return Tell(words("requests.priority.ended", id=name))
    told = row

    def then(value: str) -> Effect:
        return _move(view, told, *PLACES[int(value)])

    options = [
        (str(at), words(f"requests.priority.{pool}{priority}"))
        for at, (priority, pool) in enumerate(PLACES)
    ]
    tier, pool = view.foreign(row.tier), view.foreign(row.pool)
    title = words("requests.priority.title", id=short(name), tier=tier, pool=pool)
    return Choose(title, tuple(options), then, chosen=1 if row.pool == "A" else 3)


def _move(view: View, row: RequestRow, priority: int, pool: str) -> Effect:
    words, name = view.words, view.foreign(row.id)
    call = Call(
        "POST",
        f"/admin/requests/{quote(row.id, safe='', errors='replace')}/priority",
        {"priority": priority, "pool": pool},
        done=words("requests.priority.done", id=short(name), pool=pool.upper()),
        idempotent=False,
    )
    whom = words(
        "requests.cancel.whom",
        whose=view.foreign(row.key),
        tenant=view.foreign(row.tenant),
        state=state_of(row, view),
        gen=row.gen_tok,
    )
    what = words(f"requests.priority.{pool}{priority}")
    lines = (name, whom, what, words("requests.priority.what"))
    return Ask(words("requests.priority.ask", id=short(name)), lines, call)


def replay(view: View, row: RequestRow | Ended) -> Effect:
    """`N`: an ended answer once more."""
    if not isinstance(row, Ended):
        return Tell(view.words("requests.replay.live"))
    if row.audits:
        return Tell(view.words("requests.replay.own"))
    return replay_ask(row.id, 0, view)


def throttle_key(
    view: View, row: RequestRow | Ended, limits: Mapping[str, Mapping[str, Any]]
) -> Effect:
    """`T`: a limit for the key whose request it is."""
    name = row.key_name if isinstance(row, Ended) else row.key
    keys = () if view.rows is None else view.rows.keys
    rate = next((one.tok_min for one in keys if one.key == name), 0)
    if name in limits and not rate:
        return Tell(view.words("requests.throttle.idle", name=view.foreign(name)))
    return throttle(view, name, rate, limits)


def written(name: str, what: object) -> Save:
    """As JSON."""
    text = msgspec.json.format(msgspec.json.encode(what), indent=2)
    return Save(f"{name}.json", text.decode())
