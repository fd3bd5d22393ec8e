"""Histories out of a log of (user or session, item, time): for each row, what the same user had before it.

A row's history holds rows of strictly earlier time only: neither itself, nor rows of the same moment, nor later ones.

The rows may come in any order, so they are scattered over parts of a temporary file by a hash of the user, a part at a
time is sorted by user and time, and its histories are written down in the order of the rows. Memory holds one part: a
64th of the log where users are many, and all the rows of one user where they are few.
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
    """Where the history of each event lies among the kept ones.

    Args:
        events: Sorted by user and time.
        length: Most items of a history.

    Returns:
        First and end position of each event's history in the events where `is_kept`.
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
    # Rows without a user are nobody's, each for itself.
    return np.where(events["user"] == MISSING_KEY, end, first), end


class HistoryLog:
    """The history of every row of one log; rows are appended in batches, whose histories are then read in their order.

    Args:
        directory: Folder of the two temporary files.
        name: Beginning of their names.
        length: Most items of a history, the latest.

    Attributes:
        empty_in_training: Training rows without any history, known once all are built.
    """

    def __init__(self, directory: Path, name: str, length: int) -> None:
        self._length = length
        self._paths = [directory / f"{name}.{kind}" for kind in ("events", "histories")]
        self._events, self._histories = (path.open("w+b") for path in self._paths)
        # Of each batch: where its events begin, and where those of each part do among them.
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
        """Add the rows of one batch, each `[rows]`.

        Args:
            users: Whose history; `MISSING_KEY` has none.
            times: When.
            items: What; `MISSING_KEY` enters no history.
            is_kept: Whether the item enters later histories.
            is_training: Whether the row is trained on.
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
        """Write the histories of one part after the other; all rows have been appended."""
        for part in range(PARTS):
            self._part_starts.append(self._histories.tell())
            self._build_part(part, self._read_part(part))

    def read(self) -> Iterator[Bag]:
        """The histories of each batch that was appended, the oldest item first."""
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
            yield _in_order(found["row"] - first_row, found["length"], np.concatenate(keys))
            first_row += len(found)

    def close(self) -> None:
        """Delete the temporary files."""
        for stream, path in zip((self._events, self._histories), self._paths, strict=True):
            stream.close()
            path.unlink(missing_ok=True)

    def _read_part(self, part: int) -> Events:
        pieces = [np.empty(0, _EVENT)]
        for start, bounds in self._batches:
            self._events.seek(start + int(bounds[part]) * _EVENT.itemsize)
            size = int(bounds[part + 1] - bounds[part]) * _EVENT.itemsize
            pieces.append(np.frombuffer(self._events.read(size), _EVENT))
        return np.concatenate(pieces)

    def _build_part(self, part: int, events: Events) -> None:
        """Write, for each batch, the histories of its rows in this part and then what they hold."""
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
    """All histories that the schema of a log asks for; a context manager that deletes their temporary files.

    Args:
        directory: Folder of the temporary files.
        schema: Its `built_sequences`.
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
        """Whether the schema asks for none."""
        return not self._logs

    def __enter__(self) -> Self:
        """Delete the files on the way out."""
        return self

    def __exit__(self, *details: object) -> None:
        """Delete the files."""
        for log in self._logs:
            log.close()

    def append(self, batch: RawBatch, parts: NDArray[np.int8]) -> None:
        """Add the rows of a batch, and the split of each."""
        for number, (log, column, item) in enumerate(zip(self._logs, self._columns, self._items, strict=True)):
            assert batch.users is not None, "the source reads the columns that `by` names"
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
        """Build all histories, when the last batch has been appended.

        Returns:
            Of each, the training rows without one.
        """
        for log in self._logs:
            log.build()
        return [log.empty_in_training for log in self._logs]

    def attach(self, batches: Iterable[SpilledBatch]) -> Iterator[SpilledBatch]:
        """Add the histories to the same batches, behind their other bags."""
        readers = [log.read() for log in self._logs]
        for batch in batches:
            bags = [*batch.columns.bags, *(next(reader) for reader in readers)]
            yield replace(batch, columns=replace(batch.columns, bags=bags))


def _in_order(rows: NDArray[np.int64], lengths: NDArray[np.int64], keys: NDArray[np.uint64]) -> Bag:
    """Bags by row number, from bags in any order."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    offsets[1:][rows] = lengths
    offsets = np.cumsum(offsets)
    ordered = np.empty_like(keys)
    ordered[_ranges(offsets[rows], lengths)] = keys
    return Bag(ordered, offsets)


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each start on, as many as its length, behind each other."""
    ends = lengths.cumsum()
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
