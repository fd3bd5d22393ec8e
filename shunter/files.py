"""File operations: safe opening of foreign files, private files, and atomic replacement."""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from io import BufferedReader
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
    stat.S_IFDIR: "it is a folder",
}


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading.

    The check inspects the opened file itself, so that the file cannot be exchanged in between. A pipe without a writer
    does not block.

    Raises:
        OSError: The file cannot be opened, or is a pipe, a socket, a device or a folder; its `strerror` names the kind.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the kernel's error for a socket
            raise OSError(errno.EINVAL, _KINDS[stat.S_IFSOCK], str(path)) from error
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise OSError(errno.EINVAL, _KINDS.get(kind, "it is no regular file"), str(path))
    return os.fdopen(descriptor, "rb")


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can access; an existing folder stays as it is.

    Raises:
        OSError: The folder cannot be created.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def check_room(folder: Path, least_bytes: int) -> None:
    """Raise if a folder has no space for a new file of `least_bytes`, tested with a temporary file.

    Raises:
        OSError: The folder is read-only, the disk or a quota is full, or a limit of the process is below the size.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, least_bytes)


def begin_private(file: Path) -> None:
    """Create an empty file that only its owner can read, for a library that fills it; an existing file stays.

    Raises:
        OSError: The file cannot be created.
    """
    make_private(file.parent)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def path_of(file: BufferedReader) -> Path:
    """Return a path to the open file, even if its former path has been replaced; for libraries that open by path."""
    return Path(f"/dev/fd/{file.fileno()}")


def users_of(path: Path) -> list[int]:
    """Return the ids of visible processes that have a file, or a file below a folder, open or mapped."""
    path = path.absolute()
    return sorted({pid for pid, used in _used_files() if used == path or path in used.parents})


def _used_files() -> Iterator[tuple[int, Path]]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    yield int(process.name), handle.readlink()
            for line in (process / "maps").read_text().splitlines():
                if (place := line.find("/")) >= 0:
                    yield int(process.name), Path(line[place:])


@contextlib.contextmanager
def replacing(path: Path, *, is_durable: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` that replaces it after the block.

    A reader sees the old file or the whole new one. If the block raises, `path` stays as it was.

    Args:
        path: File to replace; its folder exists.
        is_durable: Whether the new file survives a power failure from the end of the block on.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if is_durable:
            _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if is_durable:
        sync_directory(path.parent)


def replace_file(path: Path, content: str | bytes, *, is_durable: bool = False) -> None:
    """Write a file atomically, so that readers see the old or the new file; create its folder if absent.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, is_durable=is_durable) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def sync_directory(directory: Path) -> None:
    """Write the entries of a folder to the disk, so that a rename survives a power failure."""
    _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@lru_cache
def digest_of_sources(*folders: Path) -> str:
    """Return the SHA-256 of all Python files below some folders, which identifies the code behind a result."""
    digest = hashlib.sha256()
    for path in sorted(file for folder in folders for file in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
