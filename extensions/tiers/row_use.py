"""Access frequency of rows as levels, by which a row cache decides in training which rows to evict.

The most frequent rows stay in the cache, as counted at ingestion (frequency-pinned rows: MTrainS, arXiv 2305.01515). An
epoch accesses rows in random order, so neither the last use of a row nor counts during training would add information.
And nothing has to be counted again after a resumption. Levels come from the statistics of the data and a sample of the
log.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader

LEVELS = 256  # fit one byte
LEVELS_AN_OCTAVE = 4
# Samples that are read, in parts spread evenly over the log: about a second for a long log.
SAMPLES, PART = 1 << 20, 1 << 12
# Largest gap to the access curve at which the first ids of a table still count as the most frequent ids.
TOLERANCE = 0.05


def use_levels(uses: np.ndarray) -> np.ndarray:
    """Return access levels of rows, with four levels per octave, comparable between tables.

    Args:
        uses: Mean number of accesses of each row per sample.

    Returns:
        Levels, uint8: the highest for one or more accesses per sample, 0 for a row that is never accessed.
    """
    octaves = np.log2(np.where(uses > 0, uses, 1.0))
    return np.where(uses > 0, np.clip(np.floor(LEVELS_AN_OCTAVE * octaves) + LEVELS - 1, 1, LEVELS - 1), 0).astype(
        np.uint8
    )


def row_levels(dataset: Dataset) -> np.ndarray:
    """Return the frequency levels of the rows of all tables, table after table.

    Ids of a vocabulary are ranks, and the statistics of ingestion state how often each id is looked up, however rare.
    If the first ids are not the most frequent ones, for instance after hashing, frequencies come from a sample of the
    log.

    Args:
        dataset: Data set, whose training part is sampled.

    Returns:
        uint8 `[rows of all tables]`.

    Raises:
        DataError: An array is missing or of another size than the description states.
    """
    curves = {field.name: field.access_curve for field in dataset.fields}
    owners = [field for field in dataset.features.categorical if field.table is None]
    looks = _ids_of_tables(dataset)
    return np.concatenate(
        [_levels(field.rows, curves.get(field.name, ()), *look) for field, look in zip(owners, looks, strict=True)]
    )


def _ids_of_tables(dataset: Dataset) -> Iterator[tuple[np.ndarray, int]]:
    """Yield for each table its ids in the sampled part of the log, and the number of samples."""
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
    """Return the frequency levels of the rows of a table, uint8 `[rows]`, from its access curve or sampled ids."""
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
    """Return True if the first ids, including id 0, get as many lookups as the access curve states for the top ids."""
    ordered = np.sort(ids)
    ends = [round(rows * share) for share, _ in curve]
    found = np.searchsorted(ordered, ends, side="right") / len(ids)  # of the ids 0 to `end`
    return bool((found >= np.array([lookups for _, lookups in curve]) - TOLERANCE).all())
