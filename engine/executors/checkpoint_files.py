"""Checkpoint as a dictionary of files, to send it from the machine of the training to the machine of its flow."""

from collections.abc import Collection
from pathlib import Path

from shunter.engine.checkpoint.checked_files import write_text
from shunter.engine.checkpoint.generations import NEWEST, generation_paths, named_files
from shunter.files import replace_file

Files = dict[str, bytes]


class CheckpointWatch:
    """Watcher of a checkpoint folder that reads the files that are new since the last read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = self._stamp()
        self._read: set[str] = set()

    def changed(self) -> Files | None:
        """Return the manifests and the files that are new since the last call; None if nothing has changed.

        A concurrent writer can remove an old generation meanwhile; its manifest is then left out.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        files = read_checkpoint(self._directory, without=self._read)
        self._read |= {name for name in files if is_part(name)}
        return files

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = (self._directory / NEWEST).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def read_checkpoint(directory: Path, without: Collection[str] = ()) -> Files:
    """Return the files of a checkpoint by name, except part files in `without`; empty if there is none."""
    lists = [path for path in (directory / NEWEST, *generation_paths(directory)) if path.exists()]
    files: Files = {}
    for path in lists:
        names = [path.name, *(name for name in named_files([path]) if name not in files and name not in without)]
        try:
            files |= {name: (directory / name).read_bytes() for name in names}
        except FileNotFoundError:  # an old generation that has just been removed
            continue
    return files


def write_checkpoint(files: Files, directory: Path) -> None:
    """Replace the checkpoint in a folder; after a kill at any moment, the former or the new checkpoint is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    lists = [name for name in files if not is_part(name)]
    for name in (*(name for name in files if is_part(name)), *(name for name in lists if name != NEWEST)):
        replace_file(directory / name, files[name])
    if NEWEST in files:
        write_text(directory / NEWEST, files[NEWEST].decode())
    for path in generation_paths(directory):
        if path.name not in lists:
            path.unlink(missing_ok=True)
    named = set(named_files([directory / NEWEST, *generation_paths(directory)]))
    for path in directory.glob("*.safetensors"):
        if path.name not in named:
            path.unlink(missing_ok=True)


def is_part(name: str) -> bool:
    """Return True if a file never changes once written: tensors, or a file in the folder of one state."""
    return name.endswith(".safetensors") or "/" in name
