"""Leftovers of killed processes: data that no registered model, resumable run or history needs."""

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from filelock import FileLock, Timeout

from shunter.quarantine import FOLDER
from shunter.settings import Settings
from shunter.tracking.listing import list_pending_models
from shunter.tracking.registry.signing import MODEL_COPY
from shunter.tracking.store import open_store

DAY_SECONDS = 86_400.0
_HALF_WRITTEN = re.compile(r"\.(\d+)\.(?:[0-9a-f]+\.)?(?:tmp|partial)$")


@dataclass(frozen=True)
class Leftover:
    """Data that is no longer needed.

    Attributes:
        what: Description of the kind of leftover.
        name: Path or id of the data.
        age_seconds: Time since the last write in seconds.
        size_bytes: Size on disk in bytes.
        remove: Function that removes the data.
    """

    what: str
    name: str
    age_seconds: float
    size_bytes: int
    remove: Callable[[], None]


def find_leftovers(min_age_seconds: float = DAY_SECONDS) -> list[Leftover]:
    """Return all leftovers that are old enough, largest first.

    Args:
        min_age_seconds: Smallest age in seconds; a process may still use younger data.

    Raises:
        TrackingError: The store cannot be read.
    """
    found = [*_model_copies(), *_of_home(), *_half_built(), *_pending_models()]
    old = [leftover for leftover in found if leftover.age_seconds >= min_age_seconds]
    return sorted(old, key=lambda leftover: -leftover.size_bytes)


def _model_copies() -> Iterator[Leftover]:
    for folder in Path(tempfile.gettempdir()).glob(f"{MODEL_COPY}*"):
        status = _status(folder)
        if status is not None and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            yield from on_disk("temporary copy of a model", folder)


def _of_home() -> Iterator[Leftover]:
    """Yield damaged files in the quarantine, and temporary files of dead processes that were never renamed."""
    for folder, _, files in os.walk(Settings().home / FOLDER):
        for name in files:
            yield from on_disk("damaged file in the quarantine", Path(folder, name))
    for file, status in _tree(Settings().home):
        match = _HALF_WRITTEN.search(file.name)
        if match and stat.S_ISREG(status.st_mode) and not _is_alive(int(match[1])):
            yield from on_disk("file that was not finished", file)


def _half_built() -> Iterator[Leftover]:
    """Yield incomplete data sets of killed ingestions; data sets in progress are locked and skipped."""
    cache = Settings().cache_directory
    for folder in cache.glob(".*.building"):
        lock = FileLock(cache / "locks" / f"{folder.name.removeprefix('.').removesuffix('.building')}.lock", timeout=0)
        try:
            with lock:
                pass
        except Timeout:
            continue
        yield from on_disk("half of a data set", folder, lock)


def _pending_models() -> Iterator[Leftover]:
    """Yield pending models in MLflow whose registration was never completed; no version refers to these models."""
    for model in list_pending_models():
        yield Leftover(
            what="model that was never finished",
            name=model["model_id"],
            age_seconds=time.time() - model["written"],
            size_bytes=size_of(Path(urlparse(model["location"]).path)),
            remove=lambda model_id=model["model_id"]: open_store().mlflow.delete_logged_model(model_id),
        )


def on_disk(what: str, path: Path, lock: FileLock | None = None) -> Iterator[Leftover]:
    """Yield a file or folder as a leftover, unless another process has removed it."""

    def raise_unless_gone(_: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(error[1], FileNotFoundError):  # another process has removed the path already
            raise error[1]

    def remove() -> None:
        with lock or nullcontext():
            if is_folder:
                shutil.rmtree(path, onerror=raise_unless_gone)
            else:
                path.unlink(missing_ok=True)

    found = [status for _, status in _tree(path)]
    if found:
        is_folder = stat.S_ISDIR(found[0].st_mode)
        yield Leftover(what, str(path), time.time() - max(one.st_mtime for one in found), _bytes(found), remove)


def size_of(path: Path) -> int:
    """Return the bytes of all regular files in a folder, or of a file."""
    return _bytes([status for _, status in _tree(path)])


def _bytes(found: list[os.stat_result]) -> int:
    return sum(status.st_size for status in found if stat.S_ISREG(status.st_mode))


def _tree(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield a path and all paths below it with their status; skip paths that other processes remove meanwhile."""
    below = (Path(folder, name) for folder, folders, files in os.walk(path) for name in (*folders, *files))
    for one in (path, *below):
        if (status := _status(one)) is not None:
            yield one, status


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a path without following links; None if the path does not exist."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
