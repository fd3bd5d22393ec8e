"""Gradient-boosted trees for comparison: the model that most people would train first on a table.

The trees are listed among the baselines, but are never a member of the ensemble: a registered model consists of
embeddings and layers.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from shunter.checked_json import read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.data.arrays import read_array, read_result, write_result
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.metrics import compute_metrics
from shunter.files import make_private
from shunter.reporting.card.baselines import Rival
from shunter.requests import TREES

FILE, LOGITS = "rival.json", "test.npy"
MOST_ROWS = 500_000  # largest number of training rows, so that the trees take about a minute
MOST_TREES = 300
FOLDS = 5
PRIOR_ROWS = 20.0  # pseudo-rows at the base rate that smooth the share of positives of an id


def train_trees(dataset: Dataset, directory: Path, *, seed: int = 0) -> Rival | None:
    """Train boosted trees until validation stops improving, and score the test part once.

    Args:
        dataset: Data set; the main label is learned if there are several.
        directory: Folder of the result; a result that is there already is returned.
        seed: Seed of the folds, and of the sample of rows if there are more than `MOST_ROWS`.

    Returns:
        Result of the trees; None if all rows are of one class.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    found = read_or_quarantine(directory / FILE, Rival.model_validate_json)
    if found is not None and read_result(directory / LOGITS) is not None:
        with suppress(OSError):
            os.utime(directory / FILE)  # records the use, so that unused trees can be removed
        return found.model_copy(update={"test_logits": directory / LOGITS})
    began = time.monotonic()
    random = np.random.default_rng(seed)
    rows = dataset.splits["train"].rows
    chosen = np.sort(random.permutation(rows)[:MOST_ROWS])
    labels, weights = _targets(dataset, "train", chosen)
    if not 0 < labels[slice(None) if weights is None else weights > 0].mean() < 1:
        return None
    known = Table.read(dataset, "train", chosen)
    folds = random.integers(0, FOLDS, len(chosen))
    table = known.encoded(known, labels, weights, folds)
    parts = {part: Table.read(dataset, part).encoded(known, labels, weights) for part in ("validation", "test")}
    validation_labels, validation_weights = _targets(dataset, "validation")
    trees = HistGradientBoostingClassifier(
        max_iter=MOST_TREES,
        early_stopping=True,  # pyright: ignore[reportArgumentType] - "auto" does not stop below 10,000 rows
        n_iter_no_change=10,
        random_state=seed,
    ).fit(
        table,
        labels,
        sample_weight=weights,
        X_val=parts["validation"],
        y_val=validation_labels,
        sample_weight_val=validation_weights,
    )
    rival = Rival(
        name=TREES,
        validation=compute_metrics(validation_labels, trees.decision_function(parts["validation"]), validation_weights),
        test_logits=directory / LOGITS,
        train_seconds=time.monotonic() - began,
    )
    make_private(directory)
    write_result(directory / LOGITS, trees.decision_function(parts["test"]).astype(np.float32))
    dated = rival.model_copy(update={"trained_at": datetime.now(UTC)})
    write_json(directory / FILE, dated.model_dump_json(indent=1))
    return rival


@dataclass(frozen=True)
class Table:
    """Rows of one part as ingestion has written them.

    Attributes:
        dense: float32 `[rows, dense features]`.
        fields: For each categorical field the row and the id of every value, int64 each; a row may have any number of
            values.
        table_rows: Number of ids of each field.
    """

    dense: np.ndarray
    fields: list[tuple[np.ndarray, np.ndarray]]
    table_rows: list[int]

    @classmethod
    def read(cls, dataset: Dataset, part: SplitName, rows: np.ndarray | None = None) -> "Table":
        """Read all rows, or a selection of rows in the given order."""
        features, folder = dataset.features, dataset.directory
        rows = np.arange(dataset.splits[part].rows) if rows is None else rows
        dense = np.zeros((len(rows), 0), np.float32)
        if features.dense:
            dense = read_array(folder / f"{part}.dense.npy")[rows]
        single = [field.name for field in features.categorical if not field.multi_valued]
        ids = read_array(folder / f"{part}.categorical.npy")[rows] if single else None
        fields = []
        for place, field in enumerate(features.categorical):
            if not field.multi_valued:
                assert ids is not None, "single-valued fields have an array"
                fields.append((np.arange(len(rows)), ids[:, single.index(field.name)].astype(np.int64)))
                continue
            offsets = read_array(folder / f"{part}.bag{place}.offsets.npy")
            values = read_array(folder / f"{part}.bag{place}.values.npy")
            lengths = np.diff(offsets)[rows]
            of_row = np.repeat(np.arange(len(rows)), lengths)
            within = np.arange(len(of_row)) - np.repeat(lengths.cumsum() - lengths, lengths)
            fields.append((of_row, values[offsets[rows][of_row] + within].astype(np.int64)))
        return cls(dense, fields, [field.rows for field in features.categorical])

    def encoded(
        self, known: "Table", labels: np.ndarray, weights: np.ndarray | None, folds: np.ndarray | None = None
    ) -> np.ndarray:
        """Return features that trees can split: dense features, and target encoding and frequency for each field.

        Shares are computed from the training rows only, and smoothed towards the base rate for rare ids. Shares of a
        training row come from the other folds, so that its own label is not among its features (out-of-fold target
        encoding; Micci-Barreca, SIGKDD Explorations 2001). Several ids in a row are averaged.

        Args:
            known: Training rows.
            labels: Labels of the training rows.
            weights: Weights of the training rows; None weighs all rows equally.
            folds: Fold of each row if these are the training rows; None for other parts.

        Returns:
            float32 `[rows, dense features + 2 * fields]`.
        """
        counted = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        base_rate = float(counted @ labels / counted.sum())
        columns = []
        for own, (known_rows, known_ids), ids_count in zip(self.fields, known.fields, self.table_rows, strict=True):
            rows, ids = own
            seen = counted[known_rows]
            positive = seen * labels[known_rows]
            totals, positives = (np.bincount(known_ids, one, ids_count) for one in (seen, positive))
            left, left_positive = totals[ids], positives[ids]
            if folds is not None:
                keys = folds[known_rows] * ids_count + known_ids
                in_fold, positive_in_fold = (np.bincount(keys, one, FOLDS * ids_count) for one in (seen, positive))
                left = left - in_fold[folds[rows] * ids_count + ids]
                left_positive = left_positive - positive_in_fold[folds[rows] * ids_count + ids]
            share = (left_positive + PRIOR_ROWS * base_rate) / (left + PRIOR_ROWS)
            columns += [self._mean(rows, share, base_rate), self._mean(rows, np.log1p(totals[ids]), 0.0)]
        return np.column_stack([self.dense, *columns]).astype(np.float32)

    def _mean(self, rows: np.ndarray, values: np.ndarray, empty: float) -> np.ndarray:
        """Return the mean over the values of each row; `empty` is the mean of a row without values."""
        lengths = np.bincount(rows, minlength=len(self.dense))
        sums = np.bincount(rows, values, len(self.dense))
        return np.where(lengths > 0, sums / np.maximum(lengths, 1), empty)


def _targets(dataset: Dataset, part: SplitName, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the main label and the weight of each row; a missing label has weight 0."""
    targets = BatchLoader(dataset, part, 1).targets()
    labels, weights = targets.labels, targets.weights
    if labels.ndim > 1:
        labels, weights = labels[:, 0], None if weights is None else weights[:, 0]
    if rows is None:
        return labels, weights
    return labels[rows], None if weights is None else weights[rows]
