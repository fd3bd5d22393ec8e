"""Values that processes of one user hand each other as files: written and read where nobody else can write."""

import os
import pickle
import stat
from pathlib import Path
from typing import Any

from shunter.errors import TrainingError


def write_private(value: Any, path: Path) -> None:
    """Keep a value in a file that only its owner can read, in a folder that only its owner can open.

    Raises:
        TrainingError: Others could write there.
    """
    _check(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        pickle.dump(value, file)


def read_private(path: Path) -> Any:
    """What `write_private` wrote. To read such a file is to run what its writer wants, so nobody else may be one.

    Raises:
        TrainingError: Others could have written it.
    """
    _check(path.parent)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        _check_owner(path, os.fstat(file.fileno()))
        return pickle.load(file)


def _check(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise TrainingError(f"{folder} is no folder: start the training again.")
    _check_owner(folder, found)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise TrainingError(
            f"{path} belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}, so others could change "
            f"what this training runs: give it to user {os.geteuid()} alone (chmod go= {path})."
        )
