"""What the routes of the board take."""

from typing import Annotated

from pydantic import Field, model_validator

from appliance.api.shapes import Shape
from firmware_bridge.messages import MAX_INHIBIT_S

MOST_MINUTES = MAX_INHIBIT_S // 60
MOST_SECONDS = 65.0
"""What a dead-man time can say."""


class InhibitRequest(Shape):
    """POST /admin/board/inhibit. Zero minutes end it."""

    minutes: Annotated[int, Field(ge=0, le=MOST_MINUTES)]
    reason: Annotated[str, Field(max_length=200)] = ""


class OutputRequest(Shape):
    """POST /admin/board/outputs/{name}. `value` is in the output's own unit; null: the safe one."""

    value: Annotated[float, Field(ge=0)] | None = None
    seconds: Annotated[float, Field(ge=0.1, le=MOST_SECONDS)] = 30.0


class UpdateRequest(Shape):
    """POST /admin/board/update: an image that lies in the box's folder, or one in base64."""

    name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    image: Annotated[str, Field(min_length=1, max_length=1 << 20)] | None = None

    @model_validator(mode="after")
    def _one(self) -> "UpdateRequest":
        if (self.name is None) == (self.image is None):
            raise ValueError("give name or image, and not both")
        return self
