"""Small data sets in the layout that ingestion writes, random but learnable."""

from pathlib import Path

import numpy as np

from shunter.engine.data.dataset import SPLITS, Dataset, FieldStatistics, SplitStatistics
from shunter.models.spec import CategoricalFeature, Features


def write_dataset(
    directory: Path, rows: int = 2_000, seed: int = 0, *, dense: int = 2, single: int = 3, bags: int = 1, ids: int = 50
) -> Dataset:
    """Write a data set whose labels follow from hidden effects of the ids and the dense columns.

    The single-valued fields come first (`single0`, ...), then the multi-valued (`bag0`, ...) with 0 to 4 ids a sample.
    Splits are 70 %, 15 % and 15 % of `rows`; ids are Zipf-like.
    """
    directory.mkdir(parents=True, exist_ok=True)
    features = Features(
        dense=tuple(f"dense{i}" for i in range(dense)),
        categorical=(
            *(CategoricalFeature(name=f"single{i}", rows=ids + i) for i in range(single)),
            *(CategoricalFeature(name=f"bag{i}", rows=ids + i, multi_valued=True) for i in range(bags)),
        ),
    )
    random = np.random.default_rng(seed)
    effects = [random.normal(0, 1.5, field.rows) for field in features.categorical]
    slopes = random.normal(0, 1, dense)
    statistics = {}
    for split, share in zip(SPLITS, (0.7, 0.15, 0.15), strict=True):
        labels = _write_split(directory / split, int(rows * share), random, features, (effects, slopes))
        statistics[split] = SplitStatistics(rows=len(labels), positives=int(labels.sum()))
    dataset = Dataset(
        name="synthetic",
        directory=directory,
        fingerprint=f"synthetic-{rows}-{seed}-{dense}-{single}-{bags}-{ids}",
        features=features,
        splits=statistics,
        split_by="hash",
        fields=(
            *(FieldStatistics(name=name, kind="numeric", cardinality=0, missing_share=0.0) for name in features.dense),
            *(
                FieldStatistics(
                    name=field.name,
                    kind="multi_valued" if field.multi_valued else "categorical",
                    cardinality=field.rows,
                    missing_share=0.0,
                )
                for field in features.categorical
            ),
        ),
        quarantined_rows=0,
    )
    dataset.save()
    return dataset


def _write_split(
    prefix: Path,
    rows: int,
    random: np.random.Generator,
    features: Features,
    hidden: tuple[list[np.ndarray], np.ndarray],
) -> np.ndarray:
    effects, slopes = hidden
    logits = np.zeros(rows)
    columns = []
    for position, field in enumerate(features.categorical):
        lengths = random.integers(0, 5, rows) if field.multi_valued else np.ones(rows, dtype=np.int64)
        values = np.minimum(random.zipf(1.3, lengths.sum()) - 1, field.rows - 1).astype(np.int32)
        np.add.at(logits, np.repeat(np.arange(rows), lengths), effects[position][values])
        if field.multi_valued:
            np.save(prefix.with_name(f"{prefix.name}.bag{position}.values.npy"), values)
            offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
            np.save(prefix.with_name(f"{prefix.name}.bag{position}.offsets.npy"), offsets)
        else:
            columns.append(values)
    if columns:
        np.save(prefix.with_name(f"{prefix.name}.categorical.npy"), np.stack(columns, axis=1))
    if features.dense:
        dense = random.normal(0, 1, (rows, len(slopes))).astype(np.float32)
        np.save(prefix.with_name(f"{prefix.name}.dense.npy"), dense)
        logits += dense @ slopes
    labels = (random.random(rows) < 1 / (1 + np.exp(-(logits - np.median(logits))))).astype(np.float32)
    np.save(prefix.with_name(f"{prefix.name}.label.npy"), labels)
    return labels


def memory_of_rows(rows: int, dim: int, dataset: Dataset) -> int:
    """Bytes with which so many rows of the tables of a data set lie in memory, and the others in a file."""
    from shunter.extensions.tiers.slots import BYTES_A_ROW, BYTES_A_SLOT

    return sum(dataset.features.table_rows) * BYTES_A_ROW + rows * ((dim + 1) * 4 + BYTES_A_SLOT)
