"""Limits on the paths and the amount of data that may be read.

On the command line a user may read all files that the system permits. A request through a deployment (the Prefect UI,
its API, a schedule) may come from anyone with access to the server. Its paths must therefore be, after resolving links,
within the folders that the operator of this machine has named in `SHUNTER_DATA_ROOTS`.
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
from urllib.parse import unquote

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.errors import DataError, RequestError
from shunter.files import make_private, open_regular
from shunter.secrets import check_is_path, has_password, without_secrets
from shunter.settings import Settings

_USER = re.compile(r"://[^/?#]*@")
_WILD = re.compile(r"[*?\[]")

_NIGHTS, _DATA = "roots", "data_roots"  # lists of opened folders

_FOREIGN: list[Callable[[], bool]] = []


def restrict_where(is_foreign: Callable[[], bool]) -> None:
    """Restrict requests that may come from other users to the folders of `SHUNTER_DATA_ROOTS`.

    Args:
        is_foreign: Returns True if the current request may come from another user; called whenever a path is checked.
    """
    _FOREIGN.append(is_foreign)


def is_foreign_request() -> bool:
    """Return True if another user than this machine's user may have written the current request."""
    return any(is_foreign() for is_foreign in _FOREIGN)


def allowed_roots() -> tuple[Path, ...] | None:
    """Return the folders that may be read; None if all folders may be read."""
    if is_foreign_request():
        return roots_of_deployments()
    settings = Settings()  # of the user of this machine, who may also give frames of this process
    return (*roots_of_deployments(), settings.frames_directory.resolve()) if settings.data_roots else None


def roots_of_deployments() -> tuple[Path, ...]:
    """Return the folders that a deployment may read; relative paths of its requests count from the first one."""
    settings = Settings()
    named = tuple(Path(root).expanduser().resolve() for root in (settings.data_roots or "").split(os.pathsep) if root)
    opened = (Path(root) for roots in _opened().values() for root in roots)
    return (*(named or (settings.deployment_data_directory.resolve(),)), *opened)


def open_to_deployments(roots: Iterable[Path], *, data: bool = False) -> None:
    """Permit deployments to read some folders or files, in addition to `data_roots` of the settings.

    Args:
        roots: Folders or files to permit.
        data: If True, `roots` are added to the permitted data folders; else they replace the folders of nightly runs.

    Raises:
        OSError: The permission cannot be stored.
    """
    path, opened = Settings().opened_roots_path, _opened()
    new = [str(root.resolve()) for root in roots]
    opened |= {_DATA: [*dict.fromkeys([*opened.get(_DATA, []), *new])]} if data else {_NIGHTS: new}
    make_private(path.parent)
    write_checked(path, json.dumps(opened))


def _opened() -> dict[str, list[str]]:
    def parse(text: bytes) -> dict[str, list[str]]:
        kept = json.loads(text)
        kept = kept if isinstance(kept, dict) else {_NIGHTS: kept}  # a list in former versions
        return {name: [str(Path(root)) for root in roots] for name, roots in kept.items()}

    return read_or_quarantine(Settings().opened_roots_path, parse) or {}


def check_text(part: str) -> None:
    """Raise if a text is no path or points outside the allowed folders, before any file is accessed.

    Raises:
        AddressNotTakenError: The text is an address.
        RequestError: The text is no path, or a path outside the allowed folders.
    """
    check_is_path(part)
    if "\0" in part:
        raise RequestError(f"{part!r} is not a path: remove the NUL character.")
    try:
        path = Path(part).expanduser()
    except RuntimeError as error:
        raise RequestError(f"The path {part} names the home folder of an unknown user: write the full path.") from error
    fixed = path.parts
    for position, name in enumerate(path.parts):
        if _WILD.search(name):
            fixed = path.parts[:position]
            break
    check_paths([Path(*fixed)] if fixed else [Path()], shown_name=part)


def check_address(address: str) -> None:
    """Raise if an address holds a secret or may not be read, before any server is contacted.

    Args:
        address: Address such as `s3://bucket/folder`, without the version of a table.

    Raises:
        RequestError: The address holds a user, a password or a token, leaves its folder, or is not allowed.
    """
    if _USER.search(address) or has_password(address):
        raise RequestError(
            f"The address {without_secrets(address)} contains a user or a secret: leave it out, and "
            "configure the library that reads the address, for example by AWS_PROFILE, ~/.netrc or "
            "~/.pgpass."
        )
    path = unquote(address.partition("://")[2]).split("/")
    if "::" in address or "\0" in address or not path[0] or {".", ".."} & {*path}:
        raise RequestError(f"The address {address} is not plain: write it in full, without `..` and `::`.")
    settings = Settings()
    if not is_foreign_request() and not settings.data_roots and settings.data_addresses is None:
        return
    allowed = [one.strip().rstrip("/") for one in (settings.data_addresses or "").split(",") if one.strip()]
    if not any(f"{address}/".startswith(f"{one}/") for one in allowed):
        raise RequestError(
            f"The address {address} is outside the addresses that may be read "
            f"({', '.join(allowed) or 'none'}): the operator of this machine can add it to "
            "SHUNTER_DATA_ADDRESSES."
        )


