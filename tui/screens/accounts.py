"""Screen 4: keys and tenants, what they may and what they cost."""

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from tui.figures import UNKNOWN, band, bounds, money
from tui.form import Form
from tui.grid import Grid
from tui.lines import Line, beside, blank, fill, line, paint, wrap
from tui.screen import Call, Copy, Effect, Hint, Query, Screen, Table, Tell
from tui.screens import accounts_acts as acts
from tui.screens import accounts_detail as detail
from tui.screens import accounts_forms as forms
from tui.screens import accounts_rows as columns
from tui.screens.accounts_rows import Costs, Key, KeyRow, Tenant, TenantRow
from tui.screens.answers import UNREADABLE
from tui.throttle import throttle
from tui.view import View

KEYS = Query("/admin/keys", 5.0)
TENANTS = Query("/admin/tenants", 5.0)
COST = Query("/admin/cost?by=key", 15.0)
WIDE = 120
LEFT = 80
_HINTS = ("new", "limits", "throttle", "rotate", "revoke", "sort", "tenants", "keys")


class Accounts(Screen):
    number: ClassVar[int] = 4
    name: ClassVar[str] = "accounts"

    def __init__(self) -> None:
        self.keys: Table[KeyRow] = Table(
            lambda row: row.key.id, columns.key_fields, columns.KEY_ORDERS
        )
        self.tenants: Table[TenantRow] = Table(lambda row: row.tenant.name)
        self.table: Table[Any] | None = self.keys
        self.form: Form | None = None
        self._known: tuple[Key, ...] | None = None
        self._tenants: tuple[Tenant, ...] = ()
        self._costs: Costs | None = None
        self._days: detail.Days = {}
        self._errors: dict[str, str] = {}
        self._view = View()
        """The last one drawn: answers come without."""

    @property
    def typing(self) -> bool:
        return self.form is not None

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        self._take(view)
        head = [line(self._summary(view)), blank(view.width)]
        room = view.body_height - len(head)
        if self.form is not None:
            lines = self.form.draw(view)
        elif view.width >= WIDE:
            side = replace(view, width=view.width - LEFT - 2)
            lines = beside(self._list(replace(view, width=LEFT), room), self._beside(side), LEFT)
        else:
            lines = self._narrow(view, room)
        lines = fill([*head, *lines], view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _take(self, view: View) -> None:
        self._view = view
        keys = self._known or ()
        self.keys.show(columns.key_rows(keys, view))
        self.tenants.show(columns.tenant_rows(self._tenants, keys))

    def _summary(self, view: View) -> str:
        if self._known is None:
            return ""
        live = [key for key in self._known if key.revoked is None]
        costs = self._costs
        month = UNKNOWN if costs is None else money(costs.total.standard.total / 1e9)
        currency = view.foreign(costs.currency) if costs is not None else ""
        told = {"keys": len(live), "tenants": len(self._tenants), "month": month}
        text = view.words("accounts.summary", currency=currency, band=self._band(), **told)
        return f"{text}{self._chosen(view)}"

    def _chosen(self, view: View) -> str:
        """Sort and filter, where somebody chose them."""
        table = self.keys
        if self._on_tenants or (table.order == "made" and not table.filter):
            return ""
        order = view.words(f"accounts.sort.{table.order}")
        shown = view.words("requests.view", order=order, filter=view.foreign(table.filter) or "-")
        return f"   {shown}"

    def _band(self) -> str:
        """Of the month's cost: what all tenants together may, where each has a limit."""
        limits = [columns.decimal(tenant.limits.cost_per_month) for tenant in self._tenants]
        amounts = [limit for limit in limits if limit is not None]
        if self._costs is None or not amounts or len(amounts) < len(limits):
            return ""
        most, now = sum(amounts), self._costs.total.standard.total / 1e9
        return f" ({bounds(None, most)}) {band(now, None, most)}"

    def _narrow(self, view: View, room: int) -> list[Line]:
        below = self._detail(view)
        most = max(3, room - len(below) - 1)
        return [*self._list(view, min(most, self._rows + 1)), blank(view.width), *below]

    @property
    def _rows(self) -> int:
        return max(1, len(self.tenants.rows if self._on_tenants else self.keys.rows))

    @property
    def _on_tenants(self) -> bool:
        return self.table is self.tenants

    def _list(self, view: View, room: int) -> list[Line]:
        if self._on_tenants:
            return self._drawn(self.tenants, Grid(columns.TENANTS, view.width - 3), view, room)
        return self._drawn(self.keys, Grid(columns.KEYS, view.width - 3), view, room)

    def _drawn(self, table: "Table[Any]", grid: "Grid[Any]", view: View, room: int) -> list[Line]:
        if table.rows:
            rows = table.draw(view.width, room - 1, lambda row: grid.row(row, view))
            return [grid.head(view), *rows]
        texts = wrap(self._why_empty(view), view.width - 1)
        return [grid.head(view), *(line(f" {text}") for text in texts)]

    def _why_empty(self, view: View) -> str:
        words, error = view.words, self._errors.get(KEYS.path, "")
        if error:
            return words("accounts.failed", error=view.foreign(error))
        if self._known is None:
            return view.reading("accounts.reading")
        return words("accounts.nomatch" if self.keys.filter else "accounts.empty")

    def _detail(self, view: View) -> list[Line]:
        if self._on_tenants:
            tenant = self.tenants.current
            return [] if tenant is None else detail.of_tenant(tenant, view)
        row = self.keys.current
        problem = self._errors.get(COST.path, "")
        return [] if row is None else detail.of_key(row, self._costs, problem, view)

    def _beside(self, view: View) -> list[Line]:
        lines = self._detail(view)
        if self._days and self.keys.rows:
            lines += [(), *detail.plots(self.keys.rows, self._days, view)]
        return lines

    def hints(self, view: View) -> list[Hint]:
        words = view.words
        if self.form is not None:
            hints = (("Enter", "go"), ("Tab", "next"), ("Esc", "back"))
            return [(key, words(f"accounts.hint.{name}")) for key, name in hints]
        hint = {name: words(f"accounts.hint.{name}") for name in _HINTS}
        both = [("N", hint["new"]), ("E", hint["limits"])]
        if self._on_tenants:
            return [*both, ("Tab", hint["keys"])]
        capitals = [("T", hint["throttle"]), ("O", hint["rotate"]), ("X", hint["revoke"])]
        return [*both, *capitals, ("s", hint["sort"]), ("Tab", hint["tenants"])]

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        self._take(view)
        if self.form is not None:
            return self._type(self.form, key, view)
        if key == "N":
            self.form = forms.new_tenant(view) if self._on_tenants else self._new_key(view)
            return None
        if len(key) == 1 and key in "ETOXc":
            return self._act(key, view)
        self._walk(key)
        return None

    def _type(self, form: Form, key: str, view: View) -> Effect | None:
        if key == "escape":
            self.form = None
            return None
        return form.press(key, view)

    def _walk(self, key: str) -> None:
        assert self.table is not None
        if key == "tab":
            self.table = self.keys if self._on_tenants else self.tenants
        elif key == "s":
            self.table.next_order()
        elif key in ("escape", "backspace"):
            self.table.find("")
        else:
            self.table.press(key)

    def _new_key(self, view: View) -> Form:
        """For the tenant of the row, as one app seldom comes alone."""
        row = self.keys.current
        return forms.new_key(view, "default" if row is None else row.key.tenant)

    def _act(self, key: str, view: View) -> Effect | None:
        tenant = self.tenants.current
        if self._on_tenants:
            if key == "E" and tenant is not None:
                self.form = forms.tenant_limits(view, tenant.tenant)
            return None
        row = self.keys.current
        if row is None:
            return Tell(view.words("accounts.none"))
        return self._on_key(key, row, view)

    def _on_key(self, key: str, row: KeyRow, view: View) -> Effect | None:
        if key == "c":
            return Copy(row.key.id)
        if key == "O":
            return acts.rotate(view, row.key)
        if key == "X":
            return acts.revoke(view, row, self._known or ())
        if row.key.revoked is not None:
            return acts.over(view, row.key)
        if key == "T" and not row.tok_min:
            return Tell(view.words("requests.throttle.idle", name=view.foreign(row.key.name)))
        if key == "T":
            limits = {row.key.name: msgspec.structs.asdict(row.key.limits)}
            return throttle(view, row.key.name, row.tok_min, limits)
        self.form = forms.key_limits(view, row.key)
        return None

    def paste(self, text: str, view: View) -> None:
        if self.form is not None:
            self.form.paste(text)

    # -- REST --------------------------------------------------------------------------------------

    def wants(self, view: View) -> tuple[Query, ...]:
        first = detail.since(view)
        if view.width < WIDE or first is None:
            return (KEYS, TENANTS, COST)
        return (KEYS, TENANTS, COST, Query(f"/admin/usage?by=key,day&from={first}", 60.0))

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        try:
            self._receive(query, data, error)
        except UNREADABLE:
            self._errors[query.path] = self._view.words("audit.unreadable")

    def _receive(self, query: Query, data: Any, error: str | None) -> None:
        self._errors[query.path] = error or ""
        if error is not None:
            return
        if query == KEYS:
            self._known = msgspec.convert(data["keys"], tuple[Key, ...])
        elif query == TENANTS:
            self._tenants = msgspec.convert(data["tenants"], tuple[Tenant, ...])
        elif query == COST:
            self._costs = msgspec.convert(data, Costs)
        else:
            self._days = detail.days_of(data)

    def answered(self, call: Call, data: Any) -> Effect | None:
        """What the form asked for is done; a secret is shown and kept nowhere."""
        self.form = None
        return acts.secret(self._view, data)
