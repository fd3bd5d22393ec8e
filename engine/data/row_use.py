"""How often a sample asks for each row of the embedding tables, from the statistics of the data and a look at them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.models.embeddings.row_use import use_levels

# Samples that are looked at, in parts that lie evenly over the log: a second's work where the log is long.
SAMPLES, PART = 1 << 20, 1 << 12
# By how much the first ids of a table may fall behind its access curve and still be taken for the most frequent ones.
TOLERANCE = 0.05


def row_levels(dataset: Dataset) -> np.ndarray:
    """Levels of the rows of all tables, one below the other (`shunter.models.embeddings.row_use`).

    Ids of a vocabulary are ranks, and the statistics of ingestion tell how often each is asked for, however seldom.
    Where the first ids are not those that are asked for most, as behind a hash, rows count as often as a sample of the
    log has them.

    Args:
        dataset: Whose training part is looked at.

    Returns:
        uint8 `[rows of all tables]`.

    Raises:
        DataError: An array is missing or of another size than the description says.
    """
    curves = {field.name: field.access_curve for field in dataset.fields}
    owners = [field for field in dataset.features.categorical if field.table is None]
    looks = _ids_of_tables(dataset)
    return np.concatenate(
        [_levels(field.rows, curves.get(field.name, ()), *look) for field, look in zip(owners, looks, strict=True)]
    )


def _ids_of_tables(dataset: Dataset) -> Iterator[tuple[np.ndarray, int]]:
    """Ids of each table in the samples that are looked at, and how many samples these are."""
    loader = BatchLoader(dataset, "train", PART)
    parts = -(-loader.rows // PART)
    chosen = np.unique(np.linspace(0, parts - 1, min(parts, SAMPLES // PART)).round().astype(int)).tolist()
    batches = [loader.read(slice(part * PART, min((part + 1) * PART, loader.rows))) for part in chosen]
    samples = sum(len(batch.labels) for batch in batches)
    table_of = dataset.features.table_of
    for table in range(len(set(table_of))):
        fields = [place for place, of in enumerate(table_of) if of == table]
        found = []
        for batch in batches:
            bounds = batch.offsets[:: len(batch.labels)].tolist()
            found.append(batch.values[bounds[fields[0]] : bounds[fields[-1] + 1]].numpy())
        yield np.concatenate(found), samples


def _levels(rows: int, curve: Sequence[tuple[float, float]], ids: np.ndarray, samples: int) -> np.ndarray:
    """Levels of the rows of a table.

    Args:
        rows: How many it has.
        curve: Its access curve, the most frequent ids first.
        ids: Ids in the samples that were looked at.
        samples: How many samples these are.
    """
    if len(ids) and curve and _are_ranks(rows, curve, ids):
        points = [(0.0, 0.0), *curve]
        ends = np.round([rows * share for share, _ in points]).astype(int)
        counts = np.diff(ends)
        shares = np.array([lookups - before for (_, before), (_, lookups) in pairwise(points)])
        return np.repeat(use_levels(shares / np.maximum(counts, 1) * len(ids) / samples), counts)
    levels = np.zeros(rows, dtype=np.uint8)
    seen, counts = np.unique(ids, return_counts=True)
    levels[seen] = use_levels(counts / samples)
    return levels


def _are_ranks(rows: int, curve: Sequence[tuple[float, float]], ids: np.ndarray) -> bool:
    """Whether the first ids get the lookups that the most frequent ones do; id 0, of unknown values, is no rank."""
    ordered = np.sort(ids)
    ends = [round(rows * share) for share, _ in curve]
    found = np.searchsorted(ordered, ends, side="right") / len(ids)  # of the ids 0 to `end`
    return bool((found >= np.array([lookups for _, lookups in curve]) - TOLERANCE).all())
