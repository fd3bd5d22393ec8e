"""Local copies of objects and of versions of tables, in a bounded folder of the home.

A copy is `objects/STORE/SCHEME/HOST/KEY.../@VERSION/NAME`. Its name holds the version, so that another version is
another file, and the path of a copy holds the address of its origin.
"""

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from shunter.errors import DataError
from shunter.settings import Settings

_LONGEST_NAME = 250
_LEAST_UNUSED_SECONDS = 3600.0  # a copy may be in use by another command for so long after a request for it


def copy_path(store: str, location: str, version: str, name: str) -> Path:
    """Return the path of a local copy.

    Args:
        store: Name of the store.
        location: Address of the object or of the table, or a path.
        version: Version of the content.
        name: Name of the file.

    Raises:
        DataError: A part of the address is empty, leaves its folder, or is too long for a file name.
    """
    if "://" in location:
        scheme, _, place = location.partition("://")
    else:
        scheme, place = "file", str(Path(location).expanduser().resolve()).lstrip("/")
    names = [quote(part, safe=" =+,()!'&~") for part in place.split("/")]  # with @ begin the versions alone
    if {"", ".", ".."} & {*names, name} or max(map(len, (*names, name))) > _LONGEST_NAME:
        raise DataError(f"The object {location} has a name that is empty, `..` or too long: rename the object.")
    return Settings().objects_directory.joinpath(store, scheme, *names, f"@{version}", name)


def touch(paths: Iterable[Path]) -> None:
    """Record that local copies are used, so that they are not removed soon."""
    for folder in {path.parent for path in paths}:
        with suppress(FileNotFoundError):
            os.utime(folder)


def make_room(needed_bytes: int, shown_address: str) -> None:
    """Remove the least recently used copies until the new copies fit into the limit.

    Args:
        needed_bytes: Size of the new copies.
        shown_address: Source address of the new copies, for the error message.

    Raises:
        DataError: The new copies are larger than the limit.
    """
    bound = int(Settings().object_cache_gib * 2**30)
    if needed_bytes > bound:
        raise DataError(
            f"The files of {shown_address} take {needed_bytes / 2**30:.3g} GiB, more than the limit of "
            f"{bound / 2**30:.3g} GiB for local copies: give fewer files, or raise "
            "SHUNTER_OBJECT_CACHE_GIB."
        )
    versions: list[tuple[Path, float, int]] = []
    inside = os.walk(Settings().objects_directory)
    for folder in [Path(root, name) for root, names, _ in inside for name in names if name.startswith("@")]:
        with suppress(FileNotFoundError):  # another process removes copies, too
            size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
            versions.append((folder, folder.stat().st_mtime, size))
    left = needed_bytes + sum(size for *_, size in versions) - bound
    for folder, used, size in sorted(versions, key=lambda version: version[1]):
        if left <= 0 or used > time.time() - _LEAST_UNUSED_SECONDS:
            return
        shutil.rmtree(folder, ignore_errors=True)
        left -= size
