"""Functions that open the files of a source, plain or compressed, with one-sentence error messages."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from shunter.errors import DataError
from shunter.ingestion.fields import UTF_8
from shunter.ingestion.sources.guard import Budget, CountedStream, open_checked

BLOCK_BYTES = 4 << 20
LONGEST_LINE_BYTES = 64 << 20
_COMPRESSIONS: dict[bytes, Callable[[Any], Any]] = {  # by the first bytes of a file
    rb"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.BZ2File,
    rb"\xfd7zXZ\x00": lzma.LZMAFile,
    rb"\x28\xb5\x2f\xfd": lambda file: pa.CompressedInputStream(file, "zstd"),
    rb"\x04\x22\x4d\x18": lambda file: pa.CompressedInputStream(file, "lz4"),
}
_SNAPPY = rb"\xff\x06\x00\x00sNaPpY"
_MAGIC_BYTES = 10
_SNAPPY_FRAME_BYTES = 1 << 16
_LARGEST_EMPTY_BYTES = 300  # largest size of an empty archive, whose header may hold a file name


@contextmanager
def open_binary(path: Path, budget: Budget | None = None, start: int = 0, end: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading and decompress its content, regardless of the file name.

    Args:
        path: Path of the file.
        budget: Budget that counts the decompressed bytes; None for a new budget.
        start: First byte to read; must be 0 for a compressed file.
        end: End of the range to read, exclusive; None for the end of the file, and for a compressed file.

    Raises:
        DataError: The file is empty, unreadable or larger than the budget, or the archive is truncated or damaged.
    """
    try:
        with ExitStack() as stack:
            file = stream = cast("BinaryIO", stack.enter_context(open_checked(path)))
            magic = stream.read(_MAGIC_BYTES)
            if not magic:
                raise DataError(f"The file {path} is empty: give a file with rows.")
            stream.seek(0)
            if (decompress := _compression(magic)) is not None:
                assert (start, end) == (0, None)
                stream = stack.enter_context(cast("BinaryIO", decompress(file)))
            elif (start, end) != (0, None):
                stream.seek(start)
                stream = cast("BinaryIO", _Beginning(stream, None if end is None else end - start))
            counted = CountedStream(stream, budget or Budget.of_settings(), path, file)
            yield cast("BinaryIO", io.BufferedReader(counted, BLOCK_BYTES))
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"The archive {path} is truncated or damaged ({error}): download or write it again.") from error
    except OSError as error:
        raise DataError(f"The file {path} cannot be read ({error.strerror or error}): give a readable file.") from error


@contextmanager
def open_text(
    path: Path, encoding: str = UTF_8, budget: Budget | None = None, start: int = 0, end: int | None = None
) -> Iterator[BinaryIO]:
    """Open a text like `open_binary`, converted to UTF-8, with line ends CR converted to newlines."""
    with open_binary(path, budget, start, end) as stream:
        ends_with_cr = re.match(rb"[^\r\n]*\r[^\n]", cast("io.BufferedReader", stream).peek(1)) is not None
        if encoding == UTF_8 and not ends_with_cr:
            yield stream
        else:
            yield cast("BinaryIO", io.BufferedReader(_InUtf8(stream, encoding, ends_with_cr=ends_with_cr)))


class _InUtf8(io.RawIOBase):
    """Stream that converts a text to UTF-8; undecodable bytes are kept, so that their rows are rejected."""

    def __init__(self, stream: BinaryIO, encoding: str, *, ends_with_cr: bool) -> None:
        super().__init__()
        self._stream, self._ends_with_cr, self._ready = stream, ends_with_cr, b""
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._stream.read(BLOCK_BYTES)
            text = self._decoder.decode(block, final=not block)
            text = text.replace("\r", "\n") if self._ends_with_cr else text
            self._ready = text.encode(errors="surrogateescape")
            if not block:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def read_blocks(
    path: Path, block_bytes: int = BLOCK_BYTES, budget: Budget | None = None, start: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """Yield a text file in blocks of whole lines; the last line gets a newline if necessary.

    A block ends with the last line end before a multiple of `block_bytes`. A unit that starts and ends at such line
    ends therefore has the same blocks as the whole file.

    Args:
        path: Path of the file.
        block_bytes: Approximate size of a block in bytes.
        budget: Budget that counts the bytes read.
        start: Byte offset of the first line.
        end: Byte offset of the end of the last line; None for the end of the file.

    Raises:
        DataError: The file cannot be opened (see `open_binary`), or has no lines of text.
    """
    with open_binary(path, budget, start, end) as stream:
        rest, position = b"", start
        while block := stream.read(block_bytes - position % block_bytes):
            position += len(block)
            newline = block.rfind(b"\n") + 1
            if newline:
                yield b"".join((rest, memoryview(block)[:newline]))
                rest = block[newline:]
            else:
                rest += block
            if len(rest) > LONGEST_LINE_BYTES:
                raise DataError(f"The file {path} does not consist of lines of text: name its format with --format.")
        if rest:
            yield rest + b"\n"


def _compression(magic: bytes) -> Callable[[Any], Any] | None:
    """Return the function that decompresses a file with these first bytes; None for a plain file."""
    known = {**_COMPRESSIONS, _SNAPPY: _FramedSnappy}
    return next((opener for pattern, opener in known.items() if re.match(pattern, magic)), None)


def is_plain(path: Path) -> bool:
    """Return True if a file is not compressed and can be read from any offset; raise `DataError` if unreadable."""
    try:
        with open_checked(path) as stream:
            return _compression(stream.read(_MAGIC_BYTES)) is None
    except OSError as error:
        raise DataError(f"The file {path} cannot be read ({error.strerror or error}): give a readable file.") from error


def holds_nothing(path: Path) -> bool:
    """Return True if a file or the content of an archive is empty."""
    if not path.is_file() or not 0 < path.stat().st_size <= _LARGEST_EMPTY_BYTES:
        return path.is_file() and path.stat().st_size == 0
    with open_binary(path) as stream:
        return not stream.read(1)


class _FramedSnappy(io.RawIOBase):
    """Stream of an archive in the framing format of snappy: frames of at most 64 KiB, compressed or not."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream, self._ready, self._codec = stream, b"", pa.Codec("snappy")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (head := self._stream.read(4)):
            kind, size = head[0], int.from_bytes(head[1:], "little")
            frame = self._stream.read(size)
            if len(head) < 4 or len(frame) < size or 2 <= kind < 0x80:
                raise EOFError("a Zstandard frame is truncated or unknown")
            if kind == 1:
                self._ready = frame[4:]  # behind the checksum
            elif kind == 0:
                content = 0  # a variable-length integer: the high bit marks all bytes but the last
                for place, byte in enumerate(frame[4:9]):
                    content |= (byte & 127) << (7 * place)
                    if byte < 128:
                        break
                if content > _SNAPPY_FRAME_BYTES:
                    raise EOFError("a Zstandard frame is larger than the format permits")
                self._ready = self._codec.decompress(frame[4:], content, asbytes=True)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


class _Beginning(io.RawIOBase):
    """Stream limited to the first `size` bytes of another stream; None for no limit."""

    def __init__(self, stream: BinaryIO, size: int | None) -> None:
        super().__init__()
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: self._left]
        count = cast("io.RawIOBase", self._stream).readinto(view) or 0
        if self._left is not None:
            self._left -= count
        return count
