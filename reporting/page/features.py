"""Statistics of the features and their relation to the label: shares, cardinalities, and base rates by value."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset, FieldStatistics
from shunter.statistics import wilson_interval
from shunter.tracking.tree import RunTree

MOST_ROWS = 500_000
MOST_VALUES = 8
BLOCK_ROWS = 4_096  # rows of a block that is transposed at a time, so that both copies fit into the cache
BINS = 8
UNKNOWN = "missing, rare or unknown"
FEATURES = "features.json"  # name of the artifact of a run
SHOWN_FIELDS = 8


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class ValueStatistics(_Frozen):
    """Statistics of one value of a field, or of one range of a numeric field.

    Attributes:
        name: Value in the log; `no. 3` for id 3 if its value is not known.
        rows: Number of sampled rows with the value.
        positives: Number of these rows with a positive label.
    """

    name: str
    rows: int
    positives: int

    @property
    def base_rate(self) -> float:
        """Share of positive labels among the rows with this value."""
        return self.positives / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the base rate."""
        return wilson_interval(self.base_rate, self.rows)


class FeatureStatistics(_Frozen):
    """Statistics of one field.

    Attributes:
        name: Name of the column.
        kind: `numeric`, `categorical`, `multi_valued` or `sequence`.
        cardinality: Number of distinct values; 0 for a numeric field.
        missing_share: Share of training rows without a value.
        information: Share of the label's entropy that the field alone explains, corrected for chance; None for a
            multi-valued field, which has several values in a row.
        values: Most frequent values, or the ranges of a numeric field in ascending order.
    """

    name: str
    kind: str
    cardinality: int
    missing_share: float
    information: float | None
    values: tuple[ValueStatistics, ...]


class FeatureSummary(_Frozen):
    """Statistics of all fields of a data set.

    Attributes:
        data_name: Name of the data.
        sampled_rows: Number of evenly spaced training rows in the statistics by value.
        train_rows: Number of rows of the training part.
        base_rate: Base rate of the sampled rows.
        fields: Fields, those with the most information about the label first.
    """

    data_name: str
    sampled_rows: int
    train_rows: int
    base_rate: float
    fields: tuple[FeatureStatistics, ...]


class Scale(_Frozen):
    """Standardisation of a numeric field: `(sign(x) log(1 + |x|) - mean) / deviation`."""

    mean: float
    deviation: float

    def raw(self, value: float) -> float:
        """Return the number that was standardised to `value`."""
        logarithm = value * self.deviation + self.mean
        return float(np.copysign(np.expm1(abs(logarithm)), logarithm))


def most_frequent(dataset: Dataset, most_rows: int = MOST_ROWS) -> dict[str, list[int]]:
    """Return the ids of each categorical field that `summarise` shows, most frequent first."""
    rows = _rows(dataset, most_rows)
    return {name: _top(ids) for name, ids, _ in _categorical(dataset, rows)}


def summarise(
    dataset: Dataset,
    names: Mapping[str, Mapping[int, str]],
    scales: Mapping[str, Scale],
    most_rows: int = MOST_ROWS,
) -> FeatureSummary:
    """Compute the statistics of all fields on the training part.

    Args:
        dataset: Data set.
        names: Known values of the ids, by field.
        scales: Scales of the numeric fields; if one is missing, ranges are in standardised numbers.
        most_rows: Largest number of rows to read, evenly spaced.
    """
    rows = _rows(dataset, most_rows)
    labels = _load(dataset, "label")
    assert labels is not None
    labels = (labels if labels.ndim == 1 else labels[:, 0])[rows]  # of several labels, the first
    known = {field.name: field for field in dataset.fields}
    found = [
        _categorical_statistics(known[name], ids, labels[owners], names.get(name, {}))
        for name, ids, owners in _categorical(dataset, rows)
    ]
    dense = _load(dataset, "dense")
    columns = None if dense is None else _columns(dense, rows)
    for position, name in enumerate(dataset.features.dense):
        assert columns is not None
        found.append(_numeric_statistics(known[name], columns[position], labels, scales.get(name)))
    found.sort(key=lambda field: -(field.information or 0.0))
    return FeatureSummary(
        data_name=dataset.name,
        sampled_rows=len(labels),
        train_rows=dataset.splits["train"].rows,
        base_rate=float(labels.mean()),
        fields=tuple(found),
    )


def features_section(tree: RunTree) -> dict[str, Any]:
    """Return template values of all fields; the first fields also have a bar for each value's base rate."""
    summary = FeatureSummary.model_validate_json(tree.artifacts[FEATURES])
    shown = summary.fields[:SHOWN_FIELDS]
    highest = max((value.interval[1] for field in shown for value in field.values), default=1.0)
    scale = min(1.0, max(highest, summary.base_rate, 1e-9))
    return {
        **summary.model_dump(exclude={"fields"}),
        "fields": [field.model_dump() for field in summary.fields],
        "shown": [
            {
                **field.model_dump(exclude={"values"}),
                "kind": field.kind.replace("_", "-"),
                "bars": [_value_bar(value, scale) for value in field.values],
            }
            for field in shown
        ],
        "scale": scale,
        "base_percent": 100 * summary.base_rate / scale,
    }


def _value_bar(value: ValueStatistics, scale: float) -> dict[str, Any]:
    low, high = value.interval
    return {
        "name": value.name,
        "percent": 100 * value.base_rate / scale,
        "low": 100 * low / scale,
        "spread": 100 * (high - low) / scale,
        "text": f"{100 * value.base_rate:.3g} %",
        "title": f"{value.rows:,} rows, base rate between {low:.4f} and {high:.4f} with 95 %",
    }


