"""Histories built from a log of (user or session, item, time): for each row, the earlier items of the same user.

A row's history holds items of strictly earlier rows only: neither the row itself, nor rows of equal time, nor later
rows.

The rows may be in any order. They are therefore partitioned by a hash of the user into parts of a temporary file.
One part at a time is sorted by user and time, and its histories are written in the order of the rows. Memory holds one
part: 1/64 of the log with many users, and all rows of one user with few users.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY, Bag, RawBatch
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.schema import Schema
from shunter.ingestion.spill import SpilledBatch

PARTS = 64
_EVENT = np.dtype(
    [
        ("row", np.int64),
        ("user", np.uint64),
        ("time", np.float64),
        ("item", np.uint64),
        ("is_kept", np.bool_),
        ("is_training", np.bool_),
    ]
)
_HISTORY = np.dtype([("row", np.int64), ("length", np.int64)])

Events = NDArray[np.void]


def bounds_of_histories(events: Events, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bounds of each event's history in the list of the events with `is_kept`.

    Args:
        events: Events [rows], sorted by user and time.
        length: Largest number of items in a history.

    Returns:
        First position and position after the last, each int64 [rows], counted among the events with `is_kept` only.
    """
    count = len(events)
    new_user = np.ones(count, bool)
    new_user[1:] = events["user"][1:] != events["user"][:-1]
    new_moment = new_user.copy()
    new_moment[1:] |= events["time"][1:] != events["time"][:-1]
    positions = np.arange(count)
    of_user = np.maximum.accumulate(np.where(new_user, positions, 0))
    of_moment = np.maximum.accumulate(np.where(new_moment, positions, 0))
    kept_before = np.concatenate([[0], np.cumsum(events["is_kept"])]).astype(np.int64)
    end = kept_before[of_moment]
    first = np.maximum(kept_before[of_user], end - length)
    # Rows without a user have empty histories.
    return np.where(events["user"] == MISSING_KEY, end, first), end


