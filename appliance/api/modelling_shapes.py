"""What the routes of the model take and answer. Fields are only ever added."""

from typing import Annotated

import msgspec
from pydantic import Field

from appliance.api.shapes import Shape
from appliance.snapshot import ModelSwitch


class ModelRequest(Shape):
    """POST /admin/model."""

    use: Annotated[str, Field(min_length=1, max_length=128)]
    """A name that `steelyard model list` shows, or that of the model that came with the box."""


class ModelNow(msgspec.Struct, frozen=True):
    """GET /admin/model."""

    name: str
    sha256: str
    packaged: bool
    """It came with the box."""
    selected: str | None
    """What an operator chose; null: the model that came with the box."""
    fixed: bool
    """`model.path` names the model, so that nothing is chosen."""
    switch: ModelSwitch


class ModelDone(msgspec.Struct, frozen=True):
    """POST /admin/model. The answer comes at once: GET tells how it goes, and how it ended."""

    status: str
    """switching; serving: it is the one that serves."""
    target: str
