"""Files of a training run with checksums, and their names; this module needs no torch."""

import contextlib
import hashlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shunter.checked_json import json_object, read_checked, seal
from shunter.errors import CheckpointError, DamagedFileError
from shunter.files import open_regular, replacing

MODEL_FILES = ("model.json", "model.safetensors")
WEIGHTS = "model.safetensors"
# Files of a run with choices from measurements or earlier runs: a resumed or repeated run makes the same choices.
CHOICES = "*.choice.json"
# Prefix of the folder of each state that several processes have left, and suffix of one that is being written.
SHARDED, PARTIAL = "checkpoint-", ".partial"
# Folder of the weights at the ends of the learning rate cycles, as members of an ensemble without further training
# (Huang et al., "Snapshot Ensembles: Train 1, Get M for Free", ICLR 2017).
SNAPSHOTS = "snapshots"


def check_file(path: Path, checksum: str) -> None:
    """Compare a file with the sha256 that was computed when it was written.

    Raises:
        CheckpointError: The file is missing or has another checksum.
    """
    with opened(path) as file:
        check_sum(file, path, checksum)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a regular file for reading in the block.

    Raises:
        CheckpointError: The file is missing or cannot be read, on opening or within the block.
    """
    with _reading(path), open_regular(path) as file:
        yield file


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert errors of reading the file `path` in the block."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(path, "it is missing") from error
    except OSError as error:
        raise CheckpointError(
            f"The file {path} cannot be read ({error.strerror}): restore the file, or train again without it."
        ) from error


def check_sum(file: io.BufferedReader, path: Path, checksum: str) -> None:
    """Compare an open file with its sha256; see `check_file`."""
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != checksum:
        raise DamagedFileError(
            path, f"its sha256 starts with {found[:12]}, not {checksum[:12]}, as for the file of another model"
        )


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        CheckpointError: The file cannot be written, for instance because the disk is full.
    """
    with replacing_durably(path) as temporary:
        temporary.write_text(text)


def write_json(path: Path, text: str) -> None:
    """Write a JSON object with its checksum, for `read_json`; raises the errors of `write_text`."""
    write_text(path, seal(text))


@contextlib.contextmanager
def replacing_durably(path: Path) -> Iterator[Path]:
    """Yield a temporary file that durably replaces `path` after the block.

    Raises:
        CheckpointError: The file cannot be written; `path` stays as it was.
    """
    from safetensors import SafetensorError

    try:
        with replacing(path, is_durable=True) as temporary:
            yield temporary
    except (OSError, SafetensorError) as error:  # safetensors reports a full disk by the latter
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CheckpointError(
            f"The file {path} cannot be written ({reason}): free some disk space and run the "
            "same command again. Earlier files are kept."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, and compare it with its checksum if it has one.

    Raises:
        DamagedFileError: The file is missing, does not match its checksum or holds no JSON object.
        CheckpointError: The file cannot be read.
    """
    with _reading(path):
        return read_checked(path, json_object)


def snapshot_folder(directory: Path, epoch: int) -> Path:
    """Return the folder of the weights after `epoch` epochs, below the checkpoint folder `directory`."""
    return directory / SNAPSHOTS / str(epoch)


def take_snapshots(checkpoint: Path, directory: Path) -> None:
    """Move the snapshots from a checkpoint folder, which is temporary, to the folder `directory` of the model."""
    if (checkpoint / SNAPSHOTS).exists():
        shutil.rmtree(directory / SNAPSHOTS, ignore_errors=True)  # left by an attempt that was killed during the move
        shutil.move(checkpoint / SNAPSHOTS, directory / SNAPSHOTS)
