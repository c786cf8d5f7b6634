"""`--lora FILE[=SCALE]`, as the entries of `model.lora`."""

from typing import Any

import click


def loras_of(
    _context: click.Context | None, _param: click.Parameter | None, given: tuple[str, ...]
) -> list[dict[str, Any]] | None:
    """For click's `callback`. None: the configuration says it."""
    return [entry_of(text) for text in given] or None


def entry_of(given: str) -> dict[str, Any]:
    """What stands behind the last `=` is the scale, where it is a number; else it is of the name.
    Its bounds are checked with those of the configuration."""
    path, _, scale = given.rpartition("=")
    try:
        return {"path": path, "scale": float(scale)} if path else {"path": given}
    except ValueError:
        return {"path": given}
