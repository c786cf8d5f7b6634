"""Whom the box tells of its requests beside its own ledger: a collector of traces, where one is
configured. Nothing of it is imported otherwise.
"""

import platform
from typing import TYPE_CHECKING

from appliance.config.traces import TracesConfig

if TYPE_CHECKING:
    from appliance.observe.spansender import SpanSender


def spans_of(config: TracesConfig, version: str) -> "SpanSender | None":
    """Its thread runs until it is stopped. None: nobody is to be told."""
    if not config.endpoint:
        return None
    from appliance.observe.spansender import SpanSender

    resource = {
        "service.name": "steelyard",
        "service.version": version,
        "host.name": platform.node(),
    }
    return SpanSender(config.endpoint, resource)