def address_of(copy: Path) -> str | None:
    """Return the address of which a file is a local copy; None for any other file.

    The path of a copy is `objects/KIND/SCHEME/HOST/.../@VERSION/NAME` in the home.
    """
    folder = Settings().objects_directory
    for path, root in ((copy, folder), (copy.resolve(), folder.resolve())):
        if path.is_relative_to(root) and len(parts := path.relative_to(root).parts) > 4:
            return f"{parts[1]}://{'/'.join(map(unquote, parts[2:-2]))}"
    return None


def check_paths(paths: Iterable[Path], shown_name: str | None = None) -> None:
    """Raise if a file is outside the allowed folders after resolving links; a local copy is judged by its address.

    Args:
        paths: Files or folders.
        shown_name: Name of the files in the error message; None for their own names.

    Raises:
        RequestError: A path is outside the allowed folders, whether the file exists or not.
    """
    roots = allowed_roots()
    if roots is None:
        return
    for path in paths:
        real = path.resolve()
        address = address_of(path)
        if address is not None and not address.startswith("file://"):
            check_address(address)
            continue
        real = Path("/", address.removeprefix("file://")) if address else real
        if not any(real.is_relative_to(root) for root in roots):
            raise RequestError(
                f"The path {shown_name or path} is outside the folders that may be read "
                f"({', '.join(map(str, roots))}): move it there, or let the operator of this machine "
                "add its folder with `shunter up --data-root` or SHUNTER_DATA_ROOTS."
            )


def open_checked(path: Path) -> io.BufferedReader:
    """Open a regular file that may be read; the checks apply to the opened file itself.

    Raises:
        RequestError: The file is outside the allowed folders after resolving links.
        OSError: The file cannot be opened, is a pipe, a socket or a device, or was replaced in the meantime.
    """
    file = open_regular(path)
    try:
        real = path.resolve()
        if not real.is_relative_to(Settings().downloads_directory.resolve()):  # named data sets, which are checked
            check_paths([real], shown_name=str(path))
        if not os.path.samestat(os.fstat(file.fileno()), real.stat()):
            raise OSError(errno.ESTALE, "the file was replaced while it was opened", str(path))
    except BaseException:
        file.close()
        raise
    return file


@dataclass
class Budget:
    """Limit on the data of one pass over a source, in decompressed bytes and rows.

    Attributes:
        max_bytes: Largest number of decompressed bytes; None without a limit.
        max_rows: Largest number of rows, including unreadable rows; None without a limit.
        bytes_read: Decompressed bytes read so far.
        rows_read: Rows read so far.
        file_bytes: Bytes on disk read so far, for the progress of a pass.
    """

    max_bytes: int | None
    max_rows: int | None
    bytes_read: int = 0
    rows_read: int = 0
    file_bytes: int = 0

    @classmethod
    def of_settings(cls) -> "Budget":
        """Return a budget with the limits `SHUNTER_MAX_INPUT_BYTES` and `SHUNTER_MAX_INPUT_ROWS`."""
        settings = Settings()
        return cls(settings.max_input_bytes, settings.max_input_rows)

    def take_bytes(self, count: int, name: object) -> None:
        """Count bytes that were read, and raise if the limit is exceeded.

        Raises:
            DataError: The limit is exceeded.
        """
        self.check_bytes(count, name)
        self.bytes_read += count

    def check_bytes(self, count: int, name: object) -> None:
        """Check that `count` more bytes may be read, without counting these bytes.

        Raises:
            DataError: The limit would be exceeded.
        """
        if self.max_bytes is not None and self.bytes_read + count > self.max_bytes:
            raise DataError(
                f"{name} has more than the permitted {self.max_bytes:,} bytes, decompressed: give fewer "
                "rows, or raise SHUNTER_MAX_INPUT_BYTES."
            )

    def take_rows(self, count: int, name: object) -> None:
        """Count rows that were read, and raise if the limit is exceeded.

        Raises:
            DataError: The limit is exceeded.
        """
        self.rows_read += count
        if self.max_rows is not None and self.rows_read > self.max_rows:
            raise DataError(
                f"{name} has more than the permitted {self.max_rows:,} rows: give fewer rows, or raise "
                "SHUNTER_MAX_INPUT_ROWS."
            )


class CountedStream(io.RawIOBase):
    """Stream that counts the bytes read.

    Args:
        stream: Stream to read.
        budget: Budget that counts the bytes.
        name: Name of the stream for error messages.
        file: File behind the stream, which may be compressed.
    """

    def __init__(self, stream: BinaryIO, budget: Budget, name: object, file: BinaryIO) -> None:
        super().__init__()
        self._stream, self._budget, self._name, self._file = stream, budget, name, file
        self._at = file.tell()

    def readable(self) -> bool:
        """Return True, because the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read up to the size of the buffer; return the number of bytes read."""
        count = cast("io.RawIOBase", self._stream).readinto(buffer) or 0
        self._budget.take_bytes(count, self._name)
        before, self._at = self._at, self._file.tell()
        self._budget.file_bytes += self._at - before
        return count


def check_sizes(paths: Iterable[Path], name: str) -> None:
    """Raise if the total size of the files on disk exceeds the limit, before any file is read.

    Raises:
        DataError: The files together hold more bytes than may be ingested.
    """
    budget = Budget.of_settings()
    for path in paths:
        budget.take_bytes(path.stat().st_size, name)
