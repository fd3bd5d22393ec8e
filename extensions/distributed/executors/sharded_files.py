"""State of a multi-process training as a dictionary of files; see `engine.executors.checkpoint_files`."""

import shutil
from pathlib import Path

from shunter.engine.checkpoint.checked_files import PARTIAL, write_text
from shunter.engine.executors.checkpoint_files import Files
from shunter.extensions.distributed.training.plan import MACHINE
from shunter.extensions.distributed.training.stored import (
    BEST,
    INDEX,
    StoredLayout,
    latest_checkpoint,
    number_of,
    remove_older,
)
from shunter.files import replace_file


class ShardedWatch:
    """Watcher of a folder of states that reads the files that are new since the last read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        newest = latest_checkpoint(directory)
        self._seen = newest.name if newest else None
        self._read: set[str] = set()

    def changed(self) -> Files | None:
        """Return the files of the newest state that were added since the last call; None without changes.

        A concurrent writer can remove an old state meanwhile; the next call then finds the newer state.
        """
        newest = latest_checkpoint(self._directory)
        if newest is None or newest.name == self._seen:
            return None
        try:
            files = read_sharded(self._directory, without=self._read)
        except FileNotFoundError:
            return None
        self._seen = newest.name
        self._read |= files.keys()
        return files


def read_sharded(directory: Path, without: set[str] | None = None) -> Files:
    """Return the files of the newest state, and the machine speeds by which its tables were divided.

    Files named in `without` are omitted, because the receiver already has them.
    """
    newest = latest_checkpoint(directory)
    names = [MACHINE] if (directory / MACHINE).exists() else []
    if newest is not None:
        index = f"{newest.name}/{INDEX}"
        names += [*StoredLayout().files(index, lambda name: (directory / name).read_bytes()), index]
    return {name: (directory / name).read_bytes() for name in names if name not in (without or ())}


def write_sharded(files: Files, directory: Path, generations: int) -> None:
    """Write a state, or its new files; after a kill at any moment, the former or the new state is complete.

    The folder is created if absent; `generations` states are kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if MACHINE in files:
        write_text(directory / MACHINE, files[MACHINE].decode())
    folders = {directory / name.partition("/")[0] for name in files if "/" in name}
    # Best weights first, then states from old to new.
    for folder in sorted(folders, key=lambda one: -1 if one.name.startswith(BEST) else number_of(one)):
        partial = folder.with_name(f"{folder.name}{PARTIAL}")
        shutil.rmtree(partial, ignore_errors=True)
        target = folder if folder.exists() else partial
        target.mkdir(exist_ok=True)
        for name, content in files.items():
            if name.startswith(f"{folder.name}/"):
                replace_file(target / name.partition("/")[2], content)
        if target == partial:
            partial.rename(folder)
    remove_older(directory, generations)
