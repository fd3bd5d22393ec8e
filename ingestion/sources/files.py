"""Opening the files of a source, plain or gzip, with their faults told in one sentence."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ingestion.sources.guard import Budget, CountedStream, open_checked
from shunter.errors import DataError

BLOCK_BYTES = 4 << 20
_LONGEST_LINE_BYTES = 64 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_binary(path: Path, budget: Budget | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed when it is gzip, whatever its name.

    Args:
        path: The file.
        budget: Counts what is read, decompressed; None for one of its own.

    Raises:
        DataError: The file is empty, cannot be read, holds more than may be read, or its archive is truncated or
            damaged.
    """
    try:
        with ExitStack() as stack:
            stream: BinaryIO = stack.enter_context(open_checked(path))
            magic = stream.read(len(_GZIP_MAGIC))
            if not magic:
                raise DataError(f"{path} is empty: give a file with rows.")
            stream.seek(0)
            if magic == _GZIP_MAGIC:
                stream = stack.enter_context(cast("BinaryIO", gzip.GzipFile(fileobj=stream)))
            counted = CountedStream(stream, budget or Budget.of_settings(), path)
            yield cast("BinaryIO", io.BufferedReader(counted, BLOCK_BYTES))
    except EOFError as error:
        raise DataError(f"{path} is a truncated gzip archive: fetch or write it again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip archive ({error}): fetch or write it again.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): give a readable file.") from error


def read_blocks(path: Path, block_bytes: int = BLOCK_BYTES, budget: Budget | None = None) -> Iterator[bytes]:
    """Read a text file in blocks of whole lines; the last line gets a newline if it has none.

    Raises:
        DataError: The file cannot be opened (see `open_binary`), or is not lines of text.
    """
    with open_binary(path, budget) as stream:
        rest = b""
        while block := stream.read(block_bytes):
            end = block.rfind(b"\n") + 1
            if end:
                yield b"".join((rest, block[:end]))
                rest = block[end:]
            else:
                rest += block
            if len(rest) > _LONGEST_LINE_BYTES:
                raise DataError(f"{path} is not lines of text: name its format with --format.")
        if rest:
            yield rest + b"\n"
