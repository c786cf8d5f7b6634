"""The accounts screen."""

from typing import Any

from hypothesis import strategies as st

from tests.unit.console_draws import anything, count
from tests.unit.console_views import view
from tui.screens.accounts import COST, KEYS, TENANTS, Accounts
from tui.view import View


def key(id: str, name: str, **given: Any) -> dict[str, Any]:
    told = {
        "id": id,
        "name": name,
        "tenant": "sales",
        "scopes": ["infer"],
        "state": "valid",
        "created": "2025-11-01T10:00:00Z",
        "created_by": "alice",
        "created_from": "10.0.4.12",
        "expires": "2026-02-28",
        "rotated": None,
        "grace_until": None,
        "revoked": None,
        "limits": {"requests_per_min": None},
        "used": {"requests_per_min": 0, "cost_per_month": "0.00"},
    }
    return told | given


CRM = key(
    "k_7Q2M",
    "crm-bot",
    limits={"requests_per_min": 60, "tokens_per_min": 20000, "tokens_per_day": 100_000},
    used={"requests_per_min": 44, "tokens_per_day": 61_000, "cost_per_month": "12.40"},
)
NIGHTLY = key(
    "k_1",
    "nightly",
    tenant="ops",
    expires="2025-12-09",
    limits={"requests_per_min": 10, "tokens_per_min": 4000, "priority": "flex"},
    used={"requests_per_min": 2, "tokens_per_min": 2600, "cost_per_month": "2.75"},
)
OLD = key("k_2", "old-app", state="expired", expires="2025-11-01")
GONE = key("k_3", "gone", state="revoked", revoked="2025-11-20T10:00:00Z")
ALICE = key("k_A1", "alice", tenant="ops", scopes=["admin"], rotated="2025-11-28T09:00:00Z")
TENANT_LIST = [
    {"name": "ops", "limits": {"cost_per_month": "10.00"}, "used": {"cost_per_month": "2.75"}},
    {"name": "sales", "limits": {"cost_per_month": "30.00"}, "used": {"cost_per_month": "12.40"}},
]


def costs(**nano: int) -> dict[str, Any]:
    def line(id: str, total: int) -> dict[str, Any]:
        parts = {"prefill": 80_000_000, "decode": 190_000_000, "cached": 10_000_000}
        return {"group": {"key": id}, "standard": {**parts, "idle": 20_000_000, "total": total}}

    rows = [line(id, total) for id, total in nano.items()]
    return {"currency": "USD", "rows": rows, "total": line("", 15_150_000_000)}


def made(*keys: dict[str, Any]) -> Accounts:
    """The screen after the box has told of these keys."""
    screen = Accounts()
    told = keys or (GONE, CRM, NIGHTLY, OLD, ALICE)
    screen.receive(KEYS, {"keys": list(told)}, None)
    screen.receive(TENANTS, {"tenants": TENANT_LIST}, None)
    screen.receive(COST, costs(k_7Q2M=300_000_000), None)
    screen.body(view())
    return screen


def press(screen: Accounts, *keys: str, seen: View | None = None) -> Any:
    """The effect of the last key."""
    effect = None
    for one in keys:
        screen.body(seen or view())
        effect = screen.press(one, seen or view())
    return effect


def typed(screen: Accounts, text: str) -> None:
    for sign in text:
        screen.press(sign, view())


names = anything
limits = st.fixed_dictionaries(
    {},
    optional={
        "requests_per_min": st.none() | count,
        "tokens_per_min": st.none() | count,
        "tokens_per_day": st.none() | count,
        "cost_per_month": st.none() | anything,
        "priority": st.none() | anything,
    },
)
used = st.fixed_dictionaries(
    {},
    optional={"tokens_per_min": count, "tokens_per_day": count, "cost_per_month": anything},
)
keys = st.builds(
    key,
    id=anything,
    name=names,
    tenant=names,
    scopes=st.lists(anything, max_size=3),
    state=anything | st.sampled_from(["valid", "expired", "revoked"]),
    created=anything,
    created_by=anything,
    created_from=anything,
    expires=st.none() | anything | st.dates().map(str),
    grace_until=st.none() | anything,
    revoked=st.none() | anything,
    limits=limits,
    used=used,
)
tenants = st.fixed_dictionaries({"name": names, "limits": limits, "used": used})
