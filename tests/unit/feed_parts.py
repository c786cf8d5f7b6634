"""A box whose feed is looked at."""

from typing import Any

from msgspec.structs import replace

from appliance.api.box import Box
from tests.unit.api_box import ScriptedSupervisor

NOW = 5000.0


def engine_of(box: Box) -> ScriptedSupervisor:
    supervisor: Any = box.supervisor
    assert isinstance(supervisor, ScriptedSupervisor)
    return supervisor


def set_engine(box: Box, **fields: Any) -> None:
    engine = engine_of(box)
    engine.snapshot = replace(engine.snapshot, **fields)
