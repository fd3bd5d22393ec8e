"""The ingested data set: a folder of arrays that a training step reads without touching a row in Python.

Layout of the folder, for each split in `train`, `validation`, `test`:

    dataset.json                       this module's `Dataset`, written last: without it the folder is not a data set
    {split}.label.npy                  float32 [rows], or [rows, tasks] where there are several labels; NaN is no label
    {split}.weight.npy                 float32 [rows], not negative; absent when all samples count alike
    {split}.time.npy                   float64 [rows], as the time's column has it; absent without one, and for the
                                       training part unless it is ranked and the log is not sorted by it
    test.user_key.npy                  uint64  [rows], a key of the value of the user's column; absent without a user
    {split}.dense.npy                  float32 [rows, dense features]; absent when there are none
    {split}.categorical.npy            int32   [rows, single-valued fields]; absent when there are none
    {split}.bag{i}.values.npy          int32   [ids]      i = index of the multi-valued field in Features.categorical
    {split}.bag{i}.offsets.npy         int64   [rows + 1]
    {split}.bag{i}.weights.npy         float32 [ids]      what each id counts in its bag; absent when all count alike
    encoder/                           what turns a raw row into the above (written and read by shunter.tasks.ingest)
    quarantine.csv                     source, line, reason of every rejected row
    checksums.json                     checksums of all files above, see `shunter.checked_folder`
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from shunter.checked_folder import verify_file
from shunter.engine.data.arrays import damage_reported
from shunter.models.spec import Features
from shunter.record import Record

DESCRIPTION = "dataset.json"
SPLITS = ("train", "validation", "test")
SplitName = Literal["train", "validation", "test"]


@dataclass(frozen=True, kw_only=True)
class LabelStatistics:
    """Balance of a label beside the main one, in one split.

    Attributes:
        name: Name of its task.
        rows: Rows that have this label.
        positives: among them.
    """

    name: str
    rows: int
    positives: int


@dataclass(frozen=True, kw_only=True)
class SplitStatistics(Record):
    """Size and balance of one split.

    Attributes:
        rows: Rows of the split; each has the main label.
        positives: Rows whose main label is 1.
        others: the other labels, in their order.
        repeated_share: Share of the rows that repeat training rows, label included; None where rows were not compared.
    """

    rows: int
    positives: int
    others: tuple[LabelStatistics, ...] = ()
    repeated_share: float | None = None

    @property
    def base_rate(self) -> float:
        """Share of positive labels."""
        return self.positives / self.rows


@dataclass(frozen=True, kw_only=True)
class FieldStatistics:
    """What was seen in one field, over the training split.

    Attributes:
        kind: `numeric`, `categorical`, `multi_valued` or `sequence`.
        cardinality: distinct raw values (0 for a numeric field).
        missing_share: share of rows without a value.
        access_curve: (share of ids, share of lookups they receive), most frequent ids first; empty for numeric fields.
        merged_texts: two texts that are read as one value, such as 3.1 and 3.10; empty where there are none.
    """

    name: str
    kind: str
    cardinality: int
    missing_share: float
    access_curve: tuple[tuple[float, float], ...] = ()
    merged_texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """An ingested data set in the cache.

    Attributes:
        name: Name given by the user: a named data set or the stem of the file.
        directory: folder of the arrays.
        fingerprint: hash of source bytes, schema and code version.
        features: the input that a model over this data takes.
        splits: statistics of `train`, `validation`, `test`.
        split_by: `time` (later rows are validated and tested on), `hash`, `day` or `given parts`.
        fields: statistics of each field, dense ones first.
        quarantined_rows: rows rejected while reading.
        user: name of the field that says who, for graph models; None where the schema does not say.
        item: name of the field that says what was chosen.
        is_weighted: whether samples have weights.
        time_range: first and last time of all rows, as the column of the time has them (dates in microseconds since
            1970); None where rows are not split by it.
        time_cuts: first time of the validation part and of the test part; None where rows are not split by time.
        asked_shares: shares of the parts that the schema asks for; None where rows are not split by time.
        is_in_order_of_time: whether no row of the log is earlier than the one before it; None where that is not known.
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
    is_weighted: bool = False
    time_range: tuple[float, float] | None = None
    time_cuts: tuple[float, float] | None = None
    asked_shares: tuple[float, float, float] | None = None
    is_in_order_of_time: bool | None = None

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return sum(split.rows for split in self.splits.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the folder is where the file lies, so it is left out."""
        values = asdict(self)
        del values["directory"]
        return values

    def save(self) -> None:
        """Write `dataset.json` into the folder: the last write of an ingestion."""
        (self.directory / DESCRIPTION).write_text(json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, directory: Path) -> "Dataset":
        """Read the description of the data set in `directory`.

        Raises:
            FileNotFoundError: The folder holds no finished data set.
            DataError: The description is damaged; the data set is quarantined if its checksums say so.
        """
        path = directory / DESCRIPTION
        if not path.exists():
            raise FileNotFoundError(path)
        with damage_reported(path):
            verify_file(path)
            try:
                return cls._of(json.loads(path.read_text()), directory)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"it describes no data set ({type(error).__name__})") from error

    @classmethod
    def _of(cls, values: dict[str, Any], directory: Path) -> "Dataset":
        tuples = ("time_range", "time_cuts", "asked_shares")
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
