"""What somebody may have meant, who wrote a name that is none."""

from collections.abc import Iterable

MOST_CHARS = 256
"""Of a name that is compared: a longer one is no typing error, and would cost time."""


def alike(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name most like this one; empty: none is like it. `cutoff`: 0 (any will do) to 1
    (the same)."""
    import difflib  # it is seldom wanted, and short commands read the configuration

    found = difflib.get_close_matches(name[:MOST_CHARS], list(known), n=1, cutoff=cutoff)
    return found[0] if found else ""
