"""Labels (one or several per row) and weights of the rows."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.engine.data.dataset import SPLITS, LabelStatistics
from shunter.errors import DataError
from shunter.ingestion.batch import RawBatch
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.canonical import canonical_texts
from shunter.ingestion.fields import Label
from shunter.ingestion.schema import Schema
from shunter.label_losses import LABELS, parse_loss

# Labels as lower-case text.
_WORDS = dict.fromkeys(("true", "t", "yes", "y"), "1") | dict.fromkeys(("false", "f", "no", "n"), "0")

Problems = list[tuple[read.Mask, str, str]]


def read_labels(series: dict[str, pl.Series], schema: Schema, problems: Problems) -> NDArray[np.float32]:
    """Read the labels of a batch of rows; unreadable cells are added to `problems`.

    Returns:
        float32 [rows], or [rows, labels] if the schema names several labels. The values are 0 or 1, or any number for
        a label with a `loss`. An empty cell of a label other than the main label is NaN.
    """
    main = _read_label(series[schema.label.column], schema.label, problems, is_main=True)
    others = [_read_label(series[label.column], label, problems, is_main=False) for label in schema.labels[1:]]
    return np.stack([main, *others], axis=1) if others else main


def read_weights(series: dict[str, pl.Series], schema: Schema, problems: Problems) -> NDArray[np.float32] | None:
    """Read the weights of a batch of rows, float32 [rows]; None if the schema names no weight column."""
    if schema.weight is None:
        return None
    values, bad = read.numbers(series[schema.weight])
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32)
    bad = bad | ~(weights >= 0) | np.isinf(weights)
    problems.append((bad, schema.weight, "a finite number of at least 0"))
    return weights


def _read_label(series: pl.Series, label: Label, problems: Problems, *, is_main: bool) -> NDArray[np.float32]:
    if label.positive:
        return _read_events(series, label, problems, is_main=is_main)
    if label.loss is not None:
        return _read_numbers(series, label, parse_loss(label.loss).labels, problems)
    if series.dtype == pl.String:
        series = series.str.strip_chars().str.to_lowercase().replace(_WORDS)
    values, bad = read.numbers(series)
    missing = np.isnan(values) & ~bad
    threshold = label.positive_at_least
    if threshold is None:
        expected = "0 or 1, or yes or no (or `positive_at_least` in the schema)"
        bad = ~np.isin(values, (0, 1)) & (~missing | is_main)
    else:
        expected = "a number"
        bad = bad | (missing & is_main)
        values = np.where(np.isnan(values), np.nan, values >= threshold)
    problems.append((bad, label.column, expected))
    return values.astype(np.float32)


def _read_numbers(series: pl.Series, label: Label, kind: str, problems: Problems) -> NDArray[np.float32]:
    """Read a numeric label; `kind` is one of `shunter.label_losses.LABELS`."""
    values, bad = read.numbers(series)
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
    bad = bad | ~np.isfinite(numbers)
    if kind in {"count", "amount"}:
        bad |= ~(numbers >= 0)
    if kind == "count":
        bad |= numbers != np.round(numbers)
    problems.append((bad, label.column, LABELS[kind]))
    return numbers


def _read_events(series: pl.Series, label: Label, problems: Problems, *, is_main: bool) -> NDArray[np.float32]:
    """Read a label from event types: 1 for the positive types, 0 for other types, NaN for a missing type."""
    types = canonical_texts(series, "value")
    missing = types.is_null().to_numpy()
    positives = canonical_texts(pl.Series(label.positive), "value")
    is_positive = ~missing if "*" in label.positive else types.is_in(positives.implode()).fill_null(False).to_numpy()
    problems.append((missing & is_main, label.column, "a type of event"))
    return np.where(missing, np.nan, is_positive).astype(np.float32)


@dataclass(frozen=True)
class LabelCounts:
    """Counts of rows with a nonzero weight by split, for the main label and for the other labels.

    Attributes:
        counting: int64 [2, splits]: rows with a nonzero weight, and rows that also have a positive main label.
        others: int64 [other labels, 2, splits]: rows with the label and a nonzero weight, and the positive ones.
    """

    counting: NDArray[np.int64]
    others: NDArray[np.int64]

    def __add__(self, more: "LabelCounts") -> "LabelCounts":
        """Return the sum of two counts of labels."""
        return LabelCounts(self.counting + more.counting, self.others + more.others)

    def check(self, name: str, schema: Schema) -> None:
        """Raise if no model can learn from the labels and weights.

        Raises:
            DataError: Weights leave one class of the first label in a split, or the training split has one class of a
                further label.
        """
        for split, rows, positives in zip(SPLITS, *self.counting, strict=True):
            if positives in {0, rows}:
                what = f"all rows with the label {int(positives == 0)}" if rows else "all rows"
                raise DataError(
                    f"The column {schema.weight} gives the weight 0 to {what} in the {split} part of "
                    f"{name}: give both labels a weight above 0, or leave `weight` out of the schema."
                )
        for task, (rows, positives) in zip(schema.tasks[1:], self.others[:, :, 0], strict=True):
            if positives in {0, rows}:
                what = f"only the label {int(positives > 0)}" if rows else "no label"
                raise DataError(
                    f"The training part of {name} has only {what} of {task}, but both 0 and 1 are needed: "
                    "check its column and threshold under `labels` in the schema, or leave the label out."
                )

    def statistics(self, schema: Schema, split: int) -> tuple[LabelStatistics, ...]:
        """Return the statistics of the labels other than the main label in one split."""
        return tuple(
            LabelStatistics(name=task, rows=int(rows), positives=int(positives))
            for task, (rows, positives) in zip(schema.tasks[1:], self.others[:, :, split], strict=True)
        )


def count_labels(batch: RawBatch, parts: NDArray[np.int8]) -> LabelCounts:
    """Count the rows of a batch by label; `parts`, int8 [rows], is the split of each row."""
    main, *others = np.atleast_2d(batch.labels.T)
    counts = np.ones(len(parts), bool) if batch.weights is None else batch.weights > 0
    splits, by_label = len(SPLITS), []
    for label in (main, *others):
        chosen = counts & ~np.isnan(label)
        rows, positives = parts[chosen], parts[chosen & (label == 1)]
        by_label.append(np.stack([np.bincount(one, minlength=splits) for one in (rows, positives)]))
    return LabelCounts(by_label[0], np.array(by_label[1:], np.int64).reshape(-1, 2, splits))
