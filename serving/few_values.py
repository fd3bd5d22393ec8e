"""Fast encoder of a few raw rows of Python values, as in a scoring request, to ids and numbers.

On a few values a call into a columnar library takes longer than its actual work, with several calls per field. This
encoder instead looks up each value in a dictionary of recent values. Only values not in the dictionary are encoded as
in ingestion, so ids and numbers are the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.buckets import number_keys
from shunter.ingestion.encoding.encoded import EncodedBag, EncodedRows
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder, read_bags, signed_log
from shunter.ingestion.encoding.value_counts import flags_of_ids, flags_of_numbers
from shunter.ingestion.fields import TextKind

MOST_REMEMBERED = 1 << 17  # largest number of cached values of all fields together, some 20 MB
LONGEST_REMEMBERED = 256  # largest number of characters in a cached text
UNKNOWN, MISSING = -1, 0  # special ids of unknown and missing values
_INT64 = range(-(2**63), 2**63)
_NUMBERS = frozenset({int, float, type(None)})
_TEXTS = frozenset({str, type(None)})
_WHOLE = frozenset({int, type(None)})
Column = Sequence[Any]


class ValueEncoder:
    """Encoder of rows given as lists of Python values, equivalent to an `Encoder`; not thread-safe."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._single = [field for field in encoder.categorical if not field.multi_valued]
        self._multi = encoder.bag_fields
        is_plain = all(field.weights is None and not field.cross for field in encoder.categorical)
        self._needs_table = not is_plain or bool(encoder.statistics)
        self._columns = frozenset([*encoder.columns, *(field.name for field in self._single if field.is_built)])
        self._mean = np.array([[field.mean] for field in encoder.numeric], np.float32).reshape(-1, 1)
        self._deviation = np.array([[field.deviation] for field in encoder.numeric], np.float32).reshape(-1, 1)
        most = MOST_REMEMBERED // max(len(encoder.categorical), 1)
        # Caches by field name, of ids or bags. Keys are texts and integers only, never booleans or floats, since 1, 1.0
        # and True are equal as dictionary keys.
        self._known = {field.name: _Remembered(most) for field in encoder.categorical}

    def encode(self, columns: Mapping[str, Any], rows: int) -> EncodedRows | None:
        """Encode raw rows.

        Args:
            columns: Lists of `rows` values by column name, for all columns of the encoder.
            rows: Number of rows.

        Returns:
            The same result as `Encoder.encode_table`. None if only `Encoder.encode_table` can encode the rows, because
            a column is not a list, has values of other types, or is split into parts. Other reasons are features with
            weights or from several columns, and texts that stand for missing values.
        """
        if self._needs_table or self._encoder.text_form.missing or not self._columns <= columns.keys():
            return None
        amounts = _as_numbers([columns[field.name] for field in self._encoder.numeric], rows)
        if amounts is None:
            return None
        found = self._ids(columns, rows)
        if found is None:
            return None
        categorical, of_ids = found
        bags: list[EncodedBag] = []
        for field in self._multi:
            values = columns.get(field.name)
            if values is None:
                bags.append(EncodedBag(np.empty(0, np.int32), np.zeros(rows + 1, np.int64)))
                continue
            if type(values) is not list or not _TEXTS.issuperset(map(type, values)):
                return None
            bags.append(self._bags(field, values))
        scaled = (signed_log(amounts[0]) - self._mean) / self._deviation
        scaled[np.isnan(scaled)] = 0
        flags = np.concatenate([flags_of_numbers(*amounts), of_ids])
        return EncodedRows(np.ascontiguousarray(scaled.T), categorical, bags, flags)

    def _ids(self, columns: Mapping[str, Any], rows: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]] | None:
        """Return ids, int32 [rows, columns], and `ValueFlag` bits, uint8 [columns, rows], of single-valued columns.

        The result is None if only `Encoder.encode_table` can encode a column.
        """
        marked = np.empty((rows, len(self._single)), np.int32)
        own_flags: dict[int, NDArray[np.uint8]] = {}
        unknown: list[tuple[int, CategoricalField, Column, list[Any]]] = []
        for place, field in enumerate(self._single):
            values = columns[field.column or field.name]
            if field.key_kind == "number":
                found = _as_numbers([values], rows)
                if found is None:
                    return None
                marked[:, place] = field.ids.ids(number_keys(found[0][0]))
                own_flags[place] = flags_of_numbers(*found)[0]
                continue
            if not _suits(values, field):
                return None
            found = self._known[field.name].of(values)
            if None in found:
                unknown.append((place, field, values, found))
            else:
                marked[:, place] = found
        for place, ids in self._looked_up(unknown):
            marked[:, place] = ids
        categorical = np.maximum(marked, 0)
        of_ids = flags_of_ids(categorical.T, marked.T != MISSING)
        for place, field in enumerate(self._single):
            if field.key_kind == "written" and int in map(type, columns[field.name]):
                own_flags[place] = flags_of_ids(
                    categorical[:, place], marked[:, place] != MISSING, number_for_text=True
                )
        for place, flags in own_flags.items():
            of_ids[place] = flags
        return categorical, of_ids

    def _looked_up(
        self, unknown: Sequence[tuple[int, CategoricalField, Column, list[Any]]]
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield index and ids of each column with uncached values; an id is `MISSING` for None, `UNKNOWN` if unseen.

        The keys of all fields of one kind are computed in one call.
        """
        missing = [_missing(values, found) for _, _, values, found in unknown]
        for kind in (*get_args(TextKind), "hexadecimal"):
            of_kind = [place for place, (_, field, _, _) in enumerate(unknown) if field.key_kind == kind]
            if not of_kind:
                continue
            texts = [None if one is None else str(one) for place in of_kind for one in missing[place]]
            keys = read.keys(pl.Series(texts, dtype=pl.String), kind)
            ends = accumulate(len(missing[place]) for place in of_kind)
            for place, part in zip(of_kind, np.split(keys, list(ends)[:-1]), strict=True):
                column, field, values, found = unknown[place]
                ids = field.ids.ids(part)
                ids[(ids == 0) & (part != MISSING_KEY)] = UNKNOWN
                new = dict(zip(missing[place], ids.tolist(), strict=True))
                yield column, self._known[field.name].filled(values, found, new)

    def _bags(self, field: CategoricalField, values: Column) -> EncodedBag:
        known = self._known[field.name]
        found = known.of(values)
        if None in found:
            missing = _missing(values, found)
            bag = read_bags({field.name: pl.Series(missing, dtype=pl.String)}, field, len(missing))
            ids = field.ids.ids(bag.keys).tolist()
            parts = [tuple(ids[start:end]) for start, end in pairwise(bag.offsets.tolist())]
            found = known.filled(values, found, dict(zip(missing, parts, strict=True)))
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(part) for part in found], out=offsets[1:])
        return EncodedBag(np.array([one for part in found for one in part], np.int32), offsets)


class _Remembered:
    """Cache from values to ids or bags, cleared completely when too large."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Any, Any] = {}

    def of(self, values: Column) -> list[Any]:
        """Return the cached result of each value, None if not cached."""
        return list(map(self._found.get, values))

    def filled(self, values: Column, found: list[Any], new: dict[Any, Any]) -> list[Any]:
        """Return the result of each value from `found` or `new`; cache the new results except for long texts."""
        if len(self._found) + len(new) > self._most:
            self._found = {}
        short = {value: one for value, one in new.items() if type(value) is not str or len(value) <= LONGEST_REMEMBERED}
        if len(short) <= self._most:
            self._found |= short
        return [new[value] if one is None else one for value, one in zip(values, found, strict=True)]


def _as_numbers(columns: Sequence[Any], rows: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]] | None:
    """Read columns of numbers.

    Returns:
        float32 `[columns, rows]` with NaN for values that are missing or not finite, and a mask of the given values
        that are not finite in float32. None if a column has values that are not numbers.
    """
    if not all(type(values) is list and _NUMBERS.issuperset(map(type, values)) for values in columns):
        return None
    try:
        with np.errstate(over="ignore"):
            found = np.array(columns, np.float64).reshape(len(columns), rows).astype(np.float32)  # None is NaN
    except OverflowError:
        return None
    unreadable = np.isinf(found)
    found[unreadable] = np.nan
    return found, unreadable


def _suits(values: Any, field: CategoricalField) -> bool:
    if type(values) is not list:
        return False
    kinds = frozenset(map(type, values))
    if kinds <= _TEXTS:
        return True
    return (
        field.key_kind in get_args(TextKind) and kinds <= _WHOLE and all(one is None or one in _INT64 for one in values)
    )


def _missing(values: Column, found: list[Any]) -> list[Any]:
    """Return the distinct values of a column that have no cached result yet."""
    return list(dict.fromkeys(value for value, one in zip(values, found, strict=True) if one is None))
