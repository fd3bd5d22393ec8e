"""Memory traffic of each embedding table in training, from the statistics of the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.models.spec import ModelSpec

FLOAT_BYTES = 4
_SURE = 1 - 1e-12  # a chance whose complement has a logarithm


@dataclass(frozen=True)
class Segment:
    """Ids that are assumed to be looked up equally often.

    Attributes:
        rows: Number of rows.
        share: Share of the table's lookups that goes to each of these rows.
    """

    rows: float
    share: float


@dataclass(frozen=True)
class TableDemand:
    """Embedding table with the statistics of its lookups.

    Attributes:
        name: Field that owns the table.
        rows: Number of rows.
        width: Number of floats in a row.
        lookups_per_sample: Lookups in the table per sample, summed over the fields that share the table.
        segments: Distribution of the lookups over the ids, the most frequent ids first.
    """

    name: str
    rows: float
    width: int
    lookups_per_sample: float
    segments: tuple[Segment, ...]

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row and of its row-wise Adagrad state."""
        return (self.width + 1) * FLOAT_BYTES

    @property
    def total_bytes(self) -> float:
        """Return the bytes of the whole table."""
        return self.rows * self.row_bytes

    def scaled(self, factor: float) -> "TableDemand":
        """Return the table with `factor` times the rows; the lookups of each row are divided by `factor`."""
        segments = tuple(Segment(one.rows * factor, one.share / factor) for one in self.segments)
        return replace(self, rows=self.rows * factor, segments=segments)

    def block(self, first: int, rows: int) -> "TableDemand":
        """Return the demand of `rows` rows from row `first` on; rows are ordered by descending frequency."""
        ends = np.cumsum([one.rows for one in self.segments])
        kept = [
            Segment(min(end, first + rows) - max(end - one.rows, first), one.share)
            for one, end in zip(self.segments, ends.tolist(), strict=True)
        ]
        return replace(self, rows=float(rows), segments=tuple(one for one in kept if one.rows > 0))

    def chances(self, samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Return each segment's number of rows, and the probability that a batch looks up a given row of it."""
        rows = np.array([one.rows for one in self.segments])
        shares = np.array([one.share for one in self.segments])
        lookups = self.lookups_per_sample * samples
        chances = -np.expm1(lookups * np.log1p(-np.minimum(shares, _SURE)))
        return rows, np.minimum(chances, _SURE)

    def uses(self) -> np.ndarray:
        """Mean number of lookups of one row per sample, for each segment."""
        return self.lookups_per_sample * np.array([one.share for one in self.segments])

    def distinct_rows(self, samples: int) -> float:
        """Return the mean number of distinct rows in a batch."""
        rows, chances = self.chances(samples)
        return float(rows @ chances)

    def bytes_per_sample(self, samples: int) -> tuple[float, float]:
        """Return the bytes read and the bytes written per sample, for a batch size of `samples`.

        The forward pass reads every looked-up row. The update reads and writes each distinct row once, with its state.
        """
        updated = self.distinct_rows(samples) / samples * self.row_bytes
        return self.lookups_per_sample * self.width * FLOAT_BYTES + updated, updated


def demands(dataset: Dataset, spec: ModelSpec, lookups: Sequence[float]) -> list[TableDemand]:
    """Return the demand of each table of a model on a data set.

    Args:
        dataset: Data set whose statistics are used.
        spec: The model.
        lookups: Number of ids per sample in each field.
    """
    features = dataset.features
    statistics = {field.name: field for field in dataset.fields}
    shapes = spec.tables(features)
    found: list[TableDemand] = []
    for table, shape in enumerate(shapes):
        fields = [place for place, of in enumerate(features.table_of) if of == table]
        owner = features.categorical[fields[0]].name
        curve = statistics[owner].access_curve or ((1.0, 1.0),)
        per_sample = sum(lookups[place] for place in fields)
        found.append(TableDemand(owner, shape.rows, shape.width, per_sample, segments_of(curve, shape.rows)))
    return found


def segments_of(curve: Sequence[tuple[float, float]], rows: float) -> tuple[Segment, ...]:
    """Convert an access curve, given as pairs (share of ids, share of lookups), to segments."""
    segments: list[Segment] = []
    for (ids_before, before), (ids, lookups) in pairwise([(0.0, 0.0), *curve]):
        count = (ids - ids_before) * rows
        if count > 0:
            segments.append(Segment(count, max(lookups - before, 0.0) / count))
    return tuple(segments)
