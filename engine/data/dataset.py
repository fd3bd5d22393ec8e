"""Ingested data set: a folder of arrays from which a training step reads without per-row Python code.

Files of the folder, for each split in `train`, `validation`, `test`:

    dataset.json                       this module's `Dataset`, written last: without it the folder is not a data set
    {split}.label.npy                  float32 [rows], or [rows, tasks] with several labels; NaN is a missing label
    {split}.weight.npy                 float32 [rows], not negative; absent when all samples have equal weight
    {split}.time.npy                   float64 [rows], in the unit of the time column; absent without one, and for the
                                       training part unless it is ranked and the log is not sorted by time
    test.user_key.npy                  uint64  [rows], key of the value of the user column; absent without a user
    {split}.dense.npy                  float32 [rows, dense features]; absent when there are none
    {split}.categorical.npy            int32   [rows, single-valued fields]; absent when there are none
    {split}.bag{i}.values.npy          int32   [ids]      i = index of the multi-valued field in Features.categorical
    {split}.bag{i}.offsets.npy         int64   [rows + 1]
    {split}.bag{i}.weights.npy         float32 [ids]      weight of each id in its bag; absent when all are equal
    encoder/                           encoder from a raw row to these arrays (written and read by shunter.tasks.ingest)
    quarantine.csv                     source, line, reason of every rejected row
    checksums.json                     checksums of all files above, see `shunter.checked_folder`
"""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shunter.checked_folder import verify_file
from shunter.checked_json import parse_json
from shunter.engine.data.arrays import damage_reported, read_array
from shunter.models.spec import Features
from shunter.record import OPTIONAL, Record

DESCRIPTION = "dataset.json"
SPLITS = ("train", "validation", "test")
SplitName = Literal["train", "validation", "test"]


@dataclass(frozen=True, kw_only=True)
class LabelStatistics:
    """Counts of one split for a label other than the main label.

    Attributes:
        name: Name of the label's task.
        rows: Rows that have this label.
        positives: Rows whose label is 1.
    """

    name: str
    rows: int
    positives: int


@dataclass(frozen=True, kw_only=True)
class SplitStatistics(Record):
    """Counts of rows and labels of one split.

    Attributes:
        rows: Rows of the split; each has the main label.
        positives: Rows whose main label is 1.
        others: Statistics of the other labels, in their order.
        repeated_share: Share of the rows that repeat training rows, label included; None if rows were not compared.
        mean: Mean label, if labels are numbers; None for clicks.
    """

    rows: int
    positives: int
    others: tuple[LabelStatistics, ...] = ()
    repeated_share: float | None = None
    mean: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def base_rate(self) -> float:
        """Share of positive labels, or the mean of labels that are numbers."""
        return self.positives / self.rows if self.mean is None else self.mean


