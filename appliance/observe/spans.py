"""One request as a span of OpenTelemetry, in OTLP's JSON. Never a word of what was asked or told.

Attributes have OpenTelemetry's names where it has one (`http.*`, `gen_ai.*`), else our own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SERVER = 2
"""SPAN_KIND_SERVER"""
_ERROR = 2
"""STATUS_CODE_ERROR"""

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Span:
    """Ids are in lower-case hex, times in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty where the client named none."""
    name: str
    started_ns: int
    ended_ns: int
    failed: bool = False
    """By a fault of the box: what a client did wrong is no error of the server's span."""
    first_token_ns: int = 0
    """0: there was none."""
    facts: Mapping[str, Value] = field(default_factory=dict)


def encode(spans: Sequence[Span], resource: Mapping[str, Value]) -> bytes:
    """The body of one export: an ExportTraceServiceRequest."""
    scope = {"scope": {"name": "steelyard"}, "spans": [_span(span) for span in spans]}
    told = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
    return json.dumps({"resourceSpans": [told]}, separators=(",", ":")).encode()


def _span(span: Span) -> dict[str, Any]:
    told: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _SERVER,
        "startTimeUnixNano": str(span.started_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": _attributes(span.facts),
    }
    if span.parent_id:
        told["parentSpanId"] = span.parent_id
    if span.first_token_ns:
        event = {"name": "gen_ai.first_token", "timeUnixNano": str(span.first_token_ns)}
        told["events"] = [event]
    if span.failed:
        told["status"] = {"code": _ERROR}
    return told


def _attributes(facts: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in facts.items()]


def _value(value: Value) -> dict[str, Value]:
    """A whole number is a text in JSON, as in all of protobuf's: 64 bits do not fit a double."""
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}
