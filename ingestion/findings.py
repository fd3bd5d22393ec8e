"""Data-quality findings about a log before training: leaks, drift, duplicates, empty columns, few positives."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.engine.data.dataset import Dataset, date_texts
from shunter.engine.data.given import given_vectors
from shunter.engine.data.resolution import AUC_APART, auc_error
from shunter.ingestion.tables import learned_words

LEAK_AUC = 0.97
_FEWEST_ROWS = 50
_MOST_DRIFT = 0.3  # total variation distance between two parts of the rows; 0 is equal, 1 is disjoint
_UNIQUE_SHARE = 0.95
_EMPTY_SHARE = 0.999
_FREQUENT_VALUES = 50
_MOST_COPIES = 0.05
_MOST_SHARE_MISSED = 0.05  # difference between a split's share of the rows and the requested share


@dataclass(frozen=True)
class Finding:
    """Data-quality finding about a log.

    Attributes:
        kind: Kind of the finding, such as `leak`.
        column: Column of the finding; None for a finding about the whole log.
        words: Message of one sentence.
    """

    kind: str
    column: str | None
    words: str


@dataclass(frozen=True)
class LogSample:
    """Sample of the rows of a log, sorted by time if the log has times.

    Attributes:
        table: One column per single-valued feature, as numbers or as keys of values; null for a missing value.
        labels: float32 [rows], 0 or 1.
        hashes: uint64 [rows], hash of all values of each row.
    """

    table: pl.DataFrame
    labels: NDArray[np.float32]
    hashes: NDArray[np.uint64]

    @property
    def rows(self) -> int:
        """Number of rows of the sample."""
        return len(self.labels)


def findings_of_sample(sample: LogSample) -> list[Finding]:
    """Return the findings about a sample of a log."""
    if sample.rows < _FEWEST_ROWS:
        return [Finding("few", None, f"Only {sample.rows} rows can be read, too few for findings: give more rows.")]
    found = [finding for series in sample.table.get_columns() for finding in _of_column(series, sample.labels)]
    last = sample.labels[int(sample.rows * 0.9) :]
    found += _too_few_positives(int(last.sum()), len(last))
    copies = 1 - len(np.unique(sample.hashes)) / sample.rows
    if copies > _MOST_COPIES:
        words = f"{copies:.1%} of the rows are exact copies of others"
        found.append(Finding("duplicates", None, f"{words}: check that the log was not written or joined twice."))
    cut = int(sample.rows * 0.9)
    rates, sizes = [float(part.mean()) for part in (sample.labels[:cut], last)], (cut, sample.rows - cut)
    error = math.sqrt(sum(rate * (1 - rate) / size for rate, size in zip(rates, sizes, strict=True)))
    if abs(rates[0] - rates[1]) > max(4 * error, 0.2 * rates[0]):
        words = f"The share of positive labels is {rates[0]:.1%}, but {rates[1]:.1%} in the last tenth of the rows"
        found.append(Finding("drift", None, f"{words}: check that all rows were collected in the same way."))
    return found


def unmatched_rows(by_file: Mapping[str, int], rows: int) -> Iterator[Finding]:
    """Yield a finding for each joined table that lacks keys of the log."""
    for file, missed in by_file.items():
        if missed:
            share = f"{missed:,} of {rows:,} rows ({missed / max(rows, 1):.1%})"
            yield Finding(
                "join", file, f"{share} have no partner in {file}: the joined columns are missing in these rows."
            )


def left_out_rows(left_out: int, rows: int) -> Iterator[Finding]:
    """Yield a finding if the schema leaves out some of the rows."""
    if left_out:
        share = f"{left_out:,} of {rows:,} rows ({left_out / rows:.1%})"
        yield Finding("left out", None, f"{share} are left out by where, min_rows, k_core or negatives.")


def drawn_negatives(rows: int, rate: float) -> Finding:
    """Return the finding that reports the number and the rate of the sampled negatives."""
    share = f"{rows:,} negatives, {rate:.3g} of all"
    return Finding(
        "negatives",
        None,
        f"{share}, are sampled as the schema requests; predictions are corrected for the sampling rate.",
    )


def counted_sessions(sessions: int, rows: int) -> Finding:
    """Return the finding that reports the number of sessions and their mean length in rows."""
    words = f"{sessions:,} sessions of {rows:,} rows ({rows / max(sessions, 1):.1f} each) are divided by gaps in time."
    return Finding("sessions", None, words)


def columns_that_vary(columns: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield a finding for each column that differs between the files of a log."""
    for name, kinds in columns.items():
        if "absent" in kinds:
            yield Finding("column gone", name, f"{name} is absent in some files: its values are missing in their rows.")
        if len(others := [kind for kind in kinds if kind != "absent"]) > 1:
            words = f"{name} is of kind {' in some files and '.join(others)} in others: equal values stay one value."
            yield Finding("type changed", name, words)