@dataclass(frozen=True, kw_only=True)
class FieldStatistics:
    """Statistics of one field, over the training split.

    Attributes:
        name: Name of the field.
        kind: `numeric`, `categorical`, `multi_valued` or `sequence`.
        cardinality: Number of distinct raw values (0 for a numeric field).
        missing_share: Share of rows without a value.
        access_curve: Points (share of ids, share of their lookups), most frequent ids first; empty for numeric fields.
        merged_texts: Two texts that are read as one value, such as 3.1 and 3.10; empty if there are none.
    """

    name: str
    kind: str
    cardinality: int
    missing_share: float
    access_curve: tuple[tuple[float, float], ...] = ()
    merged_texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Ingested data set in the cache.

    Attributes:
        name: Name given by the user: a named data set or the stem of the file.
        directory: Folder of the arrays.
        fingerprint: Hash of source bytes, schema and code version.
        features: Input of a model for this data.
        splits: Statistics of `train`, `validation`, `test`.
        split_by: `time` (validation and test use later rows), `time of each user`, `hash`, `day` or `given parts`.
        fields: Statistics of each field, dense fields first.
        quarantined_rows: Rows rejected while reading.
        user: Name of the user field, for graph models; None if the schema does not name it.
        item: Name of the item field; None if the schema does not name it.
        group: Name of the field whose rows compete, such as a session; None if the schema does not name it.
        is_weighted: Whether samples have weights.
        time_range: First and last time of all rows, in the unit of the time column (dates in microseconds since 1970);
            None if rows are not split by time.
        time_cuts: First time of the validation part and of the test part; None if rows are not split by time.
        asked_shares: Shares of the parts that the schema requests; None if rows are not split by time.
        is_in_order_of_time: Whether the log is sorted by time; None if that is unknown.
        unmatched_rows: Number of log rows without a matching row in a joined table, by the table's file.
        varying_columns: Kinds of the columns that differ between the files of the log, by column; `absent` is one kind.
        derived_from: Columns of raw rows from which features are derived, and which are not fields themselves.
        left_out_rows: Rows that the schema leaves out, by `where`, `min_rows`, `k_core` or `negatives`.
        where: Predicate that chose the rows; None for all rows.
        negative_rate: Sampled negatives per positive, divided by the number of other items; None if the log
            itself contains negatives.
        sessions: Number of sessions, divided by time gaps; 0 if the schema divides no sessions.
        versions: Versions of tables that were read, as `--data` takes them; empty for files.
    """

    name: str
    directory: Path
    fingerprint: str
    features: Features
    splits: dict[str, SplitStatistics]
    split_by: str
    fields: tuple[FieldStatistics, ...]
    quarantined_rows: int
    user: str | None = None
    item: str | None = None
    group: str | None = None
    is_weighted: bool = False
    time_range: tuple[float, float] | None = None
    time_cuts: tuple[float, float] | None = None
    asked_shares: tuple[float, float, float] | None = None
    is_in_order_of_time: bool | None = None
    unmatched_rows: dict[str, int] = field(default_factory=dict)
    left_out_rows: int = 0
    sessions: int = 0
    where: str | None = None
    negative_rate: float | None = None
    varying_columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    derived_from: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def grouped_by(self) -> str | None:
        """Field of the groups within which rows are ranked: that of the schema, else the user."""
        return self.group or self.user

    @property
    def rows(self) -> int:
        """Number of rows in all splits."""
        return sum(split.rows for split in self.splits.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, without the folder: the file is stored in that folder."""
        values = asdict(self)
        del values["directory"], values["versions"]  # equal content of two versions is one data set
        optional = ("unmatched_rows", "left_out_rows", "where", "negative_rate", "varying_columns", "derived_from")
        for name in (*optional, "group", "sessions"):
            if not values[name]:
                del values[name]
        if self.features.number is None:
            del values["features"]["number"]
            for split in values["splits"].values():
                del split["mean"]
        return values

    def save(self) -> None:
        """Write `dataset.json` into the folder: the last write of an ingestion."""
        (self.directory / DESCRIPTION).write_text(json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, directory: Path) -> "Dataset":
        """Read the description of the data set in `directory`.

        Raises:
            FileNotFoundError: The folder holds no finished data set.
            DataError: The description is damaged; if a checksum does not match, the data set is quarantined.
        """
        path = directory / DESCRIPTION
        if not path.exists():
            raise FileNotFoundError(path)
        with damage_reported(path):
            verify_file(path)
            try:
                return cls._of(parse_json(path.read_text()), directory)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"the file does not describe a data set ({type(error).__name__})") from error

    @classmethod
    def _of(cls, values: dict[str, Any], directory: Path) -> "Dataset":
        tuples = ("time_range", "time_cuts", "asked_shares", "derived_from")
        return cls(
            **{
                **values,
                "directory": directory,
                **{name: tuple(values[name]) for name in tuples if values.get(name) is not None},
                "features": Features.from_dict(values["features"]),
                "splits": {name: SplitStatistics.from_dict(split) for name, split in values["splits"].items()},
                "fields": tuple(
                    FieldStatistics(
                        **{
                            **field,
                            "access_curve": tuple(map(tuple, field["access_curve"])),
                            "merged_texts": tuple(field.get("merged_texts", ())),
                        }
                    )
                    for field in values["fields"]
                ),
            }
        )


SECONDS_OF_DAY = 86_400
PER_SECOND = (1, 1e3, 1e6, 1e9)  # possible units of a time since 1970, per second
EARLIEST, LATEST = 1e8, 1e10  # plausible seconds since 1970


def days_of(dataset: Dataset, split: SplitName) -> np.ndarray | None:
    """Return the days since 1970 in UTC of `validation` or `test`, int64 `[rows]`; None without times since 1970."""
    if dataset.time_range is None:
        return None
    unit = _unit_of(*dataset.time_range)
    path = dataset.directory / f"{split}.time.npy"
    if unit is None or not path.exists():  # ingested by a version that stored no times
        return None
    times = read_array(path)
    assert len(times) == dataset.splits[split].rows, f"{path} holds a time for each row"
    return np.floor(times / unit / SECONDS_OF_DAY).astype(np.int64)


def date_texts(*times: float) -> list[str]:
    """Return ascending times as dates in UTC; an empty list if they are not times since 1970."""
    unit = _unit_of(times[0], times[-1])
    if unit is None:
        return []
    dates = [datetime.fromtimestamp(time / unit, UTC) for time in times]
    return [date.isoformat(sep=" ", timespec="seconds") for date in dates]


def _unit_of(first: float, last: float) -> float | None:
    return next((unit for unit in PER_SECOND if EARLIEST <= first / unit <= last / unit < LATEST), None)
