"""The bodies of the routes for keys and tenants."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.accounts.keys import MOST_GRACE_S
from appliance.accounts.limits import MOST, Limits, limits_from
from appliance.api.shapes import Shape

AccountName = Annotated[str, Field(min_length=1, max_length=64)]
Limit = Annotated[int, Field(ge=1, le=MOST)]
Money = Annotated[str, Field(min_length=1, max_length=20)] | Annotated[float, Field(gt=0, le=9e6)]


class LimitsRequest(Shape):
    """Limits, all of them: what is left out is no limit."""

    requests_per_min: Limit | None = None
    tokens_per_min: Limit | None = Field(None, description="Prompt and completion together.")
    tokens_per_day: Limit | None = Field(None, description="Of the UTC day.")
    cost_per_month: Money | int | None = Field(
        None, description="In the box's currency, best as a text: `12.50`."
    )
    concurrent: Limit | None = Field(None, description="Requests running or waiting at a time.")
    priority: Literal["priority", "default", "flex"] | None = Field(
        None, description="The highest service_tier that may be asked for."
    )

    def limits(self) -> Limits:
        """Raises LimitsRefused."""
        return limits_from(self.model_dump())


class KeyRequest(Shape):
    """POST /admin/keys."""

    name: AccountName
    scopes: Annotated[list[Literal["infer", "metrics", "admin"]], Field(min_length=1)] | None = (
        Field(None, description='Default: `["infer"]`.')
    )
    tenant: AccountName | None = Field(None, description="Default: `default`.")
    expires: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None = Field(
        None, description="The last day (UTC) on which it is good."
    )
    limits: LimitsRequest | None = None


class RotateRequest(Shape):
    """POST /admin/keys/{id}/rotate. The body may be left out."""

    grace_s: Annotated[float, Field(ge=0, le=MOST_GRACE_S)] | None = Field(
        None, description="Seconds for which the old secret stays good."
    )


class TenantRequest(Shape):
    """POST /admin/tenants."""

    name: AccountName
    limits: LimitsRequest
