"""Encoder from raw columns to the input arrays of a model, fitted once and used by ingestion and serving."""

import hashlib
import json
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import polars as pl
from numpy.typing import NDArray

from shunter.checked_folder import verify_file
from shunter.checked_json import parse_json
from shunter.engine.data.arrays import damage_reported, read_npz
from shunter.errors import ColumnError, DataError
from shunter.ingestion.batch import MISSING_KEY, Bag, Columns
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.buckets import BucketIds, number_keys
from shunter.ingestion.encoding.columns import KeyKind
from shunter.ingestion.encoding.encoded import EncodedBag, EncodedRows
from shunter.ingestion.encoding.learned_map import LearnedMap, read_learned_maps, write_vocabularies
from shunter.ingestion.encoding.value_counts import ValueCounts, flags_of_ids, flags_of_numbers
from shunter.ingestion.encoding.value_statistics import STATED, ValueStatistic
from shunter.ingestion.encoding.vocabulary import HashedIds, IdMap, Keys, VocabularyIds
from shunter.ingestion.fields import USUAL_TEXTS, TextForm, TextKind, ValueForm
from shunter.models.spec import CategoricalFeature, Features

FORMAT_VERSION = 1
STATISTICS = "statistics.npz"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile)
FEW_ROWS = 1_024  # up to this number of rows, values are hashed without removing duplicates first