class HistoryLog:
    """Builder of the histories of all rows of a log: appends batches, builds, then reads histories batch by batch.

    Args:
        directory: Folder of the two temporary files.
        name: Prefix of the file names.
        length: Largest number of items in a history; the latest items are kept.

    Attributes:
        empty_in_training: Number of training rows with an empty history, valid after `build`.
    """

    def __init__(self, directory: Path, name: str, length: int) -> None:
        self._length = length
        self._paths = [directory / f"{name}.{kind}" for kind in ("events", "histories")]
        self._events, self._histories = (path.open("w+b") for path in self._paths)
        # For each batch: file offset of its events in bytes, and the bounds of each part among the events.
        self._batches: list[tuple[int, NDArray[np.int64]]] = []
        self._rows = 0
        self._part_starts: list[int] = []
        self.empty_in_training = 0

    def append(
        self,
        users: NDArray[np.uint64],
        times: NDArray[np.float64],
        items: NDArray[np.uint64],
        *,
        is_kept: NDArray[np.bool_],
        is_training: NDArray[np.bool_],
    ) -> None:
        """Append the rows of one batch; each array has the shape [rows].

        Args:
            users: Key of the user; rows with `MISSING_KEY` have an empty history.
            times: Time of the row.
            items: Key of the item; `MISSING_KEY` is not added to histories.
            is_kept: Whether the item is added to later histories.
            is_training: Whether the row is in the training split.
        """
        events = np.empty(len(users), _EVENT)
        events["row"] = np.arange(self._rows, self._rows + len(users))
        events["user"], events["time"], events["item"] = users, times, items
        events["is_kept"] = is_kept & (items != MISSING_KEY) & (users != MISSING_KEY)
        events["is_training"] = is_training
        part = (mix(users) % np.uint64(PARTS)).astype(np.int64)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=PARTS))])
        self._batches.append((self._events.tell(), bounds))
        self._events.write(events[np.argsort(part, kind="stable")].tobytes())
        self._rows += len(users)

    def build(self) -> None:
        """Build the histories part by part, after all rows are appended."""
        for part in range(PARTS):
            self._part_starts.append(self._histories.tell())
            self._build_part(part, self._read_part(part))

    def _read_part(self, part: int) -> NDArray[np.void]:
        """Read the events of a part; the pieces are freed when it returns."""
        pieces = [np.empty(0, _EVENT)]
        for start, bounds in self._batches:
            self._events.seek(start + int(bounds[part]) * _EVENT.itemsize)
            size = int(bounds[part + 1] - bounds[part]) * _EVENT.itemsize
            pieces.append(np.frombuffer(self._events.read(size), _EVENT))
        return np.concatenate(pieces)

    def read(self) -> Iterator[Bag]:
        """Yield a bag for each appended batch, in the order of `append`: the history of each row, oldest item first."""
        cursors = list(self._part_starts)
        first_row = 0
        for _, bounds in self._batches:
            histories, keys = [np.empty(0, _HISTORY)], [np.empty(0, np.uint64)]
            for part in np.flatnonzero(np.diff(bounds)):
                self._histories.seek(cursors[part])
                histories.append(self._read_histories(int(bounds[part + 1] - bounds[part]), _HISTORY))
                keys.append(self._read_histories(int(histories[-1]["length"].sum()), np.dtype(np.uint64)))
                cursors[part] = self._histories.tell()
            found = np.concatenate(histories)
            rows, lengths, unordered = found["row"] - first_row, found["length"], np.concatenate(keys)
            offsets = np.zeros(len(rows) + 1, np.int64)
            offsets[1:][rows] = lengths
            offsets = np.cumsum(offsets)
            ordered = np.empty_like(unordered)
            ordered[_ranges(offsets[rows], lengths)] = unordered
            yield Bag(ordered, offsets)
            first_row += len(found)

    def close(self) -> None:
        """Delete the temporary files of the histories."""
        for stream, path in zip((self._events, self._histories), self._paths, strict=True):
            stream.close()
            path.unlink(missing_ok=True)

    def _build_part(self, part: int, events: Events) -> None:
        """Write the histories of one part of the log to the file: for each batch the lengths, then the items."""
        events = events[np.lexsort((events["time"], events["user"]))]
        first, end = bounds_of_histories(events, self._length)
        lengths = end - first
        self.empty_in_training += int((events["is_training"] & (lengths == 0)).sum())
        items = events["item"][events["is_kept"]]
        by_row = np.argsort(events["row"])
        ends = np.cumsum([bounds[part + 1] - bounds[part] for _, bounds in self._batches])
        for rows in np.split(by_row, ends[:-1]):
            histories = np.empty(len(rows), _HISTORY)
            histories["row"], histories["length"] = events["row"][rows], lengths[rows]
            self._histories.write(histories.tobytes())
            self._histories.write(items[_ranges(first[rows], lengths[rows])].tobytes())

    def _read_histories(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.frombuffer(self._histories.read(count * dtype.itemsize), dtype)


class Histories:
    """All built histories of a log; a context manager that deletes the temporary files.

    Args:
        directory: Folder of the temporary files.
        schema: Schema; each of its `built_sequences` gets a history.
    """

    def __init__(self, directory: Path, schema: Schema) -> None:
        self._columns = schema.built_sequences
        names = [field.column for field in schema.categorical]
        self._items = [names.index(column.items or "") for column in self._columns]
        self._logs = [
            HistoryLog(directory, f"history{number}", column.length) for number, column in enumerate(self._columns)
        ]

    @property
    def are_empty(self) -> bool:
        """Return True if the schema has no built histories."""
        return not self._logs

    def __enter__(self) -> Self:
        """Return the histories; leaving the context deletes the files."""
        return self

    def __exit__(self, *details: object) -> None:
        """Delete the files of the histories."""
        for log in self._logs:
            log.close()

    def append(self, batch: RawBatch, parts: NDArray[np.int8]) -> None:
        """Append the rows of a batch with the split of each row, int8 [rows]."""
        for number, (log, column, item) in enumerate(zip(self._logs, self._columns, self._items, strict=True)):
            assert batch.users is not None, "the source reads the columns named by `by`"
            assert batch.times is not None, "a history needs the time"
            everything = np.ones(len(batch.labels), bool)
            log.append(
                batch.users[number],
                batch.times,
                batch.columns.keys[item],
                is_kept=batch.main_labels > 0 if column.positives_only else everything,
                is_training=parts == 0,
            )

    def build(self) -> list[int]:
        """Build all histories, after the last batch is appended.

        Returns:
            For each built sequence, the number of training rows with an empty history.
        """
        for log in self._logs:
            log.build()
        return [log.empty_in_training for log in self._logs]

    def attach(self, batches: Iterable[SpilledBatch]) -> Iterator[SpilledBatch]:
        """Yield the batches in the order of `append`, with the built histories after the other multi-valued columns."""
        readers = [log.read() for log in self._logs]
        for batch in batches:
            bags = [*batch.columns.bags, *(next(reader) for reader in readers)]
            yield replace(batch, columns=replace(batch.columns, bags=bags))


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated ranges of integers with the given starts and lengths."""
    ends = lengths.cumsum()
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
