"""What a GGUF file holds, under bounds: values, arrays by their length, and tensors by their place.

The format, little-endian throughout: magic, version, counts; key, type and value of each pair;
name, dimensions, type and offset of each tensor; padding; data. Data is never read.
"""

from dataclasses import dataclass, field

from appliance.gguf.reader import BadModel, Reader, truncated
from appliance.gguf.tables import ARRAY, REMOVED, STRING, TENSORS, VALUES

TENSOR_COUNT = 65536
PAIR_COUNT = 65536
KEY_BYTES = 1024
NAME_BYTES = 63
"""llama.cpp keeps 64 with the final zero."""
STRING_BYTES = 16 * 1024 * 1024
TEMPLATE_BYTES = 1024 * 1024
ITEM_BYTES = 64 * 1024
"""A string in an array: a token or a merge."""
ARRAY_ITEMS = 10_000_000
STRING_ITEMS = 4_000_000
"""Strings in all arrays together: reading them takes time. The largest vocabularies have 0.8 M."""
KEPT_ARRAYS = (
    ".attention.head_count",
    ".attention.head_count_kv",
    ".attention.sliding_window_pattern",
    ".feed_forward_length",
)
"""Ends of the keys whose arrays are read (one number for each layer). Others are passed over."""
KEPT_NUMBERS = 16384
"""Numbers read from all such arrays together."""
DIMENSIONS = 4
ELEMENTS = 2**63 - 1
ALIGNMENT = 65536
DEFAULT_ALIGNMENT = 32

KEPT_STRINGS = {
    "general.architecture": 64,
    "general.license": 65536,
    "general.license.link": 65536,
    "general.name": 4096,
    "general.type": 64,
    "adapter.type": 64,
    "tokenizer.ggml.pre": 64,
    "tokenizer.ggml.model": 64,
    "tokenizer.chat_template": TEMPLATE_BYTES,
}
"""The strings that are kept, and their largest sizes. Others are passed over."""

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Array:
    """An array in the metadata."""

    kind: int
    count: int
    numbers: tuple[Number, ...] = ()
    """Its members, where they are few and numbers."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies and what it is made of."""

    name: str
    type_name: str
    elements: int
    offset: int
    """From the start of the data."""
    size: int
    """Bytes."""
    shape: tuple[int, ...] = (1,)
    """The length of a row first."""


@dataclass(slots=True)
class Contents:
    """Everything before the data."""

    values: dict[str, Number | str] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    strings: int = 0
    """Strings met in arrays so far."""
    numbers: int = 0
    """Numbers kept from arrays so far."""
    start: int = 0
    """Of the data, in the file."""


