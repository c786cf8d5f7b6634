"""Single facts out of a file's metadata, each of the kind and within the bounds it must have."""

from appliance.gguf.contents import Contents
from appliance.gguf.reader import BadModel

WIDTH = 1_048_576


def text(contents: Contents, key: str) -> str:
    found = contents.values.get(key, "")
    if not isinstance(found, str) or key in contents.arrays:
        raise BadModel(f"`{key}` is not a text")
    return found


def said(contents: Contents, key: str) -> str:
    """A text that nothing depends on: empty where there is none, or something else."""
    found = contents.values.get(key, "")
    return found if isinstance(found, str) else ""


def whole(contents: Contents, key: str, low: int, high: int, default: int | None = None) -> int:
    """A whole number within bounds; with a default it may be missing."""
    if default is not None and key not in contents.keys:
        return default
    found = contents.values.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        is_what = f"is {found!r}" if found is not None else "has another type"
        raise BadModel(
            f"`{key}` {is_what if key in contents.keys else 'is missing'}, and must be a whole "
            f"number from {low} to {high}"
        )
    return found


def per_layer(
    contents: Contents, key: str, layers: int, default: tuple[int, ...]
) -> tuple[int, ...]:
    """One number for all layers, or a list with one for each."""
    array = contents.arrays.get(key)
    if array is None:
        return (whole(contents, key, 0, WIDTH),) * layers if key in contents.keys else default
    numbers = tuple(n for n in array.numbers if isinstance(n, int) and 0 <= n <= WIDTH)
    if array.count < layers or len(numbers) != array.count:
        raise BadModel(f"`{key}` is not a list of whole numbers, one for each of {layers} layers")
    return numbers[:layers]
