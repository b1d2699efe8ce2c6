"""The files of recordings: lines in, lines out, plain or compressed, good up to the last whole line after a kill."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbmastra.errors import RecordingError
from nbmastra.recording.lines import is_json

__all__ = ["open_writer", "read_bytes", "read_lines"]

_BLOCK = 1 << 20
_GZIP = 31  # zlib's window bits for a gzip container
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def open_writer(path: Path) -> tuple[Callable[[bytes], None], Callable[[], None]]:
    """A function that writes and flushes bytes, and one that closes the file. Raises RecordingError."""
    if path.suffix == ".gz":
        gzip = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        compress, flush, end = gzip.compress, lambda: gzip.flush(zlib.Z_SYNC_FLUSH), gzip.flush
    elif path.suffix == ".zst":
        zstd = _zstandard(path)
        frame = zstd.ZstdCompressor(level=6).compressobj()
        compress, flush, end = frame.compress, lambda: frame.flush(zstd.COMPRESSOBJ_FLUSH_BLOCK), frame.flush
    else:
        compress, flush, end = _as_it_is, bytes, bytes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb", buffering=0)
    except OSError as error:
        raise RecordingError(f"can't write {path}: {error.strerror or error}") from None

    def write(data: bytes) -> None:
        if data:
            _write_all(file.write, compress(data) + flush())

    def close() -> None:
        with file:
            _write_all(file.write, end())

    return write, close


def _write_all(write: Callable[[bytes], int | None], data: bytes) -> None:
    while data:
        data = data[write(data) or 0 :]


def read_lines(path: Path) -> Iterator[list[bytes]]:
    """The whole lines of a file, block by block, without their ends; compression is told by its first bytes.

    What follows the last line end was being written when its writer died, and is left out. Raises RecordingError.
    """
    begun: list[bytes] = []
    for block in _blocks(path):
        head, *others = block.split(b"\n")
        begun.append(head)
        if others:
            yield [b"".join(begun), *others[:-1]]
            begun = others[-1:]
    if begun and is_json(last := b"".join(begun)):  # it may lack nothing but its end, as editors leave it
        yield [last]


def read_bytes(path: Path) -> bytes:
    """A whole file; compression is told by its first bytes. Raises RecordingError."""
    return b"".join(_blocks(path))


def _blocks(path: Path) -> Iterator[bytes]:
    damages: tuple[type[Exception], ...] = (zlib.error,)
    try:
        with path.open("rb") as file:
            start = file.read(4)
            decompress: Callable[[bytes], bytes] = _as_it_is
            if start.startswith(b"\x1f\x8b"):
                decompress = _gunzip()
            elif start == _ZSTD_MAGIC:
                zstd = _zstandard(path)
                damages = (zlib.error, zstd.ZstdError)
                decompress = zstd.ZstdDecompressor().decompressobj(read_across_frames=True).decompress
            block = start
            while block:
                yield decompress(block)
                block = file.read(_BLOCK)
    except OSError as error:
        raise RecordingError(f"can't read {path}: {error.strerror or error}") from None
    except damages as error:
        raise RecordingError(f"{path.name} is damaged: {error}") from None


def _gunzip() -> Callable[[bytes], bytes]:
    """What decompresses a file piece by piece, all its members: files that were joined have several."""
    member = zlib.decompressobj(_GZIP)

    def decompress(data: bytes) -> bytes:
        nonlocal member
        found = [member.decompress(data)]
        while member.eof and (rest := member.unused_data.lstrip(b"\0")):  # some tools fill up with zeros
            member = zlib.decompressobj(_GZIP)
            found.append(member.decompress(rest))
        return b"".join(found)

    return decompress


def _as_it_is(data: bytes) -> bytes:
    return data


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise RecordingError(f"{path.name}: .zst files need `pip install 'nbmastra[zstd]'`") from None
    return zstandard
