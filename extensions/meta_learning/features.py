"""Meta-features of a data set: about two dozen figures from the training part, with the validation part for landmarks.

Simple, statistical and information-theoretic meta-features and landmarks, in the classification of Vanschoren,
"Meta-Learning: A Survey" (arXiv 1810.03548, table 1). They are chosen for click logs: few statistics of numbers, many
of ids and their repetition. No figure depends on the order of rows or on the numbering of ids.

At most `SAMPLE_ROWS` rows of a part are used, sampled with a seed and read from the memory-mapped arrays. A log of 40
million rows thus takes no more time and memory than a log of 50 thousand rows.
"""

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.extensions.meta_learning.landmarks import landmarks
from shunter.extensions.meta_learning.sample import Sample, read_sample

SAMPLE_ROWS = 50_000
TOP_SHARE = 0.01  # share of the distinct ids that counts as the most frequent ids
SEED = 0

MetaFeatures = dict[str, float]
"""Name and value, as logged below `meta.`; features that a data set lacks are missing, such as `bag_length`."""


def meta_features(dataset: Dataset, rows: int = SAMPLE_ROWS, seed: int = SEED) -> MetaFeatures:
    """Return the meta-features of a data set by name; takes some seconds at most.

    Args:
        dataset: Data set with its arrays; the test part is not read.
        rows: Largest number of rows used of each part.
        seed: Seed of the sampled rows.

    Raises:
        DataError: An array cannot be read.
    """
    train = read_sample(dataset, "train", rows, seed)
    validation = read_sample(dataset, "validation", rows, seed)
    return {
        **_sizes(dataset),
        **_repetition(dataset, train, validation),
        **_numbers(dataset, train),
        **_learnable(dataset, train, validation),
    }


def _learnable(dataset: Dataset, train: Sample, validation: Sample) -> MetaFeatures:
    """Return the base rate and the landmarks; empty for a numeric label."""
    if dataset.features.number is not None:
        return {}
    found = landmarks(train, validation)
    return {
        "base_rate": dataset.splits["train"].base_rate,
        **{f"landmark_{name}": value for name, value in found.items()},
    }


def _sizes(dataset: Dataset) -> MetaFeatures:
    """Return the numbers of rows, fields and table rows, and the share of missing values, as ingestion counted them."""
    categorical = dataset.features.categorical
    table_rows = np.array([field.rows for field in categorical if field.table is None], dtype=np.float64)
    train = dataset.splits["train"]
    return {
        "rows": float(train.rows),
        "dense_fields": float(len(dataset.features.dense)),
        "categorical_fields": float(len(categorical)),
        "multi_valued_fields": float(sum(field.multi_valued for field in categorical)),
        "table_rows_sum": float(table_rows.sum()),
        "table_rows_max": float(table_rows.max()),
        "table_rows_geometric_mean": float(np.exp(np.log(table_rows).mean())),
        "rows_per_table_row": train.rows / float(table_rows.sum()),
        "missing_share": float(np.mean([field.missing_share for field in dataset.fields])),
    }


def _repetition(dataset: Dataset, train: Sample, validation: Sample) -> MetaFeatures:
    """Return measures of the repetition of ids: means over the categorical fields with any ids."""
    by_field = [_skew(ids, later) for ids, later in zip(train.ids, validation.ids, strict=True) if len(ids)]
    means = {name: float(np.mean([field[name] for field in by_field])) for name in by_field[0]} if by_field else {}
    bags = [
        len(ids) / train.rows
        for field, ids in zip(dataset.features.categorical, train.ids, strict=True)
        if field.multi_valued
    ]
    return means | ({"bag_length": float(np.mean(bags))} if bags else {})


def _skew(ids: np.ndarray, later: np.ndarray) -> MetaFeatures:
    """Return for one field the concentration of its lookups, and the share of later lookups without a trained id.

    A lookup without a trained id has an id that is absent from the training part, or 0 (unknown, rare or missing).
    """
    seen, counts = np.unique(ids, return_counts=True)
    counts = np.sort(counts)[::-1].astype(np.float64)
    shares = counts / counts.sum()
    top = max(1, round(TOP_SHARE * len(counts)))
    return {
        "top_percent_share": float(shares[:top].sum()),
        # Entropy relative to the largest entropy for this number of ids; a single id has no entropy.
        "entropy_share": float(-(shares * np.log(shares)).sum() / np.log(len(shares))) if len(shares) > 1 else 1.0,
        "zipf_exponent": _zipf_exponent(counts),
        "unseen_share": float(1 - np.isin(later, seen[seen > 0]).mean()) if len(later) else 0.0,
    }


def _zipf_exponent(counts: np.ndarray) -> float:
    """Return the slope of log frequency over log rank, weighted by frequency; 0 for one id."""
    if len(counts) < 2:
        return 0.0
    ranks, logs = np.log(np.arange(1, len(counts) + 1)), np.log(counts)
    centred = ranks - np.average(ranks, weights=counts)
    return float(-np.average(centred * logs, weights=counts) / np.average(centred**2, weights=counts))


def _numbers(dataset: Dataset, train: Sample) -> MetaFeatures:
    """Return measures of the distributions of the dense columns, after the transformation for models."""
    if not dataset.features.dense:
        return {}
    deviation = train.dense.std(axis=0)
    scaled = (train.dense - train.dense.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    # Share of the most common value, which mostly stands for missing values or zero.
    commonest = [np.unique(column, return_counts=True)[1].max() / train.rows for column in train.dense.T]
    return {
        "dense_skewness": float(np.abs((scaled**3).mean(axis=0)).mean()),
        "dense_commonest_share": float(np.mean(commonest)),
        "dense_correlation": _mean_correlation(scaled),
    }


def _mean_correlation(scaled: np.ndarray) -> float:
    """Return the mean absolute correlation of two different columns; 0 for a single column."""
    columns = scaled.shape[1]
    if columns < 2:
        return 0.0
    matrix = np.abs(scaled.T @ scaled / len(scaled))
    return float((matrix.sum() - np.trace(matrix)) / (columns * (columns - 1)))
