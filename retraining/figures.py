"""Statistics of one day, so that days can be compared without reading them again."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from shunter.checked_json import read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.frozen import Frozen
from shunter.ingestion.sources.days import DayLog

FORMAT = 1

SIZE = 1_024
MOST_SAMPLED = 4_096
LEVELS = tuple(np.linspace(0, 1, 101).tolist())
_HASHES = 2.0**64


class KeySketch:
    """Sample of the values with the smallest hashes, with the count of each value.

    For a sample of k values with the largest hash h, the number of distinct values is about (k - 1) * 2**64 / h. This
    is the KMV estimator (Bar-Yossef et al., "Counting distinct elements in a data stream", RANDOM 2002), in the
    unbiased form of Beyer et al., SIGMOD 2007. Its relative error is near 1 / sqrt(k - 2), or 3 % for this sample.
    Fewer values than k are counted exactly. Hashes are stored instead of values, since values are only compared.

    Attributes:
        values: Number of added values, without missing values.
        keys: Hashes, uint64, ascending.
        counts: Number of occurrences of each hash, int64.
        complete: Whether every added value is in the sample.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self.values = 0
        self.keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.counts: NDArray[np.int64] = np.empty(0, np.int64)
        self.complete = True

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Add the keys of a batch of rows; key 0 is a missing value."""
        keys = keys[keys != 0]
        if not len(keys):
            return
        self.values += len(keys)
        hashed, counts = np.unique(_mix(keys), return_counts=True)
        merged, places = np.unique(np.concatenate([self.keys, hashed]), return_inverse=True)
        # A dropped value has a hash above all remaining hashes, so it is never added again.
        totals = np.bincount(places, weights=np.concatenate([self.counts, counts])).astype(np.int64)
        self.complete = self.complete and len(merged) <= self._size
        self.keys, self.counts = merged[: self._size], totals[: self._size]

    @property
    def distinct(self) -> float:
        """Estimated number of distinct values of the column."""
        if self.complete:
            return float(len(self.keys))
        return (self._size - 1) * _HASHES / float(self.keys[-1])


class ValueSample:
    """Sample of a day's numbers, from the rows with the smallest hashes, for the estimation of quantiles.

    Attributes:
        values: Sampled numbers, float64.
    """

    def __init__(self, size: int = MOST_SAMPLED) -> None:
        self._size = size
        self._rows = 0
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.values: NDArray[np.float64] = np.empty(0)

    def add(self, values: NDArray[Any]) -> None:
        """Add the numbers of a batch of rows; numbers that are not finite are ignored."""
        values = values[np.isfinite(values)]
        rows = np.arange(self._rows + 1, self._rows + 1 + len(values), dtype=np.uint64)
        self._rows += len(values)
        hashes, values = np.concatenate([self._hashes, _mix(rows)]), np.concatenate([self.values, values])
        if len(hashes) > self._size:
            kept = np.argpartition(hashes, self._size)[: self._size]
            hashes, values = hashes[kept], values[kept]
        self._hashes, self.values = hashes, values

    def quantiles(self) -> tuple[float, ...]:
        """Return the quantiles at `LEVELS`, without interpolation; empty if the sample has no numbers."""
        if not len(self.values):
            return ()
        return tuple(np.quantile(self.values, LEVELS, method="inverted_cdf").tolist())


class FieldFigures(Frozen):
    """Statistics of one field on one day.

    Attributes:
        values: Number of values of all rows; a row may have several values.
        missing_share: Share of rows without a value.
        distinct: Estimated number of distinct values; exact below `SIZE`; 0 for a numeric field.
        keys: Sampled hashes, ascending; see `KeySketch`.
        counts: Number of occurrences of each hash.
        complete: Whether the sample contains all values.
        quantiles: Quantiles at `LEVELS`: of the numbers of a numeric field, or of the number of values in the nonempty
            rows of a multi-valued field. Empty for single-valued fields and in statistics of earlier versions.
        sampled: Size of the sample for the quantiles.
    """

    values: int
    missing_share: float
    distinct: float = 0.0
    keys: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    complete: bool = True
    quantiles: tuple[float, ...] = ()
    sampled: int = 0


class DayFigures(Frozen):
    """Statistics of one day.

    Attributes:
        day: Date.
        rows: Number of readable rows.
        rejected: Number of unreadable rows.
        positives: Number of rows with a positive label.
        first_rejection: First unreadable row, and the reason; empty if all rows are readable.
        fields: Statistics of each feature by name, and of a numeric label.
        number: Name of a numeric label, whose days have no positives; empty for click labels.
    """

    format: int = FORMAT
    day: date
    rows: int
    rejected: int
    positives: int
    first_rejection: str = ""
    fields: dict[str, FieldFigures]
    number: str = ""

    @property
    def base_rate(self) -> float:
        """Share of positive labels of the day."""
        return self.positives / self.rows if self.rows else 0.0

    @property
    def rejected_share(self) -> float:
        """Share of unreadable rows of the day."""
        return self.rejected / max(self.rows + self.rejected, 1)


def figures_of(log: DayLog, digest: str, figures_folder: Path) -> DayFigures:
    """Compute the statistics of a day, or read those of an earlier nightly run.

    Args:
        log: Log of the day.
        digest: Digest of the input of the statistics: the bytes of the files, and the schema.
        figures_folder: Folder of stored statistics.

    Raises:
        DataError: A file cannot be read.
    """
    path = figures_folder / f"{digest[:32]}.json"
    known = read_or_quarantine(path, _parse_figures)
    if known is not None and known.format == FORMAT and known.day == log.day:
        return known
    found = describe(log)
    figures_folder.mkdir(parents=True, exist_ok=True)
    write_json(path, found.model_dump_json())
    return found


def _parse_figures(text: bytes) -> DayFigures | None:
    """Parse stored statistics; return None for statistics of another version."""
    try:
        return DayFigures.model_validate_json(text)
    except ValidationError:
        return None


def describe(log: DayLog) -> DayFigures:
    """Read a day once, and compute its statistics.

    Raises:
        DataError: A file cannot be read.
    """
    schema = log.schema
    rows = rejected = positives = 0
    first = ""
    present = np.zeros(len(schema.numeric), np.int64)
    single = [KeySketch() for _ in schema.categorical]
    multi = [KeySketch() for _ in schema.multi_valued]
    filled = np.zeros(len(schema.multi_valued), np.int64)
    number = schema.label.column if schema.label.loss is not None else ""
    labels = ValueSample()
    numbers, lengths = [ValueSample() for _ in schema.numeric], [ValueSample() for _ in schema.multi_valued]
    for batch in log.batches():
        columns = batch.columns
        rows += columns.rows
        if number:
            labels.add(batch.labels)
        elif columns.rows:
            positives += int(batch.labels.reshape(columns.rows, -1)[:, 0].sum())
        rejected += len(batch.rejected)
        if batch.rejected and not first:
            first = f"line {batch.rejected[0].line} of {batch.rejected[0].source}: {batch.rejected[0].reason}"
        present += (~np.isnan(columns.numeric)).sum(axis=1)
        for sample, values in zip(numbers, columns.numeric, strict=True):
            sample.add(values)
        for sketch, keys in zip(single, columns.keys, strict=True):
            sketch.add(keys)
        for index, (sketch, bag) in enumerate(zip(multi, columns.bags, strict=True)):
            sketch.add(bag.keys)
            in_row = np.diff(bag.offsets)
            lengths[index].add(in_row[in_row > 0])
            filled[index] += int((in_row > 0).sum())
    fields: dict[str, FieldFigures] = {}
    for name, there, sample in zip(schema.numeric, present, numbers, strict=True):
        fields[name] = _field(KeySketch(), 1 - int(there) / max(rows, 1), sample, values=rows)
    for field, sketch in zip(schema.categorical, single, strict=True):
        fields[field.field] = _field(sketch, 1 - sketch.values / max(rows, 1))
    for field, sketch, there, sample in zip(schema.multi_valued, multi, filled, lengths, strict=True):
        fields[field.column] = _field(sketch, 1 - int(there) / max(rows, 1), sample)
    if number:
        fields[number] = _field(KeySketch(), 0.0, labels, values=rows)
    counted = {"rows": rows, "rejected": rejected, "positives": positives, "first_rejection": first}
    return DayFigures(day=log.day, **counted, fields=fields, number=number)


def _field(
    sketch: KeySketch, missing_share: float, sample: ValueSample | None = None, values: int | None = None
) -> FieldFigures:
    return FieldFigures(
        values=sketch.values if values is None else values,
        missing_share=missing_share,
        distinct=sketch.distinct,
        keys=tuple(sketch.keys.tolist()),
        counts=tuple(sketch.counts.tolist()),
        complete=sketch.complete,
        quantiles=() if sample is None else sample.quantiles(),
        sampled=0 if sample is None else len(sample.values),
    )


def new_share(field: FieldFigures, others: Sequence[FieldFigures]) -> float | None:
    """Return the share of a day's values that no other day has, estimated from the sampled values of all days.

    Values are sampled by hash. Up to the largest hash that all samples reach, a value that is sampled on one day is
    therefore sampled on every day on which it occurs.

    Returns:
        Share between 0 and 1; None if there are no values to compare.
    """
    others = [other for other in others if other.values]
    if not field.keys or not others:
        return None
    reach = min((sketch.keys[-1] for sketch in (field, *others) if not sketch.complete), default=None)
    keys, counts = np.array(field.keys, np.uint64), np.array(field.counts)
    if reach is not None:
        compared = keys <= np.uint64(reach)
        keys, counts = keys[compared], counts[compared]
    if not counts.sum():
        return None
    known = np.unique(np.concatenate([np.array(other.keys, np.uint64) for other in others]))
    return float(counts[~np.isin(keys, known)].sum() / counts.sum())


def _mix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of 64-bit values with the finaliser of MurmurHash3 (Appleby), which is one-to-one."""
    keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return keys ^ (keys >> np.uint64(33))
