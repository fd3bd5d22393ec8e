"""Embedding tables of a training run in incremental checkpoints: all rows first, then the rows that have changed."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from shunter.engine.checkpoint.changed_rows import WriteFile
from shunter.engine.checkpoint.checkpoint_settings import FEWEST_BITS_OF_BEST, CheckpointSettings
from shunter.engine.checkpoint.generations import Content, Part, StoredFile, base_chain, hash_of
from shunter.engine.checkpoint.storage import read_tensors
from shunter.engine.checkpoint.training_tensors import bytes_of, check_finite
from shunter.extensions.incremental_checkpoints.pieces import (
    HOT_BITS,
    HotRowSplitter,
    Piece,
    StoredRows,
    decode,
    encode,
    filled,
    put_into,
)
from shunter.extensions.incremental_checkpoints.snapshot import Snapshot
from shunter.extensions.incremental_checkpoints.touched import History, Intervals, TouchedRows
from shunter.models.embeddings.initial_weights import RULE
from shunter.models.embeddings.role import EmbeddingTables

# Number of ranges of rows of `auto`, which writes one range in full at a time: a small part of a checkpoint.
RANGES = 8


@dataclass(frozen=True, kw_only=True)
class CheckpointRows:
    """Rows of the tables in the next checkpoint; a `shunter.engine.checkpoint.changed_rows.CheckpointRows`.

    Attributes:
        contents: For each range of rows, whether all rows are stored, or those touched since which checkpoint.
        bits: Bits per number in the stored rows.
        left_out: Initialisation rule of rows that were never looked up and are left out; empty if no row is
            left out.
        pieces: Values of the rows at the checkpoint, with the number of their range, made on demand. If the tables are
            in memory, steps may continue at the same time.
    """

    contents: tuple[Content, ...]
    bits: int
    left_out: str
    pieces: Iterator[tuple[int, Piece]]

    @property
    def are_all(self) -> bool:
        """Return True if all rows are stored."""
        return set(self.contents) == {"full"}

    def write(self, number: int, step: int, parts: Sequence[Part], write_file: WriteFile) -> tuple[Part, ...]:
        """Write the rows as new parts; return all parts that restore the tables, in the order to load them."""
        chains = [base_chain(content, parts, place) for place, content in enumerate(self.contents)]
        files: list[list[StoredFile]] = [[] for _ in chains]
        for position, (place, tensors) in enumerate(filled(self._encoded(step))):
            name = f"rows-{number:06d}-{position:04d}.safetensors"
            files[place].append(write_file(name, tensors, {"upon": hash_of(chains[place])}))
        written: list[Part] = []
        for place, (chain, its_files) in enumerate(zip(chains, files, strict=True)):
            content = self.contents[place]
            written += chain
            if its_files or content == "full":  # otherwise no row of the range has changed
                left_out = self.left_out if content == "full" else ""
                written.append(
                    Part(content=content, upon=hash_of(chain), files=tuple(its_files), range=place, left_out=left_out)
                )
        return tuple(written)

    def _encoded(self, step: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
        for number, (place, piece) in enumerate(self.pieces):
            if isinstance(piece.weight, Tensor):
                check_finite(f"table {piece.table}", piece.weight, step)
            yield place, encode(piece, self.bits, number)


class ChangingTables:
    """Tracker of the rows that the next checkpoint must store; a `shunter.engine.checkpoint.changed_rows.ChangedRows`.

    Args:
        tables: Live tables.
        device: Device of the batches.
        checkpoint_settings: Checkpoint policy.
    """

    def __init__(self, tables: EmbeddingTables, device: torch.device, checkpoint_settings: CheckpointSettings) -> None:
        self._tables, self._checkpoint_settings = tables, checkpoint_settings
        ranges = min(RANGES, sum(tables.rows)) if checkpoint_settings.rows == "auto" else 1
        self._intervals = Intervals(TouchedRows(tables, device), checkpoint_settings.rows, ranges)
        self._first_rows = [*accumulate(tables.rows, initial=0)]
        self._stored = StoredRows()
        self._snapshot: Snapshot | None = None

    @property
    def history(self) -> History:
        """Share of rows in each checkpoint since the last full one, for each range of rows; input of the policy."""
        return self._intervals.history

    def note(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Record the rows of a batch right before its step; return their numbers, counted through all tables."""
        rows = self._tables.rows_of_batch(values, offsets)
        self._intervals.touched.note(rows)
        return rows

    def before_step(self, rows: Tensor) -> None:
        """Copy embedding rows that the next step changes and that the writer has not written yet."""
        if self._snapshot is not None:
            self._snapshot.before_step(rows)

    @property
    def bytes(self) -> int:
        """Bytes of this process's embedding rows and of their optimizer state."""
        return bytes_of(self._tables)

    def next_rows(self, copied_bytes: float, *, is_best: bool = False, may_give_up: bool = False) -> CheckpointRows:
        """Select the rows of the next checkpoint; see `shunter.engine.checkpoint.changed_rows.ChangedRows`."""
        if not self._stored.is_empty:
            since_last = self._intervals.touched.since_last()
            for table, rows in enumerate(since_last.split(self._tables.rows)):
                self._stored.drop(table, rows.nonzero().view(-1))
        bits = self._checkpoint_settings.bits_of(self.bytes)
        hot_rows = HotRowSplitter(self._tables.initialised_shards()) if bits < HOT_BITS and not is_best else None
        wanted = self._intervals.next(all_rows=is_best and bits < FEWEST_BITS_OF_BEST)
        is_complete = mask_initialised(self._tables, wanted.rows)
        snapshot = Snapshot(
            self._tables,
            wanted.rows,
            copied_bytes,
            bounds=self._intervals.bounds,
            may_give_up=may_give_up,
        )
        self._snapshot = snapshot if self._tables.is_in_memory else None
        return CheckpointRows(
            contents=wanted.contents,
            bits=max(bits, FEWEST_BITS_OF_BEST) if is_best else bits,
            left_out="" if is_complete else RULE,
            pieces=self._pieces(snapshot, hot_rows),
        )

    def close(self) -> None:
        """Discard the rows of `next_rows` that are still to be written."""
        if self._snapshot is not None:
            self._snapshot.close()

    def undo(self) -> None:
        """Mark the rows of the last `next_rows` as still to be stored, because they were not written.

        No training step may run meanwhile.
        """
        self._intervals.undo()

    def _pieces(self, snapshot: Snapshot, hot_rows: HotRowSplitter | None) -> Iterator[tuple[int, Piece]]:
        for piece in snapshot.pieces():
            first = self._first_rows[piece.table] + piece.first_row
            number = bisect_right(self._intervals.bounds, first) - 1
            for part in self._stored.divide(piece):
                for one in (part,) if hot_rows is None else hot_rows.divide(part):
                    yield number, one

    def put_best(self, directory: Path, parts: Sequence[Part]) -> None:
        """Load the parts of the best weights into the tables, without recording rows as touched."""
        if any(part.left_out for part in parts):
            self._tables.draw_again()
        shards = list(self._tables.initialised_shards())
        for _, piece in _read_pieces(directory, parts):
            put_into(shards, piece)
        self._tables.forget_rows()

    def put_back(self, directory: Path, parts: Sequence[Part], history: Sequence[Sequence[float]]) -> None:
        """Load parts into the tables in the given order, and resume the record of touched rows.

        Args:
            directory: Folder of the files.
            parts: Parts to load, the oldest first.
            history: `history` at the time when the last part was written.
        """
        shards = list(self._tables.initialised_shards())
        for content, piece in _read_pieces(directory, parts):
            put_into(shards, piece, self._stored)
            if content != "full":
                self._intervals.touched.record_rows(piece.table, piece.rows + piece.first_row)
        self._tables.forget_rows()
        self._intervals.resume(history)


def _read_pieces(directory: Path, parts: Sequence[Part]) -> Iterator[tuple[Content, Piece]]:
    for part in parts:
        for file in part.files:
            for piece in decode(read_tensors(directory / file.name, file.sha256)):
                yield part.content, piece


def mask_initialised(tables: EmbeddingTables, wanted: Tensor) -> bool:
    """Set `wanted` to False in place for rows that have no weights yet; return True if no table has such rows.

    Args:
        tables: Embedding tables.
        wanted: Bool for each row of all tables.
    """
    shards = list(tables.initialised_shards())
    for shard, part in zip(shards, wanted.split(tables.rows), strict=False):
        if shard.starts is not None:
            shard.starts.mask_initialised(part)
    return all(shard.starts is None for shard in shards)