@dataclass(frozen=True)
class NumericField:
    """Numeric column, encoded as its signed logarithm, standardised over the training split.

    x becomes (sign(x) * log(1 + |x|) - mean) / deviation; a missing value becomes 0, which is the mean.
    """

    name: str
    mean: float
    deviation: float

    def encode(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the encoded numbers of a column, float32 [rows]; NaN is a missing value and becomes 0."""
        scaled = (signed_log(values) - np.float32(self.mean)) / np.float32(self.deviation)
        scaled[np.isnan(scaled)] = 0
        return scaled


@dataclass(frozen=True)
class CategoricalField:
    """Categorical column with the map to its ids.

    Attributes:
        name: Name of the field, which is the column unless `column` is set.
        ids: Map from keys to ids.
        multi_valued: Whether a row holds any number of values.
        separator: Separator of the values in a text, for a multi-valued column.
        key_kind: Source of the key: the canonical text of the `value`, the text as `written`, the canonical `text` of
            older models, the `hexadecimal` number of a text, or the `number` itself.
        length: Largest number of values in a history (the latest values, oldest first); None if no history.
        table: Field whose ids and embedding table this field shares; None for a table of its own.
        is_built: Whether ingestion built the history or the session from earlier rows. A frame to score may hold
            the history or session as a column, else the value is missing.
        column: Name of the column if it differs from `name`, for a column that is also a numeric field.
        weights: Column with a weight for each value of a multi-valued column; None for equal weights.
        cross: Columns whose combination of values is the value of this field; empty for a single column.
    """

    name: str
    ids: IdMap
    multi_valued: bool = False
    separator: str | None = None
    key_kind: KeyKind = "text"
    length: int | None = None
    table: str | None = None
    is_built: bool = False
    column: str | None = None
    weights: str | None = None
    cross: tuple[str, ...] = ()

    def are_numbers(self, series: pl.Series | None) -> bool:
        """Return True if a column holds numbers although the field has the key kind `written` (`text: true`)."""
        if self.key_kind != "written" or series is None:
            return False
        dtype = series.dtype
        return (dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype).is_numeric()

    def flags(self, series: pl.Series | None, keys: Keys, ids: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return the flags of the values of a column, see `ValueFlag`, from their keys and ids."""
        return flags_of_ids(ids, keys != MISSING_KEY, number_for_text=self.are_numbers(series))


def signed_log(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return sign(x) * log(1 + |x|), the logarithm of a count, also defined for negative numbers."""
    return np.copysign(np.log1p(np.abs(values)), values)


class Encoder:
    """Encoder of raw rows as model input, stored in the folder of the data set and in the registered model."""

    def __init__(
        self,
        numeric: tuple[NumericField, ...],
        categorical: tuple[CategoricalField, ...],
        form: ValueForm = ValueForm.FORMER,
        text_form: TextForm = USUAL_TEXTS,
        statistics: tuple[ValueStatistic, ...] = (),
        *,
        log_odds_shift: float = 0.0,
    ) -> None:
        """Set the fields that the encoder converts.

        Args:
            numeric: Numeric fields in the order of the dense array.
            categorical: Categorical fields in the order of `Columns`: single-valued, multi-valued, histories.
            form: Version of the canonical form of values.
            text_form: Notation of the texts in the log and in rows to score.
            statistics: Target and count encodings, which follow the numeric fields in the dense array.
            log_odds_shift: Correction that predictions add to a model's log odds, if its negatives were sampled.
        """
        self.numeric = numeric
        self.categorical = categorical
        self.form = form
        self.text_form = text_form
        self.statistics = statistics
        self.log_odds_shift = log_odds_shift
        self._amounts = read.amount_reader(form)

    @property
    def features(self) -> Features:
        """Features of a model on the encoded rows; a field that shares a table directly follows the table's owner."""
        categorical = tuple(
            CategoricalFeature(
                name=field.name,
                rows=field.ids.rows,
                multi_valued=field.multi_valued,
                length=field.length,
                table=field.table,
                weights=field.weights,
            )
            for field in self.model_order()
        )
        dense = tuple(field.name for field in (*self.numeric, *self.statistics))
        return Features(dense=dense, categorical=categorical)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that raw rows must have."""
        must = [field for field in self.categorical if not field.is_built]
        names = [name for field in must for name in field.cross or (field.column or field.name,)]
        names = [*(field.name for field in self.numeric), *names]
        return tuple(dict.fromkeys([*names, *(field.weights for field in must if field.weights is not None)]))

    @cached_property
    def counted_columns(self) -> tuple[str, ...]:
        """Columns whose values are counted, in the order of `ValueCounts`, with the multi-valued columns last."""
        single = [field.column or field.name for field in self.categorical if not field.multi_valued]
        return (*(field.name for field in self.numeric), *single, *(field.name for field in self.bag_fields))

    @property
    def list_columns(self) -> frozenset[str]:
        """Columns of raw rows that may hold lists."""
        several = [field for field in self.categorical if field.multi_valued]
        return frozenset(name for field in several for name in (field.name, field.weights) if name is not None)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Optional columns of raw rows: histories and sessions that ingestion builds from other rows."""
        return tuple(field.name for field in self.categorical if field.is_built)

    def count(self, rows: EncodedRows | None = None) -> ValueCounts:
        """Count known, unknown, missing and unreadable values of rows that were encoded for scoring."""
        if rows is None:
            return ValueCounts.of(self.counted_columns)
        return ValueCounts.of(self.counted_columns, rows.flags, rows.bags)

    def encode(self, frame: pd.DataFrame) -> EncodedRows:
        """Encode raw rows in the form of the source; unknown columns are ignored.

        A value not seen in training gets id 0, and an unreadable number is encoded as missing. The flags of the rows
        distinguish both from missing values.

        Raises:
            DataError: A column is missing.
        """
        columns: Any = frame  # untyped, since pandas types `frame[name]` as a column or a frame
        names = frame.columns
        held = (name if name in names else read.holder_of(name, names) or name for name in self._read_of(names))
        table = {name: read.from_pandas(columns[name]) for name in dict.fromkeys(held)}
        return self.encode_table(table, len(frame))

    def encode_table(self, table: Mapping[str, pl.Series], rows: int) -> EncodedRows:
        """Encode polars columns of raw rows, with the flags of unknown, missing and unreadable values.

        Args:
            table: Columns by name; unknown columns are ignored.
            rows: Number of rows.

        Raises:
            DataError: A column is missing.
        """
        cut = {field.column or field.name for field in self.categorical if field.key_kind == "number"}
        amounts = {*cut, *(field.name for field in self.numeric)}
        parts = read.with_parts(table, self._read_of(table), "the rows")
        for name, series in parts.items():
            if isinstance(series.dtype, pl.List | pl.Array) and name not in self.list_columns:
                raise ColumnError(name, "the rows", "holds lists, but the model needs single values")
        table = {name: self.plain(series, is_number=name in amounts) for name, series in parts.items()}
        single = [field for field in self.categorical if not field.multi_valued]
        absent = [field.name for field in single if field.is_built and field.name not in table]
        table |= {name: pl.repeat(None, rows, dtype=pl.String, eager=True) for name in absent}
        numeric = np.empty((len(self.numeric), rows), np.float32)
        keys = np.empty((len(single), rows), np.uint64)
        flags = np.empty((len(numeric) + len(keys), rows), np.uint8)
        of_numbers, of_ids = flags[: len(numeric)], flags[len(numeric) :]
        for index, found in enumerate(self._amounts([table[field.name] for field in self.numeric])):
            numeric[index], of_numbers[index] = found[0], flags_of_numbers(*found)
        rest = list(range(len(single)))
        if rows <= FEW_ROWS:
            for kind in get_args(TextKind):
                fields = [(place, single[place]) for place in rest]
                texts = [
                    place
                    for place, field in fields
                    if field.key_kind == kind and not field.cross and _column_of(field, table).dtype == pl.String
                ]
                found = read.text_keys_of([_column_of(single[place], table) for place in texts], kind)
                keys[texts] = np.reshape(found, (len(texts), rows))
                rest = [place for place in rest if place not in texts]
        for index in rest:
            field = single[index]
            if field.cross:
                keys[index] = read.cross_keys([table[name] for name in field.cross], field.key_kind)
                continue
            series = _column_of(field, table)
            if field.key_kind == "number":
                [(values, unreadable)] = self._amounts([series])
                keys[index], of_ids[index] = number_keys(values), flags_of_numbers(values, unreadable)
            else:
                keys[index] = read.keys(series, field.key_kind)
        bags = [read_bags(table, field, rows) for field in self.categorical if field.multi_valued]
        encoded = self.encode_columns(Columns(numeric, keys, bags))
        for index, field in enumerate(single):
            if field.key_kind != "number":
                series = None if field.cross else _column_of(field, table)
                of_ids[index] = field.flags(series, keys[index], encoded.categorical[:, index])
        are_numbers = [field.are_numbers(table.get(field.name)) for field in self.bag_fields]
        marked = [bag._replace(are_numbers=one) for bag, one in zip(encoded.bags, are_numbers, strict=True)]
        return replace(encoded, flags=flags, bags=marked)

    def plain(self, series: pl.Series, *, is_number: bool) -> pl.Series:
        """Return a raw column with texts in the usual form; texts of missing values become null."""
        return read.in_usual_form(read.lossy_text(series), self.text_form, is_number)

    def encode_columns(self, columns: Columns) -> EncodedRows:
        """Encode columns read by a source, without flags."""
        single = [field for field in self.categorical if not field.multi_valued]
        bag_of = dict(zip((field.name for field in self.categorical if field.multi_valued), columns.bags, strict=True))
        dense = np.empty((columns.rows, len(self.numeric) + len(self.statistics)), np.float32)
        for index, (field, values) in enumerate(zip(self.numeric, columns.numeric, strict=True)):
            dense[:, index] = field.encode(values)
        keys_of = dict(zip((field.name for field in single), columns.keys, strict=True))
        for index, statistic in enumerate(self.statistics, len(self.numeric)):
            dense[:, index] = statistic.encode(keys_of[statistic.field])
        categorical = np.empty((columns.rows, len(single)), np.int32)
        for index, (field, keys) in enumerate(zip(single, columns.keys, strict=True)):
            categorical[:, index] = field.ids.ids(keys)
        bags = []
        for field in self.bag_fields:
            bag = bag_of[field.name]
            weights = None if field.weights is None else bag.weights
            if field.weights is not None and weights is None:
                weights = np.ones(len(bag.keys), np.float32)
            bags.append(EncodedBag(field.ids.ids(bag.keys), bag.offsets, weights))
        return EncodedRows(dense, categorical, bags)

    def digest(self) -> str:
        """Return a SHA-256 hash of everything that determines the encoded ids and numbers."""
        found = hashlib.sha256(repr(self.numeric).encode())
        if self.form is not ValueForm.FORMER:
            found.update(repr(int(self.form)).encode())
        found.update(b"" if self.text_form == USUAL_TEXTS else self.text_form.model_dump_json().encode())
        for one in self.statistics:
            found.update(repr([getattr(one, name) for name in STATED]).encode() + one.keys.tobytes())
            found.update(one.values.tobytes() + (b"" if one.counts is None else one.counts.tobytes()))
        if self.log_odds_shift:
            found.update(repr(self.log_odds_shift).encode())
        for field in self.categorical:
            found.update(repr((field.name, field.multi_valued, field.separator, field.key_kind)).encode())
            if field.length is not None:
                found.update(repr((field.length, field.table, field.is_built)).encode())
            if field.weights is not None:
                found.update(repr(field.weights).encode())
            if field.cross:
                found.update(repr(field.cross).encode())
            ids = field.ids
            if isinstance(ids, BucketIds):
                found.update(repr((ids.edges, field.column)).encode())
            if isinstance(ids, LearnedMap):
                found.update(b"".join(array.tobytes() for array in ids.arrays.values()))
            found.update(ids.keys.tobytes() if isinstance(ids, VocabularyIds) else repr(ids.rows).encode())
        return found.hexdigest()

    def save(self, directory: Path) -> None:
        """Write `encoder.json`, `vocabulary.npz` and any `statistics.npz` to `directory`; no file holds code."""
        directory.mkdir(parents=True, exist_ok=True)
        categorical = [
            {
                "name": field.name,
                "multi_valued": field.multi_valued,
                "separator": field.separator,
                "key_kind": field.key_kind,
                "hash_size": field.ids.size if isinstance(field.ids, HashedIds) else None,
                "length": field.length,
                "table": field.table,
                "is_built": field.is_built,
                **({"edges": field.ids.edges, "column": field.column} if isinstance(field.ids, BucketIds) else {}),
                **({"is_learned": True} if isinstance(field.ids, LearnedMap) else {}),
                **({} if field.weights is None else {"weights": field.weights}),
                **({"cross": field.cross} if field.cross else {}),
            }
            for field in self.categorical
        ]
        values = {
            "format_version": FORMAT_VERSION,
            "value_form": int(self.form),
            "numeric": [asdict(field) for field in self.numeric],
            "categorical": categorical,
            **({} if self.text_form == USUAL_TEXTS else {"text_form": self.text_form.model_dump(mode="json")}),
        }
        if self.log_odds_shift:
            values["log_odds_shift"] = self.log_odds_shift
        if self.statistics:
            values["statistics"] = [{name: getattr(one, name) for name in STATED} for one in self.statistics]
            arrays = {
                f"{part}.{one.name}": array
                for one in self.statistics
                for part in ("keys", "values", "counts")
                if (array := getattr(one, part)) is not None
            }
            np.savez(directory / STATISTICS, **arrays)
        (directory / "encoder.json").write_text(json.dumps(values, indent=1))
        own = {field.name: field.ids for field in self.categorical if field.table is None}
        write_vocabularies(
            directory,
            [ids.keys for ids in own.values() if isinstance(ids, VocabularyIds)],
            {name: ids for name, ids in own.items() if isinstance(ids, LearnedMap)},
        )

    @classmethod
    def load(cls, directory: str | Path) -> "Encoder":
        """Load an encoder written by `save`.

        Raises:
            DataError: `directory` holds no encoder, or an encoder of another format version.
            DamagedDataError: The encoder of an ingested data set is damaged; the data set is quarantined.
            MissingExtensionError: A field has a learned map, and no extension reads it.
        """
        directory = Path(directory)
        description, vocabulary = directory / "encoder.json", directory / "vocabulary.npz"
        statistics = directory / STATISTICS
        with damage_reported(description):
            for path in (description, vocabulary, *([statistics] if statistics.exists() else [])):
                verify_file(path)
        try:
            values: dict[str, Any] = parse_json(description.read_text())
            of_values = read_npz(statistics) if "statistics" in values else {}
            found = [
                ValueStatistic(
                    **one,
                    keys=of_values[f"keys.{one['name']}"],
                    values=of_values[f"values.{one['name']}"],
                    counts=of_values.get(f"counts.{one['name']}"),
                )
                for one in values.get("statistics", [])
            ]
            stored = read_npz(vocabulary)
            keys, ends = stored["keys"], stored["ends"]
            learned = read_learned_maps(stored)
            if values["format_version"] != FORMAT_VERSION:
                raise ValueError(f"the format of the encoder is {values['format_version']} instead of {FORMAT_VERSION}")
            encoder = cls._of(values, keys, ends, learned)
            encoder.statistics = tuple(found)
            encoder.log_odds_shift = float(values.get("log_odds_shift", 0.0))
            return encoder
        except (*UNREADABLE, StopIteration) as error:
            raise DataError(
                f"The folder {directory} holds no readable encoder ({error}): export the model again, or "
                "remove the data set from the cache and run the command again."
            ) from error

    @classmethod
    def _of(
        cls, values: dict[str, Any], keys: NDArray[np.uint64], ends: NDArray[np.int64], learned: dict[str, LearnedMap]
    ) -> "Encoder":
        vocabularies = iter([VocabularyIds(keys[start:end]) for start, end in pairwise(ends)])
        categorical: dict[str, CategoricalField] = {}
        for field in values["categorical"]:
            categorical[field["name"]] = _load_field(field, vocabularies, learned, categorical)
        form = ValueForm(values.get("value_form", ValueForm.FORMER))
        numeric, text_form = (NumericField(**field) for field in values["numeric"]), values.get("text_form", {})
        return cls(tuple(numeric), tuple(categorical.values()), form, TextForm(**text_form))

    def model_order(self) -> list[CategoricalField]:
        """Return the categorical fields in order, each followed by the fields that share its table."""
        owners = [field for field in self.categorical if field.table is None]
        return [
            field
            for owner in owners
            for field in (owner, *(follower for follower in self.categorical if follower.table == owner.name))
        ]

    @property
    def bag_fields(self) -> list[CategoricalField]:
        """Multi-valued fields in the order of the model input."""
        return [field for field in self.model_order() if field.multi_valued]

    def check_columns(
        self, names: Collection[str], source: str = "The frame", whose: str = "that the model reads"
    ) -> None:
        """Raise for a required column that is missing or not unique; see `shunter.ingestion.encoding.columns`."""
        read.check_columns(source, names, self.columns, whose)

    def _read_of(self, names: Collection[str]) -> list[str]:
        """Return the required and the available optional columns; raise `DataError` if a required one is missing."""
        self.check_columns(names)
        return [*self.columns, *(name for name in self.optional_columns if name in names)]


def _column_of(field: CategoricalField, table: Mapping[str, pl.Series]) -> pl.Series:
    return table[field.column or field.name]


def read_bags(table: Mapping[str, pl.Series], field: CategoricalField, rows: int) -> Bag:
    """Return the bag of a multi-valued field, cut to the latest values for a history; empty if the column is missing.

    Raises:
        DataError: A row does not have one finite weight for each value.
    """
    series = table.get(field.name)
    if series is None:
        return Bag(np.empty(0, np.uint64), np.zeros(rows + 1, np.int64))
    if field.weights is not None:
        bag, bad = read.weighted_bags(series, table[field.weights], field.separator, field.key_kind)
        if bad.any():
            raise DataError(
                f"The column {field.weights} of weights has a missing or non-finite number in row "
                f"{int(bad.argmax())}: give a number for each value of {field.name}."
            )
        return bag
    bag = read.bags(series, field.separator, field.key_kind)
    return bag if field.length is None else bag.latest(field.length)


def _load_field(
    values: dict[str, Any],
    vocabularies: Iterator[VocabularyIds],
    learned: Mapping[str, LearnedMap],
    loaded: Mapping[str, CategoricalField],
) -> CategoricalField:
    hash_size, cross = values.pop("hash_size"), tuple(values.pop("cross", ()))
    edges = values.pop("edges", None)
    is_learned = values.pop("is_learned", False)
    if edges is not None:
        ids = BucketIds(edges)
    elif values.get("table") is not None:
        ids = loaded[values["table"]].ids
    elif is_learned:
        if values["name"] not in learned:
            raise DataError(
                f"The encoder lacks the learned map from values to table rows for {values['name']!r}: "
                "ingest the data again."
            )
        ids = learned[values["name"]]
    else:
        ids = next(vocabularies) if hash_size is None else HashedIds(hash_size)
    return CategoricalField(ids=ids, cross=cross, **values)
