"""Statistics of the first pass over a log, which the encoding of rows needs.

Vocabularies and the mean and deviation of numbers come from the training part alone. If validation and test rows
counted too, values of these parts alone would get untrained embedding rows, while serving encodes such values as id 0.
Later rows would also decide which earlier values are rare.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shunter.engine.data.dataset import SPLITS, FieldStatistics, SplitStatistics
from shunter.errors import DataError
from shunter.ingestion.batch import RawBatch
from shunter.ingestion.encoding.buckets import BucketIds, coarse, quantile_edges
from shunter.ingestion.encoding.columns import KeyKind
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder, NumericField, signed_log
from shunter.ingestion.encoding.labels import LabelCounts, count_labels
from shunter.ingestion.encoding.learned_map import LearnedMap
from shunter.ingestion.encoding.vocabulary import (
    HashedIds,
    IdMap,
    ValueCounter,
    VocabularyIds,
    access_curve,
    count_keys,
)
from shunter.ingestion.fields import Categorical, MultiValued, Sequence, SingleValued
from shunter.ingestion.schema import Schema, Vocabulary
from shunter.ingestion.spill import Spill
from shunter.model_families import RANKING_MODELS
from shunter.parallel import ordered_map

# Columns whose values are counted at once: each takes 700 MB where nearly all rows have a value of their own.
_MOST_COLUMNS = 4
_MORE_ROWS = "give more rows or set the shares under `split` in the schema"


@dataclass(frozen=True)
class Moments:
    """Sums over the values of the numeric columns, each float64 [columns]."""

    count: NDArray[np.float64]
    total: NDArray[np.float64]
    squares: NDArray[np.float64]

    def __add__(self, other: "Moments") -> "Moments":
        """Return the sums over both parts of the log."""
        return Moments(self.count + other.count, self.total + other.total, self.squares + other.squares)


@dataclass(frozen=True)
class ChunkSurvey:
    """Counts of one chunk for the survey.

    Attributes:
        rows: Rows of each split.
        positives: Positive rows of each split.
        moments: Moments of the signed logarithms of the numeric columns in the training rows.
        empty_bags: Training rows without a value, for each multi-valued column and stored sequence.
        bag_values: Number of values by split and column of `empty_bags`, int64 [splits, columns].
        labels: Counts by label, and of rows with a nonzero weight.
        unmatched: For each join of the schema, number of rows whose key the joined table lacks.
        left_out: Number of readable rows that the schema excludes.
    """

    rows: NDArray[np.int64]
    positives: NDArray[np.int64]
    moments: Moments
    empty_bags: NDArray[np.int64]
    bag_values: NDArray[np.int64]
    labels: LabelCounts
    unmatched: tuple[int, ...] = ()
    left_out: int = 0


@dataclass
class Survey:
    """Result of the first pass over the log: the sums of its chunks, see `ChunkSurvey`.

    Attributes:
        units: Chunk counts of each unit, if a crew has surveyed the log.
        unmatched: By file of a joined table, number of rows whose key the table lacks.
    """

    schema: Schema
    rows: NDArray[np.int64]
    positives: NDArray[np.int64]
    moments: Moments
    empty_bags: NDArray[np.int64]
    labels: LabelCounts
    units: list[list[ChunkSurvey]] = field(default_factory=list)
    unmatched: Counter[str] = field(default_factory=Counter)
    left_out: int = 0

    def add(self, part: ChunkSurvey) -> None:
        """Add the counts of one chunk of the log."""
        self.rows += part.rows
        self.positives += part.positives
        self.moments += part.moments
        self.empty_bags += part.empty_bags
        self.labels += part.labels
        self.left_out += part.left_out
        self.unmatched.update(dict(zip((join.file for join in self.schema.joins), part.unmatched, strict=False)))

    def check(self, name: str, *, is_given: bool = False, positives_suffice: bool = False) -> None:
        """Raise if no model can be trained or tested on the data.

        Args:
            name: Name of the log for the user.
            is_given: Whether the log predefines the split of each row.
            positives_suffice: Whether the model is a ranking model, which can be trained on positive rows only.

        Raises:
            DataError: The log or a split has no rows, or only one class (by rows or by weight); or another label has
                only one class in the training split.
        """
        rows, positives = int(self.rows.sum()), int(self.positives.sum())
        if rows == 0:
            raise no_rows(name)
        if self.schema.label.loss is not None:
            _check_parts(name, self.rows)
            return
        if positives == 0:
            raise DataError(
                f"Every label of {name} is 0, but both 0 and 1 are needed: check the label column and its "
                "threshold in the schema."
            )
        if positives == rows:
            if not positives_suffice:
                raise positives_alone(name)
            _check_parts(name, self.rows)
            return
        for split, split_rows, split_positives in zip(SPLITS, self.rows, self.positives, strict=True):
            if split_positives in {0, split_rows}:
                what = "no row" if split_rows == 0 else f"only the label {int(split_positives > 0)}"
                advice = f"give a {split} part with both labels" if is_given else _MORE_ROWS
                raise DataError(f"The {split} part of {name} would have {what} ({rows} rows in all): {advice}.")
        self.labels.check(name, self.schema)

    def split_statistics(self) -> dict[str, SplitStatistics]:
        """Return the number of rows and positives of each split."""
        return {
            split: SplitStatistics(
                rows=int(rows), positives=int(positives), others=self.labels.statistics(self.schema, index)
            )
            for index, (split, rows, positives) in enumerate(zip(SPLITS, self.rows, self.positives, strict=True))
        }

    def numeric_fields(self, base: Encoder | None = None) -> list[tuple[NumericField, FieldStatistics]]:
        """Fit the scales of the numeric columns; columns of `base` keep the scale of the trained model."""
        count = np.maximum(self.moments.count, 1)
        means = self.moments.total / count
        variances = np.maximum(self.moments.squares / count - means**2, 0)
        # What rounding leaves of a constant column's variance must not be divided by.
        is_constant = variances <= 1e-12 * np.maximum(means**2, 1)
        deviations = np.where(is_constant, 1.0, np.sqrt(variances))
        missing = 1 - self.moments.count / self.rows[0]
        scales = {field.name: field for field in base.numeric} if base else {}
        return [
            (
                scales.get(name) or NumericField(name, float(means[index]), float(deviations[index])),
                FieldStatistics(name=name, kind="numeric", cardinality=0, missing_share=float(missing[index])),
            )
            for index, name in enumerate(self.schema.numeric)
        ]

    def categorical_fields(
        self,
        spill: Spill,
        key_kind: Callable[[str], KeyKind],
        base: Encoder | None,
        on_column: Callable[[int, int], None],
    ) -> list[tuple[CategoricalField, FieldStatistics]]:
        """Fit the categorical columns, a few at a time to limit the memory for their values.

        Args:
            spill: The rows.
            key_kind: Function that returns the rule by which values of a column become keys.
            base: Encoder whose values stay known even if they do not occur in this log, up to `max_ids` values.
            on_column: Callback that receives the number of finished columns and of all columns.
        """
        numbers = {column.field for column in self.schema.categorical if column.buckets is not None}
        crosses = {column.field: column.cross for column in self.schema.categorical}
        former = {
            field.name: field.ids
            for field in (base.categorical if base else ())
            if field.key_kind == ("number" if field.name in numbers else key_kind(field.name))
            and field.cross == crosses.get(field.name, ())  # a cross of other columns is another field
        }
        columns = list(enumerate((*self.schema.categorical, *self.schema.bags)))

        def fit(numbered: tuple[int, Categorical]) -> tuple[CategoricalField, FieldStatistics]:
            index, column = numbered
            if isinstance(column, SingleValued) and column.buckets is not None:
                return self._bucket_field(spill, index, column, former.get(column.field))
            kind = key_kind(column.column)
            return self._categorical_field(spill, index, column, kind, former.get(column.column))

        own = ordered_map(fit, (pair for pair in columns if not _shares_ids(pair[1])), _MOST_COLUMNS)
        fitted: list[tuple[CategoricalField, FieldStatistics]] = []
        for index, column in columns:
            if isinstance(column, Sequence) and _shares_ids(column):
                empty = int(self.empty_bags[index - len(self.schema.categorical)])
                fitted.append(self.sharing_field(column, fitted, empty))
            else:
                fitted.append(next(own))
            on_column(len(fitted), len(columns))
        return fitted

    def sharing_field(
        self, column: Sequence, fitted: list[tuple[CategoricalField, FieldStatistics]], empty: int
    ) -> tuple[CategoricalField, FieldStatistics]:
        """Return the field and the statistics of a sequence, with ids and access curve of the field of its items.

        Args:
            column: The sequence.
            fitted: Fitted fields, including the field of the items.
            empty: Training rows without a value.
        """
        owner, statistics = next(pair for pair in fitted if pair[0].name == column.items)
        field = CategoricalField(
            name=column.column,
            ids=owner.ids,
            multi_valued=True,
            separator=column.separator,
            key_kind=owner.key_kind,
            length=column.length,
            table=owner.name,
            is_built=column.by is not None,
        )
        missing_share = empty / int(self.rows[0])
        return field, replace(statistics, name=column.column, kind="sequence", missing_share=missing_share)

    def _bucket_field(
        self, spill: Spill, index: int, column: SingleValued, former: IdMap | None
    ) -> tuple[CategoricalField, FieldStatistics]:
        counter = ValueCounter()
        for keys in spill.training_keys(index):
            counter.add(*count_keys(coarse(keys)))
        seen, counts = counter.by_frequency()
        if isinstance(former, BucketIds):  # which the weights of its model were learned with
            ids = former
        elif isinstance(column.buckets, tuple):
            ids = BucketIds(column.buckets)
        else:
            assert column.buckets is not None, "the column has buckets"
            ids = BucketIds(quantile_edges(seen, counts, column.buckets))
        lookups = np.bincount(ids.ids(seen), weights=counts, minlength=ids.rows).astype(np.int64)
        lookups[0] += counter.missing
        statistics = FieldStatistics(
            name=column.field,
            kind="categorical",
            cardinality=len(ids.edges) + 1,
            missing_share=counter.missing / int(self.rows[0]),
            access_curve=access_curve(lookups),
        )
        read_from = column.column if column.name else None
        return CategoricalField(column.field, ids, key_kind="number", column=read_from), statistics

    def _categorical_field(
        self, spill: Spill, index: int, column: Categorical, key_kind: KeyKind, former: IdMap | None
    ) -> tuple[CategoricalField, FieldStatistics]:
        counter = ValueCounter()
        for keys in spill.training_keys(index):
            counter.add(*count_keys(keys))
        ids, cardinality, curve = fit_ids(counter, column, self.schema.vocabulary, former)
        multi_valued = isinstance(column, MultiValued)
        length = column.length if isinstance(column, Sequence) else None
        empty = int(self.empty_bags[index - len(self.schema.categorical)]) if multi_valued else counter.missing
        statistics = FieldStatistics(
            name=column.column,
            kind="sequence" if length else "multi_valued" if multi_valued else "categorical",
            cardinality=cardinality,
            missing_share=empty / int(self.rows[0]),
            access_curve=curve,
        )
        separator, weights = (column.separator, column.weights) if isinstance(column, MultiValued) else (None, None)
        cross = column.cross if isinstance(column, SingleValued) else ()
        sessions, user = self.schema.sessions, self.schema.user
        is_built = sessions is not None and column.column == sessions.column != user
        field = CategoricalField(
            column.column,
            ids,
            multi_valued,
            separator,
            key_kind,
            length,
            is_built=is_built,
            weights=weights,
            cross=cross,
        )
        return field, statistics


def fit_ids(
    counter: ValueCounter, column: Categorical, default: Vocabulary, former: IdMap | None = None
) -> tuple[IdMap, int, tuple[tuple[float, float], ...]]:
    """Give ids to the values of one column.

    Args:
        counter: Counts of the values.
        column: Column with its settings, which override `default`.
        default: Settings of columns without their own.
        former: Earlier ids, whose values stay known even if they are rare in this log; the most frequent values of this
            log come first. A learned map is not changed.

    Returns:
        Map to ids (by frequency if a map is learned later, see `shunter.ingestion.encoding.learned_map`), number of
        distinct values, and access curve over all ids including 0.
    """
    keys, counts = counter.by_frequency()
    fixed = None
    if (hash_size := default.hash_size_of(column)) is not None:
        fixed = HashedIds(hash_size)
    elif default.learned_rows_of(column) is not None and isinstance(former, LearnedMap):
        fixed = former  # which the weights of its model were learned with
    if fixed is not None:
        lookups = np.bincount(fixed.ids(keys), weights=counts, minlength=fixed.rows).astype(np.int64)
        lookups[0] += counter.missing
        return fixed, len(keys), access_curve(lookups)
    cardinality = len(keys)
    is_known = counts >= (column.min_count or default.min_count)
    if isinstance(former, VocabularyIds):
        unseen = former.keys[~np.isin(former.keys, keys)]
        is_known |= np.isin(keys, former.keys)
        keys, counts = np.concatenate([keys[is_known], unseen]), np.append(counts[is_known], np.zeros(len(unseen), int))
    else:
        keys, counts = keys[is_known], counts[is_known]
    kept = min(len(keys), column.max_ids or default.max_ids)
    unknown = counter.total - int(counts[:kept].sum())
    curve = access_curve(np.concatenate([[unknown], counts[:kept]]))
    return VocabularyIds(keys[:kept].copy()), cardinality, curve


def _shares_ids(column: Categorical) -> bool:
    """Return True if a column shares the ids of another column."""
    return isinstance(column, Sequence) and column.items is not None


def _check_parts(name: str, rows: NDArray[np.int64]) -> None:
    """Raise if a split would hold no row; `rows`, int64 [splits], are the rows of each."""
    if not rows.all():
        split = SPLITS[int(np.argmin(rows))]
        raise DataError(f"The {split} part of {name} would have no row ({int(rows.sum())} rows in all): {_MORE_ROWS}.")


def positives_alone(name: str) -> DataError:
    """Return the error for a log without negative labels."""
    return DataError(
        f"Every label of {name} is 1, both 0 and 1 are needed: check the label column and its threshold in the schema, "
        f"or take a --model that ranks items by positives alone ({', '.join(RANKING_MODELS.names)})."
    )


def no_rows(name: str) -> DataError:
    """Return the error for a log without rows."""
    return DataError(f"{name} has no readable rows: give a file with rows.")


def nothing_found(schema: Schema) -> Survey:
    """Return the empty survey, before the first chunk."""
    nothing, splits = np.zeros(len(schema.numeric)), len(SPLITS)
    others = np.zeros((max(0, len(schema.tasks) - 1), 2, splits), np.int64)
    return Survey(
        schema,
        rows=np.zeros(splits, np.int64),
        positives=np.zeros(splits, np.int64),
        moments=Moments(nothing, nothing, nothing),
        empty_bags=np.zeros(len(schema.bags), np.int64),
        labels=LabelCounts(np.zeros((2, splits), np.int64), others),
    )


def survey_batch(batch: RawBatch, parts: NDArray[np.int8]) -> ChunkSurvey:
    """Return the counts of one batch; `parts` gives the split of each row."""
    train = batch.columns.select(parts == 0)
    logarithms = signed_log(train.numeric)
    present = ~np.isnan(logarithms)
    logarithms[~present] = 0
    moments = Moments(
        present.sum(axis=1, dtype=np.float64),
        logarithms.sum(axis=1, dtype=np.float64),
        np.square(logarithms, dtype=np.float64).sum(axis=1),
    )
    bags, splits = batch.columns.bags, len(SPLITS)
    values = [np.bincount(parts, weights=np.diff(bag.offsets), minlength=splits) for bag in bags]
    return ChunkSurvey(
        rows=np.bincount(parts, minlength=len(SPLITS)),
        positives=np.bincount(parts, weights=batch.main_labels, minlength=len(SPLITS)).astype(np.int64),
        moments=moments,
        empty_bags=np.array([(np.diff(bag.offsets) == 0).sum() for bag in train.bags], np.int64),
        bag_values=np.array(values, np.int64).reshape(len(bags), splits).T,
        labels=count_labels(batch, parts),
        unmatched=batch.unmatched,
        left_out=batch.left_out,
    )
