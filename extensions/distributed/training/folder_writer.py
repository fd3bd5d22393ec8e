"""Writer of a checkpoint folder, to which every process adds its part: complete or not at all."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch import distributed as dist

from shunter.engine.checkpoint.background import Throttle
from shunter.engine.checkpoint.checked_files import PARTIAL, write_json
from shunter.engine.checkpoint.generations import Part, StoredFile, hash_of, kept_upon
from shunter.engine.checkpoint.storage import write_tensors
from shunter.extensions.distributed.training.agreement import all_do, from_all
from shunter.extensions.distributed.training.folders import Folders
from shunter.extensions.distributed.training.stored import DENSE, FORMAT, INDEX, bytes_in, file_of
from shunter.files import sync_directory

if TYPE_CHECKING:
    from shunter.extensions.distributed.training.rows import OwnRows
    from shunter.extensions.incremental_checkpoints.pieces import Piece


@dataclass(frozen=True)
class Written:
    """Record of the files in a checkpoint folder.

    Attributes:
        parts: Parts of the tables; empty if the tables are blocks.
        size: Bytes of the folder.
    """

    parts: tuple[Part, ...]
    size: int


class FolderWriter:
    """Writer of folders; all processes call `write` together.

    Args:
        directory: Parent of the folders.
        throttle: Limit on the common write rate of all processes.
        group: Process group that is used only by this writer.
        folders: Who sees which folder.
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
    ) -> Written:
        """Write a folder with the part of each process.

        Args:
            name: Name of the folder.
            own: Blocks of tables of this process, and its random state.
            dense: Weights and optimiser state of the dense part, which the first process writes.
            values: What the index says besides.
            rows: Rows of this process, if rows are stored instead of blocks.
            before: What the tables of the checkpoint before consist of.

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
            upon = kept_upon(rows.content, before, 0)
            of_all = tuple(file for part in from_all(own_rows, self._group) for file in part)
            left_out = max(from_all(rows.left_out, self._group)) if rows.content == "full" else ""
            parts = (*upon, Part(content=rows.content, upon=hash_of(upon), files=of_all, left_out=left_out))
            index["parts"] = [asdict(part) for part in parts]
        all_do(lambda: self._complete(partial, final, index), self._group)
        return Written(parts, bytes_in(final))

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