def findings_of_dataset(dataset: Dataset) -> list[Finding]:
    """Return the findings that the statistics of an ingested data set allow, without reading the data again."""
    rows, found = dataset.splits["train"].rows, [*unmatched_rows(dataset.unmatched_rows, dataset.rows)]
    found += columns_that_vary(dataset.varying_columns)
    found += left_out_rows(dataset.left_out_rows, dataset.rows + dataset.left_out_rows)
    for field in dataset.fields:
        if field.missing_share >= _EMPTY_SHARE:
            found.append(_useless("empty", field.name))
        elif field.kind == "categorical" and field.cardinality == 1 and field.missing_share == 0:
            found.append(_useless("constant", field.name))
        elif field.kind == "categorical" and rows >= _FEWEST_ROWS and field.cardinality >= _UNIQUE_SHARE * rows:
            found.append(_useless("unique", field.name))
    found += [merged_writings(field.name, field.merged_texts) for field in dataset.fields if field.merged_texts]
    test = dataset.splits["test"]
    found += _missed_shares(dataset)
    if (test.repeated_share or 0.0) > _MOST_COPIES:
        words = f"{test.repeated_share:.1%} of the test rows repeat training rows, label included: figures on the test "
        words += "part are better than on new rows; give a test part without them."
        found.append(Finding("repeated", None, words))
    found += [Finding("vectors", given.field, given.sentence) for given in given_vectors(dataset)]
    found += [Finding("learned", field, words) for field, words in learned_words(dataset)]
    is_chosen_alone = all(split.positives == split.rows for split in dataset.splits.values())  # data of ranking models
    has_no_classes = is_chosen_alone or dataset.features.number is not None
    return found if has_no_classes else [*found, *_too_few_positives(test.positives, test.rows)]


def _of_column(series: pl.Series, labels: NDArray[np.float32]) -> Iterator[Finding]:
    name, present = series.name, series.is_not_null().to_numpy()
    distinct = series.drop_nulls().n_unique()
    if present.mean() <= 1 - _EMPTY_SHARE:
        yield _useless("empty", name)
    elif distinct == 1 and present.all():
        yield _useless("constant", name)
    else:
        if series.dtype.is_integer() and distinct >= _UNIQUE_SHARE * present.sum():
            yield _useless("unique", name)
        auc = _alone(series, present, labels)
        if auc >= LEAK_AUC:
            yield Finding(
                "leak",
                name,
                f"{name} alone predicts the label (AUC {auc:.3f}): leave it out if it is known only after the fact.",
            )
        yield from _drift(series)


def _alone(series: pl.Series, present: NDArray[np.bool_], labels: NDArray[np.float32]) -> float:
    """Return the highest AUC of a column alone; the score is presence, value, or label rate of the value."""
    aucs = [area(present.astype(float), labels)]
    if series.dtype.is_float():
        aucs.append(area(series.fill_null(series.mean()).to_numpy(), labels))
    else:
        frame = pl.DataFrame({"value": series, "label": labels})
        even = np.arange(len(labels)) % 2 == 0
        rates = frame.filter(even).group_by("value").agg(pl.col("label").mean().alias("rate"))
        other = frame.filter(~even).join(rates, on="value", how="left", nulls_equal=True, maintain_order="left")
        scores = other["rate"].fill_null(float(labels[even].mean())).to_numpy()
        return max(*aucs, 1 - min(aucs), area(scores, other["label"].to_numpy()))
    return max(max(auc, 1 - auc) for auc in aucs)


