"""Firmware images: made from the firmware's own files, signed, read back.

    head    magic, sizes, signature, manifest (firmware/slots.py has the layout)
    files   one after the other, as the manifest names them

The manifest says for which kind of board it is, its version, the lowest version that may be
replaced by it, the schema that it will announce, and every file with size and SHA-256. All of it
but the signature is signed: RSA-2048 with SHA-256 (firmware/signature.py says why).
"""

import ast
import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPublicKey,
    RSAPublicNumbers,
)
from cryptography.hazmat.primitives.hashes import SHA256

from firmware_bridge.events import Version
from firmware_bridge.firmware import schema as firmware_schema
from firmware_bridge.firmware import signature as firmware_signature
from firmware_bridge.firmware.slots import (
    HEAD,
    HEAD_NAME,
    HEAD_SIZE,
    KEYS,
    MAGIC,
    MAX_KEYS,
    SIGNATURE_AT,
    SLOTS,
    manifest_of,
    signed_part,
)
from firmware_bridge.update import Image

PACKAGE = Path(__file__).resolve().parent
SHARED = ("__init__.py", "messages.py", "wire.py")
"""Files of the host's side that the firmware runs too."""
FIRST: Version = (0, 0, 0)
LOADER = "import slots\n\nslots.boot()\n"
MOST = 1 << 20
"""Bytes of a file that is looked at as an image."""


class ImageError(ValueError):
    """It is no image, or not one that can be used. Says why."""


def parse_version(text: str) -> Version:
    """Raises ImageError."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ImageError(f"{text!r} is no version: three numbers, as in 1.2.3")
    major, minor, patch = (int(part) for part in parts)
    if max(major, minor, patch) > 255:
        raise ImageError(f"{text!r} is no version: none of its numbers may be above 255")
    return major, minor, patch


def firmware_files(package: Path = PACKAGE) -> dict[str, bytes]:
    """The firmware that this program came with, by its name in a slot."""
    paths = [package / name for name in SHARED] + sorted((package / "firmware").glob("*.py"))
    return {f"firmware_bridge/{path.relative_to(package)}": path.read_bytes() for path in paths}


def version_of(files: Mapping[str, bytes]) -> Version:
    """What the files say of themselves. Raises ImageError."""
    tree = ast.parse(files.get("firmware_bridge/firmware/schema.py", b""))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERSION":
            return parse_version(".".join(map(str, ast.literal_eval(node.value))))
    raise ImageError("the firmware's schema.py names no VERSION")


def build(
    files: Mapping[str, bytes],
    key: RSAPrivateKey | None,
    *,
    minimum: Version = FIRST,
    board: str = firmware_schema.BOARD,
    schema: int = firmware_schema.SCHEMA,
) -> Image:
    """An image of these files. Without a key it bears no signature: for a board's first files."""
    manifest = {
        "board": board,
        "version": version_of(files),
        "minimum": minimum,
        "schema": schema,
        "files": [[name, len(data), sha256(data).hexdigest()] for name, data in files.items()],
    }
    text = json.dumps(manifest, separators=(",", ":")).encode()
    total = sum(map(len, files.values()))
    if len(text) > 0xFFFF:
        raise ImageError("the manifest is too long: too many files")
    head = struct.pack(HEAD, MAGIC, len(text), total, bytes(256)) + text
    if key is not None:
        signature = key.sign(signed_part(head), PKCS1v15(), SHA256())
        head = head[:SIGNATURE_AT] + signature + head[HEAD_SIZE:]
    return read(head + b"".join(files.values()))


def read(data: bytes) -> Image:
    """Everything but the signature is checked. Raises ImageError."""
    if len(data) < HEAD_SIZE or data[: len(MAGIC)] != MAGIC:
        raise ImageError("it is no firmware image")
    size = HEAD_SIZE + int(struct.unpack(HEAD, data[:HEAD_SIZE])[1])
    try:
        manifest = manifest_of(data[:size])
        _check_files(manifest, data[size:])
    except ValueError as error:
        raise ImageError(f"the image is damaged: {error}") from None
    return Image(
        data,
        size,
        tuple(manifest["version"]),
        tuple(manifest["minimum"]),
        manifest["board"],
        manifest["schema"],
    )


def _check_files(manifest: Mapping[str, Any], body: bytes) -> None:
    at = 0
    for name, size, digest in manifest["files"]:
        if sha256(body[at : at + size]).hexdigest() != digest:
            raise ValueError(f"{name} is not what the manifest says")
        at += size
    if at != len(body):
        raise ValueError("its length is not what the manifest says")


# -- keys --------------------------------------------------------------------------------------


def trust_line(key: RSAPublicKey) -> str:
    """A key as boards keep it."""
    return f"{key.public_numbers().n:x}\n"


def trusted(text: str) -> tuple[RSAPublicKey, ...]:
    """The keys of a trust file. Raises ImageError where there is none."""
    found = firmware_signature.moduli(text.encode(), MAX_KEYS)
    if not found:
        raise ImageError("it holds no public key: `steelyard board keygen` makes one")
    return tuple(RSAPublicNumbers(65537, modulus).public_key() for modulus in found)


def is_signed_by(image: Image, keys: tuple[RSAPublicKey, ...]) -> bool:
    """As the board will see it."""
    head = image.data[: image.head_size]
    for key in keys:
        try:
            key.verify(head[SIGNATURE_AT:HEAD_SIZE], signed_part(head), PKCS1v15(), SHA256())
        except InvalidSignature:
            continue
        return True
    return False


def lay_out(folder: Path, files: Mapping[str, bytes], trust: str) -> None:
    """What a new board's flash holds: the loader, the first slot, the keys it trusts. Nothing
    else in the folder is touched. Raises OSError and ImageError."""
    image = build(files, None)
    slot = folder / SLOTS[0]
    for name, data in files.items():
        (slot / name).parent.mkdir(parents=True, exist_ok=True)
        (slot / name).write_bytes(data)
    (slot / HEAD_NAME).write_bytes(image.data[: image.head_size])
    (folder / "slots.py").write_bytes((PACKAGE / "firmware/slots.py").read_bytes())
    (folder / "main.py").write_text(LOADER)
    if trust:
        (folder / KEYS).write_text(trust)