def read_contents(reader: Reader, size: int) -> Contents:
    """Parse and check the file. Raises BadModel."""
    tensor_count, pair_count = _counts(reader)
    contents = Contents()
    for _ in range(pair_count):
        _pair(reader, contents)
    alignment = _alignment(contents)
    names: set[str] = set()
    for _ in range(tensor_count):
        contents.tensors.append(_tensor(reader, names, alignment))
    start = -(-reader.position // alignment) * alignment
    _check_places(contents.tensors, start, size)
    contents.start = start
    return contents


def _spelt(data: bytes) -> str:
    """Letters as they are, other bytes in hex."""
    text = data.decode("latin-1")
    return f'"{text}"' if text.isascii() and text.isprintable() else f"bytes {data.hex(' ')}"


def _counts(reader: Reader) -> tuple[int, int]:
    magic = reader.take(4, "its first bytes")
    if magic != b"GGUF":
        raise BadModel(f"it is not a GGUF file (it begins with {_spelt(magic)})")
    version = reader.u32("its version")
    if version & 0xFFFF == 0:
        raise BadModel("it is big-endian; convert it to little-endian")
    if version not in (2, 3):
        raise BadModel(f"it is GGUF version {version}; versions 2 and 3 are supported")
    tensor_count = reader.u64("its counts")
    pair_count = reader.u64("its counts")
    if tensor_count > TENSOR_COUNT:
        raise BadModel(f"it claims {tensor_count} tensors; at most {TENSOR_COUNT} make sense")
    if pair_count > PAIR_COUNT:
        raise BadModel(f"it claims {pair_count} metadata pairs; at most {PAIR_COUNT} make sense")
    return tensor_count, pair_count


def _pair(reader: Reader, contents: Contents) -> None:
    key = _key(reader.string(KEY_BYTES, "a metadata key"))
    if key in contents.keys:
        raise BadModel(f"the metadata key `{key}` appears twice")
    contents.keys.add(key)
    what = f"the value of `{key}`"
    kind = reader.u32(what)
    if kind in VALUES:
        contents.values[key] = reader.value(kind, what)
    elif kind == STRING:
        _string(reader, key, what, contents)
    elif kind == ARRAY:
        contents.arrays[key] = _array(reader, key, what, contents)
    else:
        raise BadModel(f"{what} has the unknown type {kind}")


def _key(raw: bytes) -> str:
    try:
        key = raw.decode()
    except UnicodeDecodeError:
        raise BadModel(f"the metadata key {raw[:40]!r} is not UTF-8") from None
    if not key.isprintable() or not key:
        raise BadModel(f"the metadata key {key[:40]!r} is empty or not printable")
    return key


def _string(reader: Reader, key: str, what: str, contents: Contents) -> None:
    limit = KEPT_STRINGS.get(key)
    if limit is None:
        return reader.skip_string(STRING_BYTES, what)
    try:
        contents.values[key] = reader.string(limit, what).decode()
    except UnicodeDecodeError:
        raise BadModel(f"{what} is not UTF-8") from None
    return None


def _array(reader: Reader, key: str, what: str, contents: Contents) -> Array:
    kind = reader.u32(what)
    count = reader.u64(what)
    if kind not in VALUES and kind != STRING:
        nested = " (an array in an array)" if kind == ARRAY else ""
        raise BadModel(f"{what} has members of the unsupported type {kind}{nested}")
    if count > ARRAY_ITEMS:
        raise BadModel(f"{what} claims {count} members; at most {ARRAY_ITEMS} make sense")
    if kind == STRING:
        contents.strings += count
        if contents.strings > STRING_ITEMS:
            raise BadModel(f"its arrays hold more than {STRING_ITEMS} strings")
        reader.skip_strings(count, ITEM_BYTES, what)
        return Array(kind, count)
    contents.numbers += count if key.endswith(KEPT_ARRAYS) else 0
    if not key.endswith(KEPT_ARRAYS) or contents.numbers > KEPT_NUMBERS:
        reader.skip(count * VALUES[kind].size, what)
        return Array(kind, count)
    return Array(kind, count, tuple(reader.value(kind, what) for _ in range(count)))


def _alignment(contents: Contents) -> int:
    if "general.alignment" not in contents.keys:
        return DEFAULT_ALIGNMENT
    found = contents.values.get("general.alignment")
    if not isinstance(found, int) or not 8 <= found <= ALIGNMENT or found & (found - 1):
        raise BadModel(f"its alignment is {found!r}, and not a power of two from 8 to {ALIGNMENT}")
    return found


def _tensor(reader: Reader, names: set[str], alignment: int) -> Tensor:
    name = _key(reader.string(NAME_BYTES, "the name of a tensor"))
    if name in names:
        raise BadModel(f"the tensor `{name}` appears twice")
    names.add(name)
    what = f"the tensor `{name}`"
    shape = _shape(reader, what)
    type_name, per_block, block_bytes = _tensor_type(reader.u32(what), what)
    if shape[0] % per_block:
        raise BadModel(
            f"{what} has rows of {shape[0]}, which {type_name} blocks of {per_block} cannot hold"
        )
    elements = 1
    for length in shape:
        elements *= length
    offset = reader.u64(what)
    if offset % alignment:
        raise BadModel(f"{what} starts at {offset}, which is not a multiple of {alignment}")
    size = elements // per_block * block_bytes
    return Tensor(name, type_name, elements, offset, size, shape)


def _shape(reader: Reader, what: str) -> tuple[int, ...]:
    count = reader.u32(what)
    if count > DIMENSIONS:
        raise BadModel(f"{what} has {count} dimensions; at most {DIMENSIONS} exist")
    shape = tuple(reader.u64(what) for _ in range(count)) or (1,)
    product = 1
    for length in shape:
        product *= length
    if not 0 < product <= ELEMENTS:
        raise BadModel(f"{what} has impossible dimensions: {' x '.join(map(str, shape))}")
    return shape


def _tensor_type(number: int, what: str) -> tuple[str, int, int]:
    if number in TENSORS:
        return TENSORS[number]
    if number in REMOVED:
        raise BadModel(f"{what} has type {number}, which was withdrawn: convert the model again")
    raise BadModel(
        f"{what} has the unknown type {number}: the file is damaged, or newer than this box"
    )


def _check_places(tensors: list[Tensor], start: int, size: int) -> None:
    end, before = 0, ""
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.size)):
        if tensor.offset < end:
            raise BadModel(f"the tensors `{before}` and `{tensor.name}` overlap")
        end, before = tensor.offset + tensor.size, tensor.name
    if tensors and start + end > size:
        raise truncated(size, start + end - size, f"the tensor `{before}`")
