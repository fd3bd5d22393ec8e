"""What the features of a data set say about the label: shares, cardinalities, base rates by value."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset, FieldStatistics
from shunter.statistics.intervals import wilson_interval
from shunter.tracking.tree import RunTree

MOST_ROWS = 500_000
MOST_VALUES = 8
BLOCK_ROWS = 4_096  # of a table that is turned, so that both sides of it are in the cache
BINS = 8
UNKNOWN = "missing, rare or unknown"
FEATURES = "features.json"  # artifact of a run
SHOWN_FIELDS = 8


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class ValueStatistics(_Frozen):
    """One value of a field, or one range of a number.

    Attributes:
        name: Name in the log; `no. 3` where it is not known.
        rows: Rows of the sample that have it.
        positives: Rows among them with a positive label.
    """

    name: str
    rows: int
    positives: int

    @property
    def base_rate(self) -> float:
        """Share of positive labels."""
        return self.positives / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the base rate."""
        return wilson_interval(self.base_rate, self.rows)


class FeatureStatistics(_Frozen):
    """One field.

    Attributes:
        name: Name of the column.
        kind: `numeric`, `categorical`, `multi_valued` or `sequence`.
        cardinality: Distinct values; 0 for a number.
        missing_share: Share of training rows without a value.
        information: Share of the label's entropy that the field alone explains, corrected for chance; None for a
            multi-valued field, whose values are not one a row.
        values: The most frequent ones, or ranges of a number in their order.
    """

    name: str
    kind: str
    cardinality: int
    missing_share: float
    information: float | None
    values: tuple[ValueStatistics, ...]


class FeatureSummary(_Frozen):
    """All fields of a data set.

    Attributes:
        data_name: Name of the data.
        sampled_rows: Evenly spaced rows of the training part behind the figures by value.
        train_rows: Rows of the training part.
        base_rate: Base rate of the sampled rows.
        fields: Those that tell most of the label first.
    """

    data_name: str
    sampled_rows: int
    train_rows: int
    base_rate: float
    fields: tuple[FeatureStatistics, ...]


class Scale(_Frozen):
    """How a number was standardised: `(sign(x) log(1 + |x|) - mean) / deviation`."""

    mean: float
    deviation: float

    def raw(self, value: float) -> float:
        """The number that became `value`."""
        logarithm = value * self.deviation + self.mean
        return float(np.copysign(np.expm1(abs(logarithm)), logarithm))


def most_frequent(dataset: Dataset, most_rows: int = MOST_ROWS) -> dict[str, list[int]]:
    """The ids of each categorical field that `summarise` shows, most frequent first."""
    rows = _rows(dataset, most_rows)
    return {name: _top(ids) for name, ids, _ in _categorical(dataset, rows)}


def summarise(
    dataset: Dataset,
    names: Mapping[str, Mapping[int, str]],
    scales: Mapping[str, Scale],
    most_rows: int = MOST_ROWS,
) -> FeatureSummary:
    """Count labels by value.

    Args:
        dataset: Its training part is looked at.
        names: Names of ids, by field, as far as they are known.
        scales: Scales of the numeric fields; where one is missing, ranges are of the standardised number.
        most_rows: Most rows to look at, evenly spaced.
    """
    rows = _rows(dataset, most_rows)
    labels = _label(dataset)[rows]
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
    """Return the fields of the data, the first ones with a bar for each value."""
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
    """Ranges with about as many rows each, or the values themselves where there are few."""
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
    """Mutual information of a field and the label over the entropy of the label, between 0 and 1.

    Counted over n rows it comes out too large by about (values - 1) / 2n nats, which is taken off (Miller, "Note on the
    bias of information estimates", 1955); what is left of chance is cut at 0.

    Args:
        counts: Rows of each value.
        positives: Rows among them with a positive label.
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
    """Of labels with this share of positives, in nats."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = -(share * np.log(share)) - (1 - share) * np.log1p(-share)
    return np.nan_to_num(parts)


def _categorical(
    dataset: Dataset, rows: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int32], NDArray[np.int64]]]:
    """Each field with its ids in the sampled rows, and which sampled row each id is of."""
    single = _load(dataset, "categorical")
    if single is not None:  # once through the file, and then each field in one piece
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
    """Some rows of a table, `[columns, rows]`: a look at each column by itself would go through the whole file."""
    columns = np.empty((table.shape[1], len(rows)), table.dtype)
    for start in range(0, len(rows), BLOCK_ROWS):
        columns[:, start : start + BLOCK_ROWS] = table[rows[start : start + BLOCK_ROWS]].T
    return columns


def _top(ids: NDArray[np.int32]) -> list[int]:
    """The most frequent ids, of equally frequent ones the lower first."""
    counts = np.bincount(ids) if len(ids) else np.zeros(0, np.int64)
    least = np.partition(counts, -MOST_VALUES)[-MOST_VALUES] if len(counts) > MOST_VALUES else 0
    candidates = np.flatnonzero(counts >= max(least, 1))
    order = np.argsort(-counts[candidates], kind="stable")[:MOST_VALUES]
    return candidates[order].tolist()


def _rows(dataset: Dataset, most: int) -> NDArray[np.int64]:
    there = dataset.splits["train"].rows
    taken = min(there, most)
    return np.arange(taken) * there // taken


def _label(dataset: Dataset) -> NDArray[np.float32]:
    """The label; of several, the first."""
    labels = _load(dataset, "label")
    assert labels is not None
    return labels if labels.ndim == 1 else labels[:, 0]


def _load(dataset: Dataset, what: str) -> NDArray | None:
    path = Path(dataset.directory) / f"train.{what}.npy"
    return read_array(path) if path.exists() else None
