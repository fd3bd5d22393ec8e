"""Meta-features of a data set: about two dozen figures from the training part, with the validation part for landmarks.

Simple, statistical and information-theoretic meta-features and landmarks, in the classification of Vanschoren,
"Meta-Learning: A Survey" (arXiv 1810.03548, table 1). They are chosen for click logs: few statistics of numbers, many
of ids and their repetition. No figure depends on the order of rows or on the numbering of ids.

Landmarks are the quality of cheap learners, which shows how much can be learned and the risk of overfitting
(Pfahringer, Bensusan and Giraud-Carrier, "Meta-Learning by Landmarking Various Learning Algorithms", ICML 2000). All
learners are convex or closed-form.

The similarity of data sets is a distance between their meta-features.

At most `SAMPLE_ROWS` rows of a part are used, sampled with a seed and read from the memory-mapped arrays. A log of 40
million rows thus takes no more time and memory than a log of 50 thousand rows.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.metrics import area_under_roc, compute_metrics

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Transformation and unit of each meta-feature. The units are fixed instead of computed from past data sets: there are
# few of them, often similar, and a distance between two data sets should not depend on a third data set.
# Amounts are compared by their logarithm, with a unit of a factor of ten, and rates by their log odds. The units of the
# landmarks are differences that separate data sets with different best settings.
Scale = tuple[Callable[[float], float], float]
FARTHEST = 3.0  # upper bound for the difference of one meta-feature, in units
SAMPLE_ROWS = 50_000
TOP_SHARE = 0.01  # share of the distinct ids that counts as the most frequent ids
SEED = 0
MOST_ROWS = 20_000  # largest number of rows for the logistic regressions
PRIOR_ROWS = 10.0  # weight of the base rate in the rate of an id, as a number of rows
PENALTIES = {"logistic_ne": 0.1, "free_logistic_ne": 10.0}  # inverse strength of the L2 penalty, as scikit-learn's C
MOST_ITERATIONS = 60
LARGEST_NE = 2.0  # upper bound: larger values are all equally bad


def _log(value: float) -> float:
    return math.log10(max(value, 1e-6))


def _log_of_count(value: float) -> float:
    return math.log2(1 + max(value, 0.0))


def _logit(value: float) -> float:
    value = min(max(value, 1e-6), 1 - 1e-6)
    return math.log(value / (1 - value))


SCALES: dict[str, Scale] = {
    "rows": (_log, 1.0),
    "base_rate": (_logit, 2.0),
    "dense_fields": (_log_of_count, 2.0),
    "categorical_fields": (_log_of_count, 2.0),
    "multi_valued_fields": (_log_of_count, 2.0),
    "table_rows_sum": (_log, 1.0),
    "table_rows_max": (_log, 1.0),
    "table_rows_geometric_mean": (_log, 1.0),
    "rows_per_table_row": (_log, 1.0),
    "missing_share": (float, 0.2),
    "top_percent_share": (float, 0.2),
    "entropy_share": (float, 0.2),
    "zipf_exponent": (float, 0.5),
    "unseen_share": (float, 0.2),
    "bag_length": (_log_of_count, 2.0),
    "dense_skewness": (_log_of_count, 1.0),
    "dense_commonest_share": (float, 0.2),
    "dense_correlation": (float, 0.2),
    "landmark_field_ne": (float, 0.1),
    "landmark_bayes_auc": (float, 0.1),
    "landmark_logistic_ne": (float, 0.1),
    "landmark_free_logistic_ne": (float, 0.1),
}


def distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the root mean square of the differences in units of `SCALES`; 0 between equal data sets.

    A meta-feature that only one data set has counts as one unit. Meta-features that both data sets lack or that are NaN
    are ignored. The distance is infinite if no meta-features can be compared.
    """
    differences, in_common = [], 0
    for name, (scaled, unit) in SCALES.items():
        known = [values[name] for values in (first, second) if math.isfinite(values.get(name, math.nan))]
        if len(known) == 2:
            in_common += 1
            differences.append(min(abs(scaled(known[0]) - scaled(known[1])) / unit, FARTHEST))
        elif known:
            differences.append(1.0)
    if not in_common:
        return math.inf
    return math.sqrt(sum(difference**2 for difference in differences) / len(differences))


MetaFeatures = dict[str, float]
"""Name and value, as logged below `meta.`; features that a data set lacks are missing, such as `bag_length`."""


@dataclass(frozen=True)
class Sample:
    """Sampled rows of one part.

    Attributes:
        labels: 0 or 1, float64 `[rows]`; the main label if there are several tasks.
        dense: float64 `[rows, dense features]`.
        ids: Ids of each categorical field, int64, concatenated over the rows.
        rows_of: Row index of each id of each categorical field, int64, ascending.
    """

    labels: np.ndarray
    dense: np.ndarray
    ids: tuple[np.ndarray, ...]
    rows_of: tuple[np.ndarray, ...]

    @property
    def rows(self) -> int:
        """Number of rows of the sample."""
        return len(self.labels)


def read_sample(dataset: Dataset, part: Literal["train", "validation"], rows: int, seed: int) -> Sample:
    """Read all rows of a part, or a random sample without replacement, in the order of the rows."""
    total = dataset.splits[part].rows
    chosen = np.arange(total)
    if total > rows:
        chosen = np.sort(np.random.default_rng([seed, total]).choice(total, rows, replace=False, shuffle=False))
    batch = BatchLoader(dataset, part, max(1, len(chosen))).read(chosen)
    fields = len(dataset.features.categorical)
    lengths = np.diff(batch.offsets.numpy()).reshape(fields, -1)
    ids = np.split(batch.values.numpy().astype(np.int64), np.cumsum(lengths.sum(axis=1))[:-1])
    labels = batch.labels.numpy().astype(np.float64)
    return Sample(
        labels=labels if labels.ndim == 1 else labels[:, 0],
        dense=batch.dense.numpy().astype(np.float64),
        ids=tuple(ids),
        rows_of=tuple(np.repeat(np.arange(len(chosen)), of_field) for of_field in lengths),
    )


