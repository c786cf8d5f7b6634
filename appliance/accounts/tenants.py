"""Tenants: who several keys belong to. One exists as soon as a key names it, or limits are set."""

from appliance.accounts.book import Book, Change, State, Tenant
from appliance.accounts.keyrow import TENANT, By, checked_name
from appliance.accounts.limits import NONE, Limits

__all__ = ["TENANT", "Tenant", "Tenants"]


class Tenants:
    """The tenants of one state directory."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def limits(self, name: str) -> Limits:
        """Those of a tenant; none where none were set. Never raises."""
        found = self._book.state().tenants.get(name)
        return found.limits if found is not None else NONE

    def list(self) -> tuple[Tenant, ...]:
        """All of them by name. Raises KeyFileError."""
        state = self._book.usable()
        named = {key.tenant for key in state.keys if key.revoked is None} | {TENANT}
        found = {name: Tenant(name) for name in named} | dict(state.tenants)
        return tuple(found[name] for name in sorted(found))

    def set(self, name: str, limits: Limits, by: By) -> Tenant:
        """All limits of the tenant, in place of those it had. Raises KeysError."""
        tenant = Tenant(checked_name(name, "tenant"), limits)

        def decide(_: State) -> Change:
            return Change("tenant.set", name, {"tenant": tenant}, tenants=(tenant,))

        self._book.change(decide, by)
        return tenant
