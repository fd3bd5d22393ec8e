"""Writers for the arrays of a data set, with memory for one batch only."""

import csv
import io
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shunter.engine.data.dataset import SPLITS
from shunter.errors import DataError
from shunter.ingestion.batch import Rejection
from shunter.ingestion.encoding.encoded import EncodedRows
from shunter.models.spec import Features


class NpyWriter:
    """Writer of an .npy file that grows by rows and gets its header with the final shape on `close`.

    With `first_row` the writer fills rows of a file that `reserve` has enlarged.
    """

    def __init__(
        self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = (), first_row: int | None = None
    ) -> None:
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self._rows = 0
        self._is_part = first_row is not None
        self._stream = path.open("r+b" if self._is_part else "wb")
        header = self._header()
        self._data_start = len(header)
        if first_row is None:
            self._stream.write(header)
        else:
            self._stream.seek(self._data_start + first_row * self._row_bytes)

    def append(self, rows: NDArray[Any]) -> None:
        """Append an array [rows, ...] of the type and row shape of the file."""
        assert rows.dtype == self._dtype
        assert rows.shape[1:] == self._row_shape
        # Written as bytes, since tofile would bypass the buffer of the stream.
        self._stream.write(np.ascontiguousarray(rows).data)
        self._rows += len(rows)

    def reserve(self, rows: int) -> None:
        """Enlarge the file to `rows` rows of zeros, which other writers fill."""
        self._stream.truncate(self._data_start + rows * self._row_bytes)
        self._rows = rows

    def close(self) -> None:
        """Close the file; a new file gets its final header first."""
        if not self._is_part:
            header = self._header()
            assert len(header) == self._data_start, "numpy left no room for the length in the header"
            self._stream.seek(0)
            self._stream.write(header)
        self._stream.close()

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self._row_shape, dtype=np.int64)) * self._dtype.itemsize

    def _header(self) -> bytes:
        header = io.BytesIO()
        described = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._rows, *self._row_shape),
        }
        np.lib.format.write_array_header_1_0(header, described)
        return header.getvalue()


@dataclass(frozen=True)
class WrittenRows:
    """Encoded rows of one split with labels and, if present, weights, times and user keys."""

    labels: NDArray[np.float32]
    rows: EncodedRows
    weights: NDArray[np.float32] | None = None
    times: NDArray[np.float64] | None = None
    users: NDArray[np.uint64] | None = None


@dataclass(frozen=True)
class Place:
    """Position in the arrays of a split, or their size.

    Attributes:
        rows: Number of rows before the position.
        bag_values: Number of values before the position in each multi-valued column, in the model's feature order.
    """

    rows: int
    bag_values: tuple[int, ...] = ()


class _BagFiles(NamedTuple):
    """Writers for the arrays of a multi-valued field in one split."""

    values: NpyWriter
    offsets: NpyWriter
    weights: NpyWriter | None

    @classmethod
    def open(cls, path: Path, *, is_weighted: bool, first: tuple[int, int] | None) -> Self:
        """Open the files of a field."""
        value, offset = (None, None) if first is None else first
        return cls(
            values=NpyWriter(path.with_name(f"{path.name}.values.npy"), np.int32, (), value),
            offsets=NpyWriter(path.with_name(f"{path.name}.offsets.npy"), np.int64, (), offset),
            weights=NpyWriter(path.with_name(f"{path.name}.weights.npy"), np.float32, (), value)
            if is_weighted
            else None,
        )


class SplitWriter:
    """Writer of the arrays of one split, in the layout of `shunter.engine.data.dataset`.

    Args:
        directory: Folder of the data set.
        split: Name of the split.
        features: Features of a row.
        is_weighted: Whether rows have weights.
        is_timed: Whether the times of the rows are stored.
        has_users: Whether rows have users; only the test split stores the user keys.
        place: First position to write in existing arrays; None for new arrays.
    """

    def __init__(
        self,
        directory: Path,
        split: str,
        features: Features,
        *,
        is_weighted: bool = False,
        is_timed: bool = False,
        has_users: bool = False,
        place: Place | None = None,
    ) -> None:
        prefix = directory / split
        single = sum(not feature.multi_valued for feature in features.categorical)
        bags = [index for index, feature in enumerate(features.categorical) if feature.multi_valued]
        tasks = (len(features.tasks),) if features.tasks else ()
        row = None if place is None else place.rows
        kinds: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {"label": (np.float32, tasks)}
        kinds |= {"weight": (np.float32, ())} if is_weighted else {}
        kinds |= {"time": (np.float64, ())} if is_timed else {}
        kinds |= {"user_key": (np.uint64, ())} if has_users and split == SPLITS[2] else {}
        kinds |= {"dense": (np.float32, (len(features.dense),))} if features.dense else {}
        kinds |= {"categorical": (np.int32, (single,))} if single else {}
        self._files = {
            name: NpyWriter(prefix.with_suffix(f".{name}.npy"), dtype, shape, row)
            for name, (dtype, shape) in kinds.items()
        }
        self._bag_ends = [0] * len(bags) if place is None else list(place.bag_values)
        self._bags = [
            _BagFiles.open(
                prefix.with_suffix(f".bag{index}"),
                is_weighted=features.categorical[index].is_weighted,
                first=None if row is None else (end, row + 1),
            )
            for index, end in zip(bags, self._bag_ends, strict=True)
        ]
        if place is None:
            for bag in self._bags:
                bag.offsets.append(np.zeros(1, np.int64))

    def reserve(self, size: Place) -> None:
        """Enlarge the arrays to `size`; other writers fill the arrays."""
        for file in self._files.values():
            file.reserve(size.rows)
        for bag, count in zip(self._bags, size.bag_values, strict=True):
            bag.values.reserve(count)
            bag.offsets.reserve(size.rows + 1)
            if bag.weights is not None:
                bag.weights.reserve(count)

    def append(self, written: WrittenRows) -> None:
        """Append encoded rows with their labels, weights, times and user keys."""
        rows = written.rows
        arrays = {"label": written.labels, "weight": written.weights, "time": written.times, "user_key": written.users}
        arrays |= {"dense": rows.dense, "categorical": rows.categorical}
        for name, file in self._files.items():
            array = arrays[name]
            assert array is not None
            file.append(array)
        for index, (files, bag) in enumerate(zip(self._bags, rows.bags, strict=True)):
            files.values.append(bag.values)
            files.offsets.append(self._bag_ends[index] + bag.offsets[1:])
            if files.weights is not None:
                assert bag.weights is not None
                files.weights.append(bag.weights)
            self._bag_ends[index] += int(bag.offsets[-1])

    def close(self) -> None:
        """Complete and close the array files of the split."""
        bags = (file for bag in self._bags for file in bag)
        for file in (*self._files.values(), *bags):
            if file is not None:
                file.close()