def area(scores: NDArray[np.floating], labels: NDArray[np.floating]) -> float:
    """Return the area under the ROC curve, ties counted half; 0.5 if only one class is present."""
    positives = int((labels == 1).sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return 0.5
    ranks = pl.Series(scores).rank("average").to_numpy()
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _drift(series: pl.Series) -> Iterator[Finding]:
    """Yield a finding if the values of the last tenth of the rows are distributed differently from the rows before."""
    cut = int(len(series) * 0.9)
    apart, by_chance = (_numbers_apart if series.dtype.is_float() else _values_apart)(series[:cut], series[cut:])
    if apart > _MOST_DRIFT + by_chance:
        yield Finding(
            "drift",
            series.name,
            f"{series.name} has other values in the last tenth of the rows than before (distance {apart:.2f} of 1): a "
            "model learned from the earlier rows may not fit.",
        )


def _values_apart(before: pl.Series, last: pl.Series) -> tuple[float, float]:
    """Return the total variation distance of two samples (rare values pooled), and its expected size without drift."""
    one, two = (part.alias("value").value_counts(name="count") for part in (before, last))
    frequent = one.sort("count", descending=True).head(_FREQUENT_VALUES)
    both = frequent.join(two, on="value", how="left", nulls_equal=True).fill_null(0)
    shares = both["count"].to_numpy() / len(before), both["count_right"].to_numpy() / len(last)
    apart = float(np.abs(shares[0] - shares[1]).sum() + abs(shares[0].sum() - shares[1].sum())) / 2
    return apart, float(np.sqrt(shares[0] * (1 - shares[0]) / len(last)).sum())


def _numbers_apart(before: pl.Series, last: pl.Series) -> tuple[float, float]:
    """Return the Kolmogorov-Smirnov distance of two samples, and its critical value at the 5 % level."""
    one, two = (np.sort(part.drop_nulls().to_numpy()) for part in (before, last))
    if not len(one) or not len(two):
        return 0.0, 0.0
    points = np.concatenate([one, two])
    shares = [np.searchsorted(values, points, side="right") / len(values) for values in (one, two)]
    return float(np.abs(shares[0] - shares[1]).max()), 1.36 * math.sqrt(1 / len(one) + 1 / len(two))


def _too_few_positives(positives: int, rows: int) -> Iterator[Finding]:
    """Yield a finding if a class is empty, or if the standard error of the test AUC exceeds `AUC_APART`."""
    error = auc_error(positives, rows - positives)
    if positives in (0, rows):
        label = int(positives > 0)
        yield Finding(
            "one_class",
            None,
            f"The test part would hold only the label {label} ({rows:,} rows), so no AUC can be measured: models of "
            "clicks need both labels; with the label 1 alone use a model that ranks items.",
        )
    elif error > AUC_APART:
        yield Finding(
            "few",
            None,
            f"The test part holds about {positives:,} positive rows of {rows:,}, so chance alone moves its AUC by "
            f"{error:.3f}: smaller differences between models are not significant; give more rows.",
        )


def _missed_shares(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding if rows of equal time, which share a split, move the split sizes off the requested shares."""
    if dataset.time_cuts is None or dataset.asked_shares is None:
        return
    shares = [split.rows / dataset.rows for split in dataset.splits.values()]
    if max(abs(share - asked) for share, asked in zip(shares, dataset.asked_shares, strict=True)) > _MOST_SHARE_MISSED:
        validation, test = date_texts(*dataset.time_cuts) or [f"{time:g}" for time in dataset.time_cuts]
        rows = " / ".join(f"{split.rows:,}" for split in dataset.splits.values())
        found, asked = (" / ".join(f"{share:.0%}" for share in part) for part in (shares, dataset.asked_shares))
        yield Finding(
            "split",
            None,
            f"Rows of one time stay together, so train / validation / test hold {rows} rows ({found}) instead of "
            f"{asked}: validation begins at {validation}, test at {test}. Log the time of day, or split by hash (no "
            "`time` in the schema).",
        )


def _useless(kind: str, name: str) -> Finding:
    """Return the finding that a column is `empty`, `constant` or `unique`, so that nothing can be learned from it."""
    words = {
        "empty": "is empty: leave it out of the schema.",
        "constant": "always holds the same value: leave it out of the schema.",
        "unique": "has a different value in nearly every row, so nothing can be learned from it.",
    }
    return Finding(kind, name, f"{name} {words[kind]}")


def merged_writings(name: str, texts: Sequence[str]) -> Finding:
    """Return the finding that names different texts of a column which are read as one value."""
    return Finding(
        "writing",
        name,
        f"{name}: {' and '.join(texts)} are read as one value. If they differ, write `{{column: {name}, text: true}}` "
        "in the schema.",
    )
