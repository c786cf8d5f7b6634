"""Query parameters, checked: an unknown name or a value that is none is an error that says so."""

from datetime import date

from starlette.requests import Request

from appliance.errors import BadRequest


def allow(request: Request, *names: str) -> None:
    """Raises BadRequest for any other parameter."""
    taken = f"it takes {', '.join(names)}" if names else "it takes none"
    for name in request.query_params:
        if name not in names:
            raise BadRequest(
                f"no parameter {name[:40]!r} here: {taken}",
                param=name[:40],
                code="unknown_field",
            )


def number(request: Request, name: str) -> int | None:
    """A whole number above 0. Raises BadRequest."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and 0 < len(text) < 19 and int(text):
        return int(text)
    raise BadRequest(f"{name}: must be a whole number above 0", param=name, code="invalid_value")


def day(request: Request, name: str) -> date | None:
    """A day, as 2026-01-31. Raises BadRequest."""
    return day_of(request.query_params.get(name), name)


def day_of(text: str | None, name: str) -> date | None:
    """The same, of a text that came as `name`."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"{name} {text[:40]!r} is no day: write it as 2026-01-31",
            param=name,
            code="invalid_value",
        ) from None
