"""What may be read, and how much of it.

On the command line a user reads what the system lets her. A request that came through a deployment (the Prefect UI, its
API, a schedule) was written by whoever may reach the server, so its paths stay within the folders that whoever runs
this machine has named, links followed: see `SHUNTER_DATA_ROOTS`.
"""

import errno
import io
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.errors import DataError, RequestError
from shunter.files import make_private, open_regular
from shunter.secrets import without_secrets
from shunter.settings import Settings

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_WILD = re.compile(r"[*?\[]")


_FOREIGN: list[Callable[[], bool]] = []


def restrict_where(is_foreign: Callable[[], bool]) -> None:
    """Keep requests that others than this machine's user may have written within the named folders.

    Args:
        is_foreign: Whether the request that is being served is such a one; asked whenever a path is checked.
    """
    _FOREIGN.append(is_foreign)


def is_foreign_request() -> bool:
    """Whether others than this machine's user may have written the request that is being served."""
    return any(is_foreign() for is_foreign in _FOREIGN)


def allowed_roots() -> tuple[Path, ...] | None:
    """The folders that may be read; None for all of them."""
    settings = Settings()
    if settings.data_roots:
        named = tuple(Path(root).expanduser().resolve() for root in settings.data_roots.split(os.pathsep) if root)
        return (*named, *_opened_roots())
    return (settings.deployment_data_directory.resolve(), *_opened_roots()) if is_foreign_request() else None


def open_to_deployments(roots: Iterable[Path]) -> None:
    """Let deployments read some folders or files from now on, beside those that the settings name.

    Raises:
        OSError: That cannot be written down.
    """
    path = Settings().opened_roots_path
    make_private(path.parent)
    write_checked(path, json.dumps({"roots": [str(root.resolve()) for root in roots]}))


def _opened_roots() -> tuple[Path, ...]:
    def parse(text: bytes) -> tuple[Path, ...]:
        kept = json.loads(text)
        return tuple(map(Path, kept["roots"] if isinstance(kept, dict) else kept))  # a list in former versions

    return read_or_quarantine(Settings().opened_roots_path, parse) or ()


def check_words(part: str) -> None:
    """Refuse what is no path, and what points out of the allowed folders, before anything is looked up.

    Args:
        part: File, folder or glob, as it was written.

    Raises:
        RequestError: It is an address or no path, or begins outside the allowed folders.
    """
    if _ADDRESS.match(part):
        raise RequestError(
            f"{without_secrets(part)} is an address, and only files are read: fetch it first and give its path."
        )
    if "\0" in part:
        raise RequestError(f"{part!r} is no path: leave the zero character out.")
    try:
        path = Path(part).expanduser()
    except RuntimeError as error:
        raise RequestError(f"{part} names the home of a user who is not known: write the path in full.") from error
    fixed = path.parts
    for position, name in enumerate(path.parts):
        if _WILD.search(name):
            fixed = path.parts[:position]
            break
    check_paths([Path(*fixed)] if fixed else [Path()], told=part)


def check_paths(paths: Iterable[Path], told: str | None = None) -> None:
    """Refuse files outside the allowed folders, links followed.

    Args:
        paths: Files or folders.
        told: Name of the files in the message; their own names when absent.

    Raises:
        RequestError: One lies outside, whether it exists or not.
    """
    roots = allowed_roots()
    if roots is None:
        return
    for path in paths:
        real = path.resolve()
        if not any(real.is_relative_to(root) for root in roots):
            raise RequestError(
                f"{told or path} lies outside the folders that may be read here ({', '.join(map(str, roots))}): move "
                "it there, or let whoever runs this machine add its folder to SHUNTER_DATA_ROOTS."
            )


def open_checked(path: Path) -> io.BufferedReader:
    """Open a regular file that may be read; what was opened is what is looked at.

    Raises:
        RequestError: It lies outside the allowed folders, links followed.
        OSError: It cannot be opened, is a pipe, a socket or a device, or was exchanged in the meantime.
    """
    file = open_regular(path)
    try:
        real = path.resolve()
        if not real.is_relative_to(Settings().downloads_directory.resolve()):  # named data sets, which are checked
            check_paths([real], told=str(path))
        if not os.path.samestat(os.fstat(file.fileno()), real.stat()):
            raise OSError(errno.ESTALE, "it was exchanged while it was opened", str(path))
    except BaseException:
        file.close()
        raise
    return file


@dataclass
class Budget:
    """How much of a source may be read in one pass; counts decompressed bytes.

    Attributes:
        max_bytes: Most bytes of the input; None without a limit.
        max_rows: Most rows of the input, unreadable ones included; None without a limit.
        bytes_read: Bytes read so far.
        rows_read: Rows read so far.
        file_bytes: Bytes of the files read so far as they lie on the disk, which show how far a pass has come.
    """

    max_bytes: int | None
    max_rows: int | None
    bytes_read: int = 0
    rows_read: int = 0
    file_bytes: int = 0

    @classmethod
    def of_settings(cls) -> "Budget":
        """As `SHUNTER_MAX_INPUT_BYTES` and `SHUNTER_MAX_INPUT_ROWS` say."""
        settings = Settings()
        return cls(settings.max_input_bytes, settings.max_input_rows)

    def take_bytes(self, count: int, name: object) -> None:
        """Count bytes.

        Raises:
            DataError: There are more than allowed.
        """
        self.check_bytes(count, name)
        self.bytes_read += count

    def check_bytes(self, count: int, name: object) -> None:
        """Look whether so many bytes more may be read, without counting them.

        Raises:
            DataError: They are more than allowed.
        """
        if self.max_bytes is not None and self.bytes_read + count > self.max_bytes:
            raise DataError(
                f"{name} holds more than the {self.max_bytes:,} bytes that may be ingested here, decompressed: give "
                "less, or raise SHUNTER_MAX_INPUT_BYTES."
            )

    def take_rows(self, count: int, name: object) -> None:
        """Count rows.

        Raises:
            DataError: There are more than allowed.
        """
        self.rows_read += count
        if self.max_rows is not None and self.rows_read > self.max_rows:
            raise DataError(
                f"{name} holds more than the {self.max_rows:,} rows that may be ingested here: give less, or raise "
                "SHUNTER_MAX_INPUT_ROWS."
            )


class CountedStream(io.RawIOBase):
    """A stream that counts what is read from it.

    Args:
        stream: What is read.
        budget: Counts it.
        name: What it is called in messages.
        file: The file behind the stream, which may be compressed.
    """

    def __init__(self, stream: BinaryIO, budget: Budget, name: object, file: BinaryIO) -> None:
        super().__init__()
        self._stream, self._budget, self._name, self._file = stream, budget, name, file
        self._at = file.tell()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there is something to read."""
        count = cast("io.RawIOBase", self._stream).readinto(buffer) or 0
        self._budget.take_bytes(count, self._name)
        before, self._at = self._at, self._file.tell()
        self._budget.file_bytes += self._at - before
        return count


def check_sizes(paths: Iterable[Path], name: str) -> None:
    """Refuse files that are too large as they lie on the disk, before they are read.

    Raises:
        DataError: Together they hold more bytes than may be ingested.
    """
    budget = Budget.of_settings()
    for path in paths:
        budget.take_bytes(path.stat().st_size, name)
