"""Checkpoint folders of the processes of a training run: one on a single machine, replicas on several machines.

Several machines need no shared disk: files that a process writes are sent to the folders of the other machines. So each
machine has the whole checkpoint, and any process can read any part of it.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import torch
from torch import distributed as dist

from shunter.errors import CheckpointError
from shunter.extensions.distributed.training.agreement import all_do, from_all

PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class Folders:
    """Assignment of processes to checkpoint folders.

    Attributes:
        keepers: For each process, by rank, the lowest rank that shares its folder. Only this keeper creates, renames
            and removes files in the folder.
    """

    keepers: tuple[int, ...]

    @classmethod
    def shared(cls, processes: int) -> "Folders":
        """Return the assignment of all processes to one shared folder."""
        return cls((0,) * processes)

    @property
    def are_several(self) -> bool:
        """Return True if there are several folders."""
        return len(set(self.keepers)) > 1

    def is_kept_by(self, rank: int) -> bool:
        """Return True if a process is the keeper of its folder."""
        return self.keepers[rank] == rank

    def turn(self, rank: int) -> tuple[int, int]:
        """Return the index of a process among those that share its folder, and their number."""
        alike = [other for other, keeper in enumerate(self.keepers) if keeper == self.keepers[rank]]
        return alike.index(rank), len(alike)

    def spread(self, folder: Path, names: Iterable[str], group: dist.ProcessGroup | None = None) -> None:
        """Copy files of every process to the other folders; all processes call this together.

        Args:
            folder: Path of the folder on each machine.
            names: Files in the folder that this process has written, as relative paths.
            group: Process group of this exchange alone; None for torch's default group.

        Raises:
            CheckpointError: A file could not be read, or could not be written to another folder.
        """
        if not self.are_several:
            return
        failed: list[OSError] = []
        own = [(name, (folder / name).stat().st_size) for name in names]
        for sender, files in enumerate(from_all(own, group)):
            for name, size in files:
                self._send(folder / name, size, sender, group, failed)
        all_do(lambda: _raise_first(failed, folder), group)

    def _send(self, path: Path, size: int, sender: int, group: dist.ProcessGroup | None, failed: list[OSError]) -> None:
        """Send one file in pieces; after an error a process continues, so that the others do not wait forever."""
        rank = dist.get_rank()
        takes = self.is_kept_by(rank) and self.keepers[rank] != self.keepers[sender]
        file = _opened(path, "rb" if rank == sender else "wb" if takes else "", failed)
        with file:
            for offset in range(0, size, PIECE_BYTES):
                length = min(PIECE_BYTES, size - offset)
                content = file.read(length) if rank == sender else b""
                piece = torch.zeros(length, dtype=torch.uint8)
                if content:
                    piece[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
                dist.broadcast(piece, src=sender, group=group)
                if takes:
                    try:
                        file.write(piece.numpy().tobytes())
                    except OSError as error:
                        failed.append(error)


def files_in(folder: Path) -> list[str]:
    """Return the relative paths of all files in a folder and its subfolders, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _opened(path: Path, mode: str, failed: list[OSError]) -> IO[bytes]:
    """Open a file; if it cannot be opened, or `mode` is empty, return a file in memory."""
    if mode:
        with suppress(FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return path.open(mode)
        except OSError as error:
            failed.append(error)
    return BytesIO()


def _raise_first(failed: list[OSError], folder: Path) -> None:
    if failed:
        raise CheckpointError(
            f"The checkpoint in {folder} cannot be brought to the other machines ({failed[0]}): free their disks, then "
            "train again."
        )
