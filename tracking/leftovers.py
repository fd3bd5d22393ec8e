"""What killed processes have left behind: nothing that a registered model, a run to resume or the history needs."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlparse

from filelock import FileLock, Timeout

from shunter.settings import Settings
from shunter.tracking.registry.signing import MODEL_COPY
from shunter.tracking.store import EXPERIMENT, open_store, tracking_errors

DAY_SECONDS = 86_400.0
_HALF_WRITTEN = re.compile(r"\.(\d+)\.(?:[0-9a-f]+\.)?(?:tmp|partial)$")


@dataclass(frozen=True)
class Leftover:
    """Something that nobody needs any longer.

    Attributes:
        what: What it is, in words.
        name: Path, or id.
        age_seconds: How long ago it was last written.
        size_bytes: What it takes on the disk.
        remove: Function that removes it.
    """

    what: str
    name: str
    age_seconds: float
    size_bytes: int
    remove: Callable[[], None]


def find_leftovers(min_age_seconds: float = DAY_SECONDS) -> list[Leftover]:
    """Everything of that kind that is old enough, the largest first.

    Args:
        min_age_seconds: Age below which somebody may still be at work on it.

    Raises:
        TrackingError: The store cannot be read.
    """
    found = [*_model_copies(), *_half_built(), *_half_written(), *_pending_models()]
    old = [leftover for leftover in found if leftover.age_seconds >= min_age_seconds]
    return sorted(old, key=lambda leftover: -leftover.size_bytes)


def _model_copies() -> Iterator[Leftover]:
    for folder in Path(tempfile.gettempdir()).glob(f"{MODEL_COPY}*"):
        if not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid():
            yield on_disk("temporary copy of a model", folder)


def _half_built() -> Iterator[Leftover]:
    """Data sets whose ingestion was killed; one that is being built is locked."""
    cache = Settings().cache_directory
    for folder in cache.glob(".*.building"):
        lock = FileLock(cache / "locks" / f"{folder.name.removeprefix('.').removesuffix('.building')}.lock", timeout=0)
        try:
            with lock:
                pass
        except Timeout:
            continue
        yield on_disk("half of a data set", folder, lock)


def _half_written() -> Iterator[Leftover]:
    """Files beside which a process died before it put them in their place."""
    for file in Settings().home.rglob("*"):
        match = _HALF_WRITTEN.search(file.name)
        if match and file.is_file() and not file.is_symlink() and not _is_alive(int(match[1])):
            yield on_disk("file that was not finished", file)


def _pending_models() -> Iterator[Leftover]:
    """Models that were begun in MLflow and never got their files; no version can come of one."""
    client = open_store().mlflow
    with tracking_errors():
        experiment = client.get_experiment_by_name(EXPERIMENT)
        token = None
        while experiment is not None:
            models = client.search_logged_models([experiment.experiment_id], page_token=token)
            for model in models:
                if model.status == "PENDING":
                    yield Leftover(
                        what="model that was never finished",
                        name=model.model_id,
                        age_seconds=time.time() - model.last_updated_timestamp / 1000,
                        size_bytes=_size(Path(urlparse(model.artifact_location).path)),
                        remove=partial(client.delete_logged_model, model.model_id),
                    )
            token = models.token
            if not token:
                return


def on_disk(what: str, path: Path, lock: FileLock | None = None) -> Leftover:
    """A file or folder that could go.

    Args:
        what: What it is, in words.
        path: Where it is.
        lock: Lock to be held while it is removed.
    """

    def remove() -> None:
        if lock is not None:
            lock.acquire()
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        finally:
            if lock is not None:
                lock.release()

    newest = max((file.lstat().st_mtime for file in (path, *path.rglob("*"))), default=path.lstat().st_mtime)
    return Leftover(what, str(path), time.time() - newest, _size(path), remove)


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in (path, *path.rglob("*")) if file.is_file() and not file.is_symlink())


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
