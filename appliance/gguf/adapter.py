"""LoRA adapters: what they are for, and whether they fit a model."""

from dataclasses import dataclass
from pathlib import Path

from appliance.gguf.contents import Contents
from appliance.gguf.facts import said, text
from appliance.gguf.parts import other_parts, read_file
from appliance.gguf.reader import BadModel

_A, _B = ".lora_a", ".lora_b"
_ALPHA = "adapter.lora.alpha"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter's facts."""

    architecture: str
    """Of the models that it is for."""
    name: str
    alpha: float
    """Its strength at scale 1 is this divided by the rank; 0: the file does not say."""
    rank: int
    """The largest of its tensors'."""
    shapes: dict[str, tuple[int, int]]
    """For each tensor that it changes, the length of its rows and how many there are."""
    size: int
    """Bytes."""
    licence: str


def is_adapter(path: Path) -> bool:
    """Whether the file says so. Raises BadModel where it cannot be read or is damaged."""
    contents, _ = read_file(path)
    return said(contents, "general.type") == "adapter"


def read_adapter(path: Path) -> Adapter:
    """Check the file and return its facts. Raises BadModel, whose text begins with the path."""
    contents, size = read_file(path)
    try:
        return _adapter(contents, size)
    except BadModel as error:
        raise error.of(path) from None


def misfit(adapter: Adapter, model: Path) -> str:
    """Why llama.cpp would not apply it to the model, whose first file is given; empty: it fits.
    Raises BadModel where the model cannot be read.
    """
    first, _ = read_file(model)
    architecture = text(first, "general.architecture")
    if architecture != adapter.architecture:
        return f"it is for {adapter.architecture} models, and this one is {architecture}"
    files = [first, *(contents for contents, _ in other_parts(model, first))]
    tensors = {tensor.name: tensor.shape for contents in files for tensor in contents.tensors}
    for name, shape in adapter.shapes.items():
        found = tensors.get(name)
        if found is None:
            return f"it changes the tensor `{name}`, which the model does not have"
        if found[:2] != shape:
            return (
                f"its `{name}` is made for {shape[0]} x {shape[1]}, and the model's is "
                f"{' x '.join(map(str, found[:2]))}"
            )
    return ""


def _adapter(contents: Contents, size: int) -> Adapter:
    if said(contents, "general.type") != "adapter":
        raise BadModel("it is not a LoRA adapter (its general.type is not `adapter`)")
    if (kind := text(contents, "adapter.type")) != "lora":
        raise BadModel(f"it is an adapter of the kind `{kind}`; only `lora` is supported")
    architecture = text(contents, "general.architecture")
    if not architecture or not architecture.isprintable():
        raise BadModel("it does not say for which architecture it is (general.architecture)")
    shapes, rank = _shapes(contents)
    alpha = contents.values.get(_ALPHA, None if _ALPHA in contents.keys else 0.0)
    if not isinstance(alpha, int | float):
        raise BadModel("its adapter.lora.alpha is not a number")
    return Adapter(
        architecture=architecture,
        name=said(contents, "general.name"),
        alpha=float(alpha),
        rank=rank,
        shapes=shapes,
        size=size,
        licence=said(contents, "general.license"),
    )


def _shapes(contents: Contents) -> tuple[dict[str, tuple[int, int]], int]:
    """What each pair of tensors changes, and the largest rank."""
    tensors = {tensor.name: tensor.shape for tensor in contents.tensors}
    shapes, most = dict[str, tuple[int, int]](), 0
    for name, shape in tensors.items():
        if not name.endswith(_A):
            if not name.endswith(_B) and not name.endswith("_norm.weight"):
                raise BadModel(f"its tensor `{name}` is not one of a LoRA adapter")
            continue
        base = name.removesuffix(_A)
        other = tensors.get(base + _B)
        if other is None or len(shape) < 2 or len(other) < 2:
            raise BadModel(f"its tensor `{name}` has no partner `{base + _B}` of two dimensions")
        turned = base == "token_embd.weight"
        if shape[0 if turned else 1] != other[0]:
            raise BadModel(f"the tensors `{name}` and `{base + _B}` do not fit together")
        # llama.cpp keeps the two factors of token embeddings the other way round.
        shapes[base] = (other[1], shape[1]) if turned else (shape[0], other[1])
        most = max(most, other[0])
    if not shapes:
        raise BadModel("it changes nothing: it holds no tensors of a LoRA adapter")
    return shapes, most
