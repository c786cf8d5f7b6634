"""Area `keys`: is there one for what the box is to do, and which end soon?"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from appliance.accounts.book import Book, State
from appliance.accounts.keys import FILE_NAME, Scope
from appliance.config import is_loopback
from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground

SOON = timedelta(days=14)


def look(ground: Ground) -> Iterator[Finding]:
    path = ground.state_dir / FILE_NAME
    if not path.exists():
        yield note("keys.valid", "there are no keys yet: the first start makes an admin key")
        return
    found = Book(path, lambda: 0).state()
    if found.problem:
        yield fail("keys.valid", found.problem, "what to do stands there")
        return
    today = datetime.now(UTC).date()
    yield from _valid(ground, found, today)
    yield from _ending(found, today)


def _valid(ground: Ground, found: State, today: date) -> Iterator[Finding]:
    def live(scope: Scope) -> int:
        return sum(scope in one.key.scopes and one.key.live(today) for one in found.locks)

    admin, infer = live("admin"), live("infer")
    host = ground.config.server.host
    told = f"{admin} valid for admin, {infer} for inference, {live('metrics')} for metrics"
    if not is_loopback(host) and not infer:
        yield fail(
            "keys.valid",
            f"{told}; {host} can be reached by other machines, so the box does not start",
            "`steelyard keys create NAME --scope infer`",
        )
    elif not admin:
        yield warn(
            "keys.valid",
            f"{told}: nobody can use the console or /admin",
            "`steelyard keys create admin --scope admin`, on this machine",
        )
    else:
        yield ok("keys.valid", told)


def _ending(found: State, today: date) -> Iterator[Finding]:
    for lock in found.locks:
        key = lock.key
        if key.expires is None or key.expires - today > SOON:
            continue
        days = (key.expires - today).days
        when = f"ends in {days} days" if days >= 0 else f"ended {-days} days ago"
        yield note(
            "keys.ending",
            f"the key {key.id} {when}",
            "`steelyard keys list` names it: make its successor (`steelyard keys create`), then "
            "revoke it",
        )
