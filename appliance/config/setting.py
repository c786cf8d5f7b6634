"""What stands beside each field of a configuration section: its doc text and its bounds."""

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

_KEY = "setting"

DAY_S = 86400.0
"""A bound of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The metadata of one field."""

    doc: str
    low: float | None = None
    """Least number; for lists and tables the least number of members."""
    high: float | None = None
    """Largest number; for texts, lists and tables the largest length."""
    pattern: str = ""
    """A regular expression that each text must match whole."""
    form: str = ""
    """What `pattern` asks for, in words."""
    path: bool = False
    """A file name: `~` is expanded, and a relative one starts from the file it stands in."""
    shown_default: str = ""
    """The default in words, where it depends on the machine."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Both bounds of a number."""
        assert self.low is not None, "every number has a least value"
        assert self.high is not None, "every number has a largest value"
        return self.low, self.high


def setting(
    default: T,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    pattern: str = "",
    form: str = "",
    path: bool = False,
) -> T:
    """A dataclass field with a fixed default."""
    about = Setting(doc=doc, low=low, high=high, pattern=pattern, form=form, path=path)
    if type(default).__hash__ is None:
        # A read-only mapping: safe to share, but dataclasses take it for a mutable default.
        return field(default_factory=lambda: default, metadata={_KEY: about})
    return field(default=default, metadata={_KEY: about})


def computed(factory: Callable[[], T], shown_default: str, doc: str, *, path: bool = False) -> T:
    """A dataclass field whose default is found out when the section is made."""
    about = Setting(doc=doc, path=path, shown_default=shown_default)
    return field(default_factory=factory, metadata={_KEY: about})


def about(of: "Field[Any]") -> Setting:
    """The Setting that `setting` or `computed` left in the field."""
    found = of.metadata[_KEY]
    assert isinstance(found, Setting)
    return found
