"""The file of a backup: a tar archive whose first member tells all others, gzipped, maybe sealed.

It is read from front to end only, and exactly what the manifest tells, in its order, is taken. So a
file that was made to mislead can neither name a way out nor grow beyond what it said at first.
"""

import contextlib
import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from appliance.backup.errors import BackupError
from appliance.backup.facts import Tell
from appliance.backup.manifest import MOST_BYTES, NAME, Manifest, decoded, encoded
from appliance.backup.places import make_private
from appliance.backup.sealing import MAGIC, SealedReader, SealedWriter

BLOCK = 1 << 20
_HEADER_BYTES = 64 << 10
"""What may be read to get to the next member: a header or two, and what tar reads ahead. Its
formats let a header be of any size, and tarfile takes each whole into memory."""
_PADDING = 4
"""Blocks that may follow the last member: tar fills up its last record."""
_GZIP = b"\x1f\x8b"


def measured(path: Path) -> tuple[int, str]:
    """Size and SHA-256 in hex."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def write_archive(
    out: IO[bytes],
    manifest: Manifest,
    sources: Mapping[str, Path],
    passphrase: bytes | None,
    tell: Tell,
) -> None:
    """All of the manifest's files, read from `sources`. Raises OSError; BackupError where a file is
    not what the manifest tells any more."""
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(_stream(out, passphrase, packed=not manifest.with_models))
        tar = stack.enter_context(
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)
        )
        told = encoded(manifest)
        tar.addfile(_member(NAME, len(told), manifest), io.BytesIO(told))
        done = 0
        for part in manifest.files:
            with sources[part.path].open("rb") as opened:
                reading = _Hashing(opened, partial(_further, tell, done, manifest.bytes))
                tar.addfile(_member(part.path, part.size, manifest), reading)
            if reading.digest.hexdigest() != part.sha256:
                raise BackupError(f"{part.path} changed while it was read: take the backup again")
            done += part.size


@contextlib.contextmanager
def _stream(out: IO[bytes], passphrase: bytes | None, *, packed: bool) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        inner: Any = out
        if passphrase is not None:
            inner = stack.enter_context(SealedWriter(out, passphrase))
        if packed:  # the weights of a model are as good as noise
            inner = stack.enter_context(
                gzip.GzipFile(filename="", mode="wb", fileobj=inner, compresslevel=1, mtime=0)
            )
        yield inner


def _further(tell: Tell, done: int, total: int, more: int) -> None:
    tell("write", done + more, total)


def _member(name: str, size: int, manifest: Manifest) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    member.mtime = manifest.made_wall_ns // 10**9
    return member


class _Hashing(io.RawIOBase):
    """A file of which all that is read is counted and hashed."""

    def __init__(self, opened: IO[bytes], told: Callable[[int], None]) -> None:
        self._opened, self._told = opened, told
        self.digest, self.count = hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        block = self._opened.read(size)
        self.digest.update(block)
        self.count += len(block)
        self._told(self.count)
        return block


class _Metered(io.RawIOBase):
    """A stream of which only so much may be read as is allowed, time after time."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, 0

    def allow(self, count: int) -> None:
        self._left = count

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise BackupError("it holds more than its manifest says")
        return block


class Archive:
    """A backup that is open for reading, once, from front to end."""

    def __init__(self, path: Path, stream: IO[bytes], *, sealed: bool) -> None:
        self.path, self.sealed = path, sealed
        self._stream = _Metered(stream)
        self._stream.allow(_HEADER_BYTES)
        self._tar = tarfile.open(fileobj=self._stream, mode="r|")  # noqa: SIM115 - ours for life
        first = self._next()
        if first is None or first.name != NAME or first.size > MOST_BYTES:
            raise BackupError("it does not begin with the manifest of a backup")
        self._stream.allow(first.size + _HEADER_BYTES)
        self.manifest = decoded(self._bytes_of(first).read())

    def unpack(self, folder: Path, wanted: Callable[[str], bool], tell: Tell) -> None:
        """Reads and checks all members, to the end of the file; those that are `wanted` are written
        below `folder` and are durable."""
        done = 0
        for part in self.manifest.files:
            member = self._next()
            if member is None or (member.name, member.size) != (part.path, part.size):
                raise BackupError(f"{part.path} is not where its manifest says")
            self._stream.allow(part.size + _HEADER_BYTES)
            told = partial(_onward, tell, done, self.manifest.bytes)
            reading = _Hashing(self._bytes_of(member), told)
            _drain(reading, folder / part.path if wanted(part.path) else None)
            if (reading.count, reading.digest.hexdigest()) != (part.size, part.sha256):
                raise BackupError(f"{part.path} in it is not what was written: take another copy")
            done += part.size
        if self._next() is not None:
            raise BackupError("it holds more than its manifest says")
        self._stream.allow(_PADDING * BLOCK)
        for _ in range(_PADDING):  # reading to the end checks how the file ends
            if not self._stream.read(BLOCK):
                return
        raise BackupError("it goes on after its end")

    def _next(self) -> tarfile.TarInfo | None:
        self._stream.allow(_HEADER_BYTES)
        return self._tar.next()

    def _bytes_of(self, member: tarfile.TarInfo) -> IO[bytes]:
        found = self._tar.extractfile(member) if member.isreg() else None
        if found is None:
            raise BackupError(f"{member.name[:100]!r} in it is no file")
        return found


def _onward(tell: Tell, done: int, total: int, more: int) -> None:
    tell("read", done + more, total)


def _drain(reading: _Hashing, target: Path | None) -> None:
    if target is None:
        while reading.read(BLOCK):
            pass
        return
    make_private(target.parent)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        while block := reading.read(BLOCK):
            out.write(block)
        out.flush()
        os.fsync(out.fileno())


@contextlib.contextmanager
def open_archive(path: Path, passphrase: bytes | None) -> Iterator[Archive]:
    """Raises BackupError, also for whatever is found wrong while it is read."""
    try:
        with path.open("rb") as source:
            sealed = source.read(len(MAGIC)) == MAGIC
            if not sealed:
                source.seek(0)
            elif passphrase is None:
                raise BackupError("it is encrypted: give its passphrase (--passphrase-file)")
            yield Archive(path, _unpacked(source, passphrase if sealed else None), sealed=sealed)
    except BackupError as error:
        raise BackupError(f"{path}: {error}") from error
    except _DAMAGES as error:
        raise BackupError(
            f"{path} is no backup, or is cut short or damaged ({error}): take another copy of it"
        ) from None


_DAMAGES = (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, UnicodeDecodeError)


def _unpacked(source: IO[bytes], passphrase: bytes | None) -> IO[bytes]:
    stream: Any = source
    if passphrase is not None:
        stream = io.BufferedReader(SealedReader(source, passphrase), BLOCK)
    buffered = io.BufferedReader(stream, BLOCK) if passphrase is None else stream
    if buffered.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:
        return gzip.GzipFile(fileobj=buffered, mode="rb")  # type: ignore[return-value]
    return buffered
