"""The part of JSON Schema that answers are checked with. Unknown keywords are refused, not
ignored: an answer must not pass for what nobody looked at."""

from collections.abc import Mapping
from typing import Any

from appliance.forecast.checkparts import BadCheck

DEEPEST = 32

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}
_SAID = frozenset({"title", "description", "$schema", "default", "examples"})
"""Keywords that ask for nothing."""
_KNOWN = _SAID | {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "anyOf",
}


def conforms(schema: Any, value: Any, levels: int = DEEPEST) -> bool:
    """Whether the parsed JSON fits. Raises BadCheck: the schema uses what is not checked here."""
    if isinstance(schema, bool):
        return schema
    if levels <= 0 or not isinstance(schema, Mapping):
        raise BadCheck(f"`schema` must be an object, at most {DEEPEST} levels deep")
    unknown = set(schema) - _KNOWN
    if unknown:
        raise BadCheck(f"the keyword `{min(map(str, unknown))[:40]}` of `schema` is not checked")
    return (
        _type(schema, value)
        and _value(schema, value)
        and _bounds(schema, value)
        and _members(schema, value, levels)
        and _items(schema, value, levels)
        and _any(schema, value, levels)
    )


def _type(schema: Mapping[str, Any], value: Any) -> bool:
    if "type" not in schema:
        return True
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        raise BadCheck("`type` of `schema` must be a JSON type")
    return any(_is(name, value) for name in names)


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    whole = name == "integer" and isinstance(value, float) and value.is_integer()
    return whole or isinstance(value, _TYPES[name])


def _value(schema: Mapping[str, Any], value: Any) -> bool:
    if "const" in schema and not _same(value, schema["const"]):
        return False
    return "enum" not in schema or any(_same(value, one) for one in schema["enum"])


def _same(a: Any, b: Any) -> bool:
    """In Python 1 equals True; in JSON it does not."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _bounds(schema: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, str):
        return _between(schema, "minLength", "maxLength", len(value))
    if isinstance(value, list):
        return _between(schema, "minItems", "maxItems", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _between(schema, "minimum", "maximum", value)
    return True


def _between(schema: Mapping[str, Any], low: str, high: str, found: float) -> bool:
    for key in (low, high):
        if key in schema and not isinstance(schema[key], int | float):
            raise BadCheck(f"`{key}` of `schema` must be a number")
    return bool(schema.get(low, found) <= found <= schema.get(high, found))


def _members(schema: Mapping[str, Any], value: Any, levels: int) -> bool:
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    if not isinstance(known, Mapping) or not isinstance(schema.get("required", []), list):
        raise BadCheck("`properties` of `schema` must be an object, `required` a list")
    if any(name not in value for name in schema.get("required", [])):
        return False
    other = schema.get("additionalProperties", True)
    return all(conforms(known.get(name, other), part, levels - 1) for name, part in value.items())


def _items(schema: Mapping[str, Any], value: Any, levels: int) -> bool:
    if not isinstance(value, list) or "items" not in schema:
        return True
    return all(conforms(schema["items"], part, levels - 1) for part in value)


def _any(schema: Mapping[str, Any], value: Any, levels: int) -> bool:
    ways = schema.get("anyOf")
    return ways is None or any(conforms(way, value, levels - 1) for way in ways)
