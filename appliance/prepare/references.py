"""Finds `$ref`s in a JSON Schema that no finite value can satisfy.

llguidance notices such a loop only when an answer has walked into it. A client is told at once.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]

_DATA = frozenset({"enum", "const", "default", "examples", "$defs", "definitions"})
"""Keywords without schemas of their own (definitions count once something refers to them)."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose members are schemas under names of the client's choice."""


def endless_reference(root: Schema) -> str | None:
    """The first `$ref` that leads nowhere, missing or endless; None if all are fine.

    May raise RecursionError on absurd nesting.
    """
    targets = _targets(root)
    finite: set[str] = set()
    while len(finite) < len(targets):
        found = {ref for ref in targets if ref not in finite and _finite(targets[ref], finite)}
        if not found:
            return next(ref for ref in targets if ref not in finite)
        finite |= found
    return None


def _targets(root: Schema) -> dict[str, Any]:
    """Every reference that can be reached, with what it points to."""
    targets: dict[str, Any] = {}
    todo: list[Any] = [root]
    while todo:
        for ref in _references(todo.pop()):
            if ref not in targets:
                targets[ref] = _resolve(root, ref)
                todo.append(targets[ref])
    return targets


def _references(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    for key, value in schema.items():
        if key in _DATA:
            continue
        inner = value.values() if key in _MAPS and isinstance(value, dict) else _listed(value)
        for item in inner:
            yield from _references(item)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _resolve(root: Schema, ref: str) -> Any:
    """What `#/a/b` points to; None, which is never finite, for all else."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    node: Any = root
    for step in unquote(ref[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def _finite(schema: Any, finite: set[str]) -> bool:
    """Whether some finite value satisfies it, if only references in `finite` can be satisfied."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return False
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref not in finite:
        return False
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and not any(
            _finite(option, finite) for option in schema[key]
        ):
            return False
    if not all(_finite(part, finite) for part in _listed(schema.get("allOf", []))):
        return False
    return any(_type_finite(schema, name, finite) for name in _types(schema))


def _types(schema: Schema) -> list[Any]:
    """The types that a value may have, scalars lumped together."""
    if "type" in schema:
        return _listed(schema["type"])
    implied = [
        name for name, key in (("object", "required"), ("array", "minItems")) if key in schema
    ]
    return [*implied, "scalar"]


def _type_finite(schema: Schema, kind: Any, finite: set[str]) -> bool:
    if kind == "object":
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return True
        return all(
            _finite(properties[name], finite)
            for name in _listed(schema.get("required", []))
            if isinstance(name, str) and name in properties
        )
    if kind == "array" and schema.get("minItems"):
        return all(
            _finite(item, finite)
            for item in (*_listed(schema.get("prefixItems", [])), schema.get("items", True))
        )
    return True