class DatasetWriter:
    """Writer of the arrays of all splits; a context manager that completes the files."""

    def __init__(
        self,
        directory: Path,
        features: Features,
        *,
        is_weighted: bool = False,
        timed: Collection[str] = (),
        has_users: bool = False,
        places: Sequence[Place] | None = None,
    ) -> None:
        """Open the files of every split; splits in `timed` store times, and `places` holds a `Place` for each split."""
        self._splits = [
            SplitWriter(
                directory,
                split,
                features,
                is_weighted=is_weighted,
                is_timed=split in timed,
                has_users=has_users,
                place=place,
            )
            for split, place in zip(SPLITS, places or [None] * len(SPLITS), strict=True)
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return the writer; leaving the context closes every file."""
        for split in self._splits:
            self._stack.callback(split.close)
        return self

    def __exit__(self, *details: object) -> None:
        """Close the array files of all splits."""
        self._stack.close()

    def reserve(self, sizes: Sequence[Place]) -> None:
        """Enlarge the arrays of each split to its size; other writers fill the arrays."""
        for split, size in zip(self._splits, sizes, strict=True):
            split.reserve(size)

    def append(self, parts: Sequence[WrittenRows]) -> None:
        """Append encoded rows to each split."""
        for split, written in zip(self._splits, parts, strict=True):
            split.append(written)


@dataclass
class Tally:
    """Counter of rejected rows by reason.

    Attributes:
        rows: Number of rejected rows.
    """

    rows: int = 0
    _reasons: Counter[str] = field(default_factory=Counter)
    _first: dict[str, Rejection] = field(default_factory=dict)

    def add(self, rejected: list[Rejection]) -> None:
        """Count rejected rows by their fault."""
        self.rows += len(rejected)
        for rejection in rejected:
            # Reasons are counted by column, without the values in the messages, which would be too many.
            kind = rejection.reason.split(" is ")[0]
            self._reasons[kind] += 1
            self._first.setdefault(kind, rejection)

    @property
    def first_fault(self) -> str | None:
        """Location and reason of the first row with the most frequent reason; None without rejected rows."""
        if not self.rows:
            return None
        first = self._first[self._reasons.most_common(1)[0][0]]
        return f"line {first.line} of {first.source}: {first.reason}"

    def check(self, good_rows: int, max_bad_share: float) -> None:
        """Raise if the share of rejected rows exceeds `max_bad_share`.

        Raises:
            DataError: Too many rows are rejected; the message names the most frequent reason and its first row.
        """
        share = self.rows / max(self.rows + good_rows, 1)
        if share <= max_bad_share:
            return
        count = self._reasons.most_common(1)[0][1]
        raise DataError(
            f"{self.rows} of {self.rows + good_rows} rows ({share:.1%}) cannot be read, more than the "
            f"permitted {max_bad_share:.1%}: fix them or raise --max-bad-share. {count} are like "
            f"{self.first_fault}."
        )


@dataclass
class Quarantine(Tally):
    """Counter that also writes a CSV file with source, line and reason of each rejected row."""

    path: Path = field(kw_only=True)

    def __post_init__(self) -> None:
        """Write the header of the quarantine file."""
        self._append([("source", "line", "reason")])

    def add(self, rejected: list[Rejection]) -> None:
        """Append rejected rows to the quarantine file."""
        if not rejected:
            return
        self._append([(rejection.source, rejection.line, rejection.reason) for rejection in rejected])
        super().add(rejected)

    def _append(self, rows: list[tuple[str, int | str, str]]) -> None:
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)
