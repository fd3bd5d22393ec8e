"""Checkpoint folders of the processes of a training run: one on a single machine, replicas on several machines.

Several machines need no shared disk: files that a process writes are sent to the folders of the other machines. So each
machine has the whole checkpoint, and any process can read any part of it. Every process adds its part to a folder,
which is written completely or not at all.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.engine.checkpoint.background import Throttle
from shunter.engine.checkpoint.checked_files import PARTIAL, write_json
from shunter.engine.checkpoint.generations import Part, StoredFile, base_chain, hash_of
from shunter.engine.checkpoint.storage import write_tensors
from shunter.errors import CheckpointError
from shunter.extensions.distributed.training.hosts import all_do, from_all
from shunter.extensions.distributed.training.stored import DENSE, FORMAT, INDEX, bytes_in, file_of
from shunter.files import sync_directory

if TYPE_CHECKING:
    from shunter.extensions.distributed.training.rows import OwnRows
    from shunter.extensions.incremental_checkpoints.pieces import Piece


PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class Folders:
    """Assignment of processes to checkpoint folders.

    Attributes:
        keepers: For each process, by rank, the lowest rank that shares its folder. Only this keeper creates, renames
            and removes files in the folder.
    """

    keepers: tuple[int, ...]

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
        if len(set(self.keepers)) == 1:
            return
        failed: list[OSError] = []
        own = [(name, (folder / name).stat().st_size) for name in names]
        for sender, files in enumerate(from_all(own, group)):
            for name, size in files:
                self._send(folder / name, size, sender, group, failed)

        def check() -> None:
            if failed:
                raise CheckpointError(
                    f"The checkpoint in {folder} cannot be copied to the other machines ({failed[0]}): free space "
                    "on their disks and train again."
                )

        all_do(check, group)

    def _send(self, path: Path, size: int, sender: int, group: dist.ProcessGroup | None, failed: list[OSError]) -> None:
        """Send one file in pieces; after an error a process continues, so that the others do not wait forever."""
        rank = dist.get_rank()
        takes = self.is_kept_by(rank) and self.keepers[rank] != self.keepers[sender]
        file: IO[bytes] = BytesIO()  # if this process neither reads nor writes the file, or cannot
        if rank == sender or takes:
            with suppress(FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
            try:
                file = path.open("rb" if rank == sender else "wb")
            except OSError as error:
                failed.append(error)
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


class FolderWriter:
    """Writer of folders; all processes call `write` together.

    Args:
        directory: Parent of the folders.
        throttle: Limit on the common write rate of all processes.
        group: Process group that is used only by this writer.
        folders: Assignment of processes to folders.
    """

    def __init__(self, directory: Path, throttle: Throttle, group: Any, folders: Folders) -> None:
        self._directory, self._throttle, self._group, self._folders = directory, throttle, group, folders
        self._rank, self._processes = dist.get_rank(), dist.get_world_size()

    def write(
        self,
        name: str,
        own: dict[str, Tensor],
        dense: dict[str, Tensor],
        values: dict[str, Any],
        *,
        rows: "OwnRows | None" = None,
        before: Sequence[Part] = (),
    ) -> tuple[tuple[Part, ...], int]:
        """Write a folder with the part of each process.

        Args:
            name: Name of the folder.
            own: Blocks of tables of this process, and its random state.
            dense: Weights and optimiser state of the dense part, which the first process writes.
            values: Further values of the index.
            rows: Rows of this process, if rows are stored instead of blocks.
            before: Parts of the tables in the previous checkpoint.

        Raises:
            CheckpointError: A process could not write its part.
        """
        partial, final = self._directory / f"{name}{PARTIAL}", self._directory / name
        all_do(lambda: self._clear(partial, final), self._group)
        files: dict[str, Any] = {}
        own_rows: list[StoredFile] = []

        def write_own() -> None:
            files[file_of(self._rank)] = self._stored(partial / file_of(self._rank), own)
            if self._rank == 0:
                files[DENSE] = self._stored(partial / DENSE, dense) | {"keys": []}
            for file, tensors in self._row_files(rows.pieces, rows.bits) if rows is not None else ():
                checksum = self._stored(partial / file, tensors)["sha256"]
                own_rows.append(StoredFile(name=f"{name}/{file}", sha256=checksum))

        all_do(write_own, self._group)
        written = [*files, *(file.name.partition("/")[2] for file in own_rows)]
        self._folders.spread(partial, written, self._group)
        index = {"format": FORMAT, "processes": self._processes, **values}
        index["files"] = {file: of for part in from_all(files, self._group) for file, of in part.items()}
        parts: tuple[Part, ...] = ()
        if rows is not None:
            upon = base_chain(rows.content, before, 0)
            of_all = tuple(file for part in from_all(own_rows, self._group) for file in part)
            left_out = max(from_all(rows.left_out, self._group)) if rows.content == "full" else ""
            parts = (*upon, Part(content=rows.content, upon=hash_of(upon), files=of_all, left_out=left_out))
            index["parts"] = [asdict(part) for part in parts]
        all_do(lambda: self._complete(partial, final, index), self._group)
        return parts, bytes_in(final)

    def _clear(self, partial: Path, final: Path) -> None:
        if self._folders.is_kept_by(self._rank):
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)  # the best of a repeated step; no checkpoint names it
            partial.mkdir()

    def _complete(self, partial: Path, final: Path, index: dict[str, Any]) -> None:
        if self._folders.is_kept_by(self._rank):
            write_json(partial / INDEX, json.dumps(index, indent=1))
            partial.rename(final)
            sync_directory(self._directory)

    def _stored(self, path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Write a file within this process's share of the write rate."""
        checksum = write_tensors(path, tensors)
        self._throttle.wrote(path.stat().st_size * self._processes)
        return {"sha256": checksum, "keys": list(tensors)}

    def _row_files(self, pieces: "Iterable[Piece]", bits: int) -> Iterator[tuple[str, dict[str, Tensor]]]:
        from shunter.extensions.incremental_checkpoints.pieces import encode, filled

        encoded = ((0, encode(piece, bits, number)) for number, piece in enumerate(pieces))
        for position, (_, tensors) in enumerate(filled(encoded)):
            yield f"rows{self._rank}-{position:04d}.safetensors", tensors