def _categorical_statistics(
    field: FieldStatistics, ids: NDArray[np.int32], labels: NDArray[np.float32], names: Mapping[int, str]
) -> FeatureStatistics:
    counts = np.bincount(ids)
    positives = np.bincount(ids, weights=labels)
    values = tuple(
        ValueStatistics(
            name=UNKNOWN if number == 0 else names.get(number, f"no. {number}"),
            rows=int(counts[number]),
            positives=int(positives[number]),
        )
        for number in _top(ids)
    )
    return FeatureStatistics(
        name=field.name,
        kind=field.kind,
        cardinality=field.cardinality,
        missing_share=field.missing_share,
        information=None if field.kind in ("multi_valued", "sequence") else information(counts, positives),
        values=values,
    )


def _numeric_statistics(
    field: FieldStatistics, values: NDArray[np.float32], labels: NDArray[np.float32], scale: Scale | None
) -> FeatureStatistics:
    """Return statistics of ranges with about equal numbers of rows, or of the values themselves if there are few."""
    values_in_order = np.sort(values)
    distinct = values_in_order[np.concatenate([[True], values_in_order[1:] != values_in_order[:-1]])]
    if len(distinct) > BINS:
        edges = np.unique(np.quantile(values_in_order, np.linspace(0, 1, BINS + 1)[:-1]))
    else:
        edges = distinct
    places = np.searchsorted(edges, values, side="right") - 1
    counts = np.bincount(places, minlength=len(edges))
    positives = np.bincount(places, weights=labels, minlength=len(edges))
    raw = [scale.raw(float(edge)) if scale else float(edge) for edge in (*edges, values.max())]
    unit = "" if scale else " standardised"
    names = [
        f"{low:.4g}{unit}" if len(distinct) <= BINS else f"{low:.4g} to {high:.4g}{unit}" for low, high in pairwise(raw)
    ]
    return FeatureStatistics(
        name=field.name,
        kind=field.kind,
        cardinality=field.cardinality,
        missing_share=field.missing_share,
        information=information(counts, positives),
        values=tuple(
            ValueStatistics(name=name, rows=int(count), positives=int(positive))
            for name, count, positive in zip(names, counts, positives, strict=True)
            if count
        ),
    )


def information(counts: NDArray[Any], positives: NDArray[Any]) -> float:
    """Return the mutual information of a field and the label, divided by the entropy of the label, between 0 and 1.

    The estimate from n rows is too large by about (values - 1) / 2n nats, which is subtracted (Miller, "Note on the
    bias of information estimates", 1955). A negative result becomes 0. The arrays count rows and positives by value.
    """
    there = counts > 0
    rows, positives = counts[there].astype(np.float64), positives[there]
    total = rows.sum()
    label_entropy = _entropy(np.array([positives.sum() / total]))[0]
    if label_entropy == 0:
        return 0.0
    explained = label_entropy - (rows / total * _entropy(positives / rows)).sum() - (len(rows) - 1) / (2 * total)
    return float(np.clip(explained / label_entropy, 0.0, 1.0))


def _entropy(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entropy of labels with this share of positives, in nats."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = -(share * np.log(share)) - (1 - share) * np.log1p(-share)
    return np.nan_to_num(parts)


def _categorical(
    dataset: Dataset, rows: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int32], NDArray[np.int64]]]:
    """Yield each field with its ids in the sampled rows, and the position of the sampled row of each id."""
    single = _load(dataset, "categorical")
    if single is not None:  # one pass through the file; each field is then contiguous
        single = _columns(single, rows)
    position = 0
    for index, feature in enumerate(dataset.features.categorical):
        if not feature.multi_valued:
            assert single is not None
            yield feature.name, single[position], np.arange(len(rows))
            position += 1
            continue
        values, offsets = _load(dataset, f"bag{index}.values"), _load(dataset, f"bag{index}.offsets")
        assert values is not None
        assert offsets is not None
        starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
        owners = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        yield feature.name, np.asarray(values[np.repeat(starts, lengths) + within]), owners


def _columns(table: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the given rows of a table as `[columns, rows]`, reading the file only once for all columns."""
    columns = np.empty((table.shape[1], len(rows)), table.dtype)
    for start in range(0, len(rows), BLOCK_ROWS):
        columns[:, start : start + BLOCK_ROWS] = table[rows[start : start + BLOCK_ROWS]].T
    return columns


def _top(ids: NDArray[np.int32]) -> list[int]:
    """Return the up to `MOST_VALUES` most frequent ids; at equal frequency, the lower id first."""
    counts = np.bincount(ids) if len(ids) else np.zeros(0, np.int64)
    least = np.partition(counts, -MOST_VALUES)[-MOST_VALUES] if len(counts) > MOST_VALUES else 0
    candidates = np.flatnonzero(counts >= max(least, 1))
    order = np.argsort(-counts[candidates], kind="stable")[:MOST_VALUES]
    return candidates[order].tolist()


def _rows(dataset: Dataset, most: int) -> NDArray[np.int64]:
    there = dataset.splits["train"].rows
    taken = min(there, most)
    return np.arange(taken) * there // taken


def _load(dataset: Dataset, what: str) -> NDArray | None:
    path = Path(dataset.directory) / f"train.{what}.npy"
    return read_array(path) if path.exists() else None
