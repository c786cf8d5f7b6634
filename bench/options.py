"""How values on the command line are read."""

import argparse
import json

Value = str | int | float | bool


def texts(text: str) -> list[str]:
    """`a,b`"""
    return text.split(",")


def numbers(text: str) -> tuple[int, ...]:
    """`1,4`: whole numbers of one at least."""
    found = tuple(int(part) for part in text.split(","))
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every number must be at least 1")
    return found


def assignment(text: str) -> tuple[str, Value]:
    """`key=value`: the value is a JSON number, true, false or, failing that, a text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} should be KEY=VALUE")
    try:
        read = json.loads(value)
    except ValueError:
        return name, value
    return name, read if isinstance(read, Value) else value
