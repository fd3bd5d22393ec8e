"""Where the processes of a training keep its files: in one folder on one machine, in folders that are alike on several.

On several machines no disk need be shared: what a process writes is sent to the folders of the other machines, so that
each of them holds the whole checkpoint, whoever reads which part of it.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import torch
from torch import distributed as dist

from shunter.engine.parallel.agreement import all_do, from_all
from shunter.errors import CheckpointError

PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class Folders:
    """Who tends the folder of whom.

    Attributes:
        keepers: For each process, in their order, the first of those that share its folder; it alone makes, renames
            and removes there.
    """

    keepers: tuple[int, ...]

    @classmethod
    def shared(cls, processes: int) -> "Folders":
        """All processes see one folder."""
        return cls((0,) * processes)

    @property
    def are_several(self) -> bool:
        """Whether there is more than one."""
        return len(set(self.keepers)) > 1

    def is_kept_by(self, rank: int) -> bool:
        """Whether a process tends the folder that it sees."""
        return self.keepers[rank] == rank

    def turn(self, rank: int) -> tuple[int, int]:
        """Place of a process among those that see its folder, and their number."""
        alike = [other for other, keeper in enumerate(self.keepers) if keeper == self.keepers[rank]]
        return alike.index(rank), len(alike)

    def spread(self, folder: Path, names: Iterable[str], group: dist.ProcessGroup | None = None) -> None:
        """Bring files of every process to the folders that lack them; called by all at the same time.

        Args:
            folder: The folder, as each process sees its own.
            names: Files below it that this process has written.
            group: Processes, speaking to each other of this alone; None is torch's default group.

        Raises:
            CheckpointError: A file could not be read, or not be written elsewhere.
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
        """Send one file in pieces; a process that fails goes on, or the others would wait for it."""
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
    """Names of all files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _opened(path: Path, mode: str, failed: list[OSError]) -> IO[bytes]:
    """The file; where it cannot be opened, or need not be, one in memory in its place."""
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
