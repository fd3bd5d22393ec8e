"""Transfer of a data set to a node that lacks it: file by file, in pieces, into the node's own cache."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shunter.engine.data.dataset import DESCRIPTION, Dataset
from shunter.errors import DataError
from shunter.settings import Settings

PIECE_BYTES = 64 * 2**20


def find_dataset(dataset: Dataset) -> Path | None:
    """Return the folder of the data set on this machine: the original path, or a received copy; None if absent."""
    for folder in (dataset.directory, copy_directory(dataset)):
        try:
            if Dataset.load(folder).fingerprint == dataset.fingerprint:
                return folder
        except (OSError, DataError):
            continue
    return None


def copy_directory(dataset: Dataset) -> Path:
    """Return the folder of a received copy on this machine."""
    return Settings().cache_directory / "received" / dataset.fingerprint


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Part of a file of a data set.

    Attributes:
        name: Name of the file within the folder.
        offset: Offset of the part in bytes.
        content: the bytes of the part.
        is_last: whether the part ends the file.
        sender: Name of the sender; two senders of the same file write into separate temporary files.
    """

    name: str
    offset: int
    content: bytes
    is_last: bool
    sender: str


def read_pieces(dataset: Dataset, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """Yield all files of a data set on this machine in pieces, the description last."""
    sender = uuid.uuid4().hex[:8]
    folder = dataset.directory
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    for name in (*sorted(names - {DESCRIPTION}), DESCRIPTION):
        path = folder / name
        size = path.stat().st_size
        with path.open("rb") as file:
            for offset in range(0, max(size, 1), piece_bytes):
                content = file.read(piece_bytes)
                is_last = offset + piece_bytes >= size
                yield Piece(name=name, offset=offset, content=content, is_last=is_last, sender=sender)


def write_piece(dataset: Dataset, piece: Piece) -> None:
    """Write a piece into this machine's copy; a complete file is renamed to its final name."""
    path = copy_directory(dataset) / piece.name
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{piece.sender}.partial")
    with partial.open("ab" if piece.offset else "wb") as file:
        file.write(piece.content)
    if piece.is_last:
        partial.replace(path)
