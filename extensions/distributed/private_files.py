"""Files through which processes of one user exchange values, readable and writable by that user only."""

import os
import pickle
import stat
from pathlib import Path
from typing import Any

from shunter.errors import TrainingError


def write_private(value: Any, path: Path) -> None:
    """Write a value to a file that only its owner can read, in a folder that only its owner can open.

    Raises:
        TrainingError: Other users could write to the folder.
    """
    _check(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        pickle.dump(value, file)


def read_private(path: Path) -> Any:
    """Read a value of `write_private`.

    Unpickling the file runs code chosen by its writer, so no other user may be able to write it.

    Raises:
        TrainingError: Other users could have written the file.
    """
    _check(path.parent)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        _check_owner(path, os.fstat(file.fileno()))
        return pickle.load(file)


def _check(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise TrainingError(f"The private path {folder} is not a folder: remove it and start the training run again.")
    _check_owner(folder, found)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise TrainingError(
            f"{path} belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}, so other "
            f"users could change the code that this training runs: give it to user {os.geteuid()} alone "
            f"(chmod go= {path})."
        )
