"""llama.cpp's functions, without the rest of their package.

`llama_cpp` loads far more than its bindings: chat formats, a template engine, a cache on SQLite.
Two processes of the box would hold that, and wait for it at each start, and use none of it. It is
still there for whoever asks: the first name that only the package has loads all of it.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any

__all__ = ["llama_cpp"]

_NAME = "llama_cpp"


class _Package(ModuleType):
    """`llama_cpp` before it was executed: a place where its modules are found."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(self)
        return getattr(self, name)


def _put_off() -> None:
    """Where the package is loaded already, or is not installed, nothing happens."""
    spec = None if _NAME in sys.modules else importlib.util.find_spec(_NAME)
    if spec is not None:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _Package
        sys.modules[_NAME] = package


_put_off()

import llama_cpp.llama_cpp as llama_cpp  # noqa: E402 - not before its package waits