def landmarks(train: Sample, validation: Sample) -> dict[str, float]:
    """Return NE or AUC of cheap learners, trained on one sample and evaluated on the other.

    Returns:
        `field_ne`: NE of the best single field's table of rates; `bayes_auc`: AUC of naive Bayes over all fields;
        `logistic_ne` and `free_logistic_ne`: NE of logistic regressions on all ids and numbers. The second regression
        has a hundredth of the penalty: a worse NE means that the data is easily overfitted. Empty if a part has only
        one class.
    """
    if min(len(np.unique(sample.labels)) for sample in (train, validation)) < 2:
        return {}
    evidence = [_log_odds(train, validation, field) for field in range(len(train.ids))]
    base = _log_odds_of(train.labels.mean())
    found: dict[str, float] = {}
    if evidence:
        found["field_ne"] = min(_ne(validation.labels, base + moved) for moved in evidence)
        found["bayes_auc"] = area_under_roc(validation.labels, np.sum(evidence, axis=0))
    return {**found, **_logistic(train, validation)}


def _ne(labels: np.ndarray, logits: np.ndarray) -> float:
    return min(compute_metrics(labels, logits).ne, LARGEST_NE)


def _log_odds_of(rate: np.ndarray) -> np.ndarray:
    return np.log(rate) - np.log1p(-rate)


def _log_odds(train: Sample, validation: Sample, field: int) -> np.ndarray:
    """Return the change that one field makes to the log odds of each validation row; for a bag the mean of its ids.

    The rate of an id is shrunk towards the base rate, which is also the rate of an unseen id.
    """
    seen, place = np.unique(train.ids[field], return_inverse=True)
    base = train.labels.mean()
    clicks = np.bincount(place, weights=train.labels[train.rows_of[field]], minlength=len(seen))
    rows = np.bincount(place, minlength=len(seen))
    evidence = _log_odds_of((clicks + PRIOR_ROWS * base) / (rows + PRIOR_ROWS)) - _log_odds_of(base)
    evidence = np.append(evidence, 0.0)  # the entry for unseen ids
    found = np.searchsorted(seen, validation.ids[field])
    is_seen = np.isin(validation.ids[field], seen)
    moved = evidence[np.where(is_seen, found, len(seen))]
    owners = validation.rows_of[field]
    lengths = np.bincount(owners, minlength=validation.rows)
    return np.bincount(owners, weights=moved, minlength=validation.rows) / np.maximum(lengths, 1)


def _logistic(train: Sample, validation: Sample) -> dict[str, float]:
    """Return the NE of one logistic regression per penalty, on at most `MOST_ROWS` evenly spaced rows of each part."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    known = [np.unique(ids) for ids in train.ids]
    inputs, judged = _matrix(train, known, train), _matrix(validation, known, train)
    learned, scored = _spread(train.rows), _spread(validation.rows)
    if len(np.unique(train.labels[learned])) < 2 or len(np.unique(validation.labels[scored])) < 2:
        return {}
    found = {}
    for name, penalty in PENALTIES.items():
        model = LogisticRegression(C=penalty, max_iter=MOST_ITERATIONS)
        # Use one thread, since the solver's sums are so short that waking threads takes longer.
        with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a landmark need not be exact
            model.fit(inputs[learned], train.labels[learned])
        found[name] = _ne(validation.labels[scored], model.decision_function(judged[scored]))
    return found


def _spread(rows: int) -> np.ndarray:
    return np.arange(rows) if rows <= MOST_ROWS else np.linspace(0, rows - 1, MOST_ROWS).astype(np.int64)


def _matrix(sample: Sample, known: list[np.ndarray], scale: Sample) -> "csr_matrix":
    """Return a matrix with a column for each known id and each number; `scale` standardises the numbers."""
    from scipy.sparse import csr_matrix, hstack

    blocks = []
    for ids, owners, seen in zip(sample.ids, sample.rows_of, known, strict=True):
        is_seen = np.isin(ids, seen)
        places = (owners[is_seen], np.searchsorted(seen, ids[is_seen]))
        blocks.append(csr_matrix((np.ones(len(places[0])), places), shape=(sample.rows, len(seen))))
    deviation = scale.dense.std(axis=0)
    blocks.append(csr_matrix((sample.dense - scale.dense.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)))
    return csr_matrix(hstack(blocks))


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
    found = {**_sizes(dataset), **_repetition(dataset, train, validation), **_numbers(dataset, train)}
    if dataset.features.number is None:  # base rate and landmarks belong to clicks
        found["base_rate"] = dataset.splits["train"].base_rate
        found |= {f"landmark_{name}": value for name, value in landmarks(train, validation).items()}
    return found


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
    fields = zip(dataset.features.categorical, train.ids, strict=True)
    bags = [len(ids) / train.rows for field, ids in fields if field.multi_valued]
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
    # Mean absolute correlation of two different columns; 0 for a single column.
    correlations, columns = np.abs(scaled.T @ scaled / len(scaled)), scaled.shape[1]
    others = correlations.sum() - np.trace(correlations) if columns > 1 else 0.0
    return {
        "dense_skewness": float(np.abs((scaled**3).mean(axis=0)).mean()),
        "dense_commonest_share": float(np.mean(commonest)),
        "dense_correlation": float(others / max(columns * (columns - 1), 1)),
    }
