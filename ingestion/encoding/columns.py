"""Conversion of raw columns to numbers and keys, shared by ingestion and serving."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shunter.errors import ColumnError, DataError
from shunter.ingestion.batch import MISSING_KEY, Bag
from shunter.ingestion.encoding.buckets import number_keys
from shunter.ingestion.encoding.canonical import canonical_texts, decoded, seconds_of
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.fields import POINT, TextForm, TextKind, ValueForm

Keys = NDArray[np.uint64]
KeyKind = TextKind | Literal["hexadecimal", "number"]
Mask = NDArray[np.bool_]
Amounts = list[tuple[NDArray[np.float64], Mask]]
_LISTS = list | tuple | np.ndarray
_NO_NUMBER = "?"
_KNOWN_TYPES: dict[Any, Any] = {pl.Categorical: pl.String, pl.Enum: pl.String, pl.Float16: pl.Float32}
AmountReader = Callable[[Sequence[pl.Series]], list[tuple[NDArray[np.float32], Mask]]]


def as_text(series: pl.Series) -> tuple[pl.Series, Mask]:
    """Decode raw bytes, and convert categories to texts and half floats to float32.

    Returns:
        The column, with bytes as text, and the mask of rows that are not valid UTF-8; these rows are null.
    """
    valid = np.zeros(len(series), bool)
    if series.dtype != pl.Binary:
        return _in_known_type(series), valid
    try:
        return series.cast(pl.String), valid
    except pl.exceptions.ComputeError:
        texts = [decoded(value) for value in series]
        invalid = np.array([text is None and value is not None for text, value in zip(texts, series, strict=True)])
        return pl.Series(series.name, texts, pl.String), invalid


def lossy_text(series: pl.Series) -> pl.Series:
    """Decode raw bytes; invalid UTF-8 becomes a text with replacement characters, which no training row holds."""
    texts, invalid = as_text(series)
    if not invalid.any():
        return texts
    rows = np.flatnonzero(invalid)
    return texts.scatter(rows, [value.decode(errors="replace") for value in series.gather(rows)])


def _in_known_type(series: pl.Series) -> pl.Series:
    dtype = series.dtype
    if isinstance(dtype, pl.List | pl.Array):
        known = _KNOWN_TYPES.get(dtype.inner.base_type())
        return series if known is None else series.cast(pl.List(known))
    known = _KNOWN_TYPES.get(dtype.base_type())
    return series if known is None else series.cast(known)


def in_usual_form(series: pl.Series, form: TextForm, is_number: bool) -> pl.Series:
    """Return texts in the usual form: null for missing-value texts, numbers with a decimal point and no other mark.

    A text with digits that is not in the notation `form` becomes unreadable. In a log with decimal commas, for example,
    `1.500` is ambiguous.
    """
    if series.dtype != pl.String or form.has_usual_texts:
        return series
    if form.missing:
        series = series.set(series.str.strip_chars().is_in(form.missing).fill_null(value=False), None)
    if not is_number or (form.decimal == POINT and form.thousands is None):
        return series
    plain = series if form.thousands is None else series.str.replace_all(form.thousands, "", literal=True)
    plain = plain.str.replace_all(form.decimal, POINT, literal=True)
    return (
        pl.DataFrame({"text": series, "plain": plain})
        .select(
            pl.when(pl.col("text").str.contains(form.number_pattern))
            .then("plain")
            .when(pl.col("text").str.contains("[0-9]"))
            .then(pl.lit(_NO_NUMBER))
            .otherwise("text")
            .alias(series.name)
        )
        .to_series()
    )


def numbers(series: pl.Series) -> tuple[NDArray[np.float64], Mask]:
    """Read a column as numbers.

    Returns:
        float64 [rows], NaN for a missing value, and the mask of rows with a value that is no finite number.
    """
    return numbers_of([series])[0]


def numbers_of(columns: Sequence[pl.Series]) -> Amounts:
    """Read columns as float64 [rows], NaN for missing, each with its mask of unreadable values, in one polars call."""
    frame = pl.DataFrame([series.alias(str(index)) for index, series in enumerate(columns)])
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    stripped = [pl.col(name).str.strip_chars() for name in texts]
    frame = frame.with_columns(pl.when(text != "").then(text) for text in stripped)
    values = frame.select(pl.all().cast(pl.Float64, strict=False))
    given, read = frame.select(pl.all().is_not_null()), values.select(pl.all().is_null() | pl.all().is_infinite())
    filled = values.select(pl.all().fill_null(float("nan")))
    found: Amounts = []
    for value, is_given, is_unread in zip(filled, given, read, strict=True):
        bad = is_given.to_numpy() & is_unread.to_numpy()
        # A NaN of a float column is a missing value; the text "nan" is one too.
        found.append((np.where(bad, np.nan, value.to_numpy()), bad))
    return found


def amount_reader(form: ValueForm) -> AmountReader:
    """Return the function that reads numeric columns as float32 in a version of the canonical form."""
    return partial(_in_float32, amounts_of if form is ValueForm.CANONICAL else numbers_of)


def _in_float32(
    read: Callable[[Sequence[pl.Series]], Amounts], columns: Sequence[pl.Series]
) -> list[tuple[NDArray[np.float32], Mask]]:
    found = []
    for values, bad in read(columns):
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        beyond = np.isinf(narrow)  # numbers beyond the range of float32
        narrow[beyond] = np.nan
        found.append((narrow, bad | beyond))
    return found


def amounts_of(columns: Sequence[pl.Series]) -> Amounts:
    """Read columns as numbers, each with its mask of unreadable values; times, durations and booleans are converted.

    Times become seconds since 1970, durations become seconds; `True` and `false` in texts are 1 and 0.
    """
    in_seconds = []
    for series in columns:
        if isinstance(series.dtype, pl.Date | pl.Datetime):
            in_seconds.append(series.cast(pl.Datetime("us")).cast(pl.Int64) / 1e6)
        elif isinstance(series.dtype, pl.Duration | pl.Time):
            in_seconds.append(seconds_of(series.cast(pl.Duration("ns"))))
        else:
            in_seconds.append(series)
    found: Amounts = []
    for series, (values, bad) in zip(columns, numbers_of(in_seconds), strict=True):
        if series.dtype == pl.String and bad.any():
            rows = np.flatnonzero(bad)
            truths = canonical_texts(series.gather(rows), "value").replace_strict(
                {"true": 1.0, "false": 0.0}, default=float("nan"), return_dtype=pl.Float64
            )
            values[rows] = truths.to_numpy()
            bad = bad & np.isnan(values)  # noqa: PLW2901
        found.append((values, bad))
    return found


def from_pandas(series: pd.Series) -> pl.Series:
    """Convert a pandas column to polars; a column of mixed types becomes text, also within lists."""
    try:
        return pl.from_pandas(series)
    except (TypeError, OverflowError, pa.ArrowInvalid, pa.ArrowTypeError):
        if all(isinstance(value, _LISTS) for value in series.dropna()):
            lists = [[str(one) for one in value] if isinstance(value, _LISTS) else None for value in series]
            return pl.Series(lists, dtype=pl.List(pl.String))
        return pl.from_pandas(series.map(str, na_action="ignore"))


def keys(series: pl.Series, kind: KeyKind) -> Keys:
    """Return the key of each value, uint64 [rows], by `text_keys`, `hexadecimal_keys` or `number_keys`."""
    if kind == "number":
        return number_keys(amount_reader(ValueForm.CANONICAL)([series])[0][0])
    return hexadecimal_keys(series) if kind == "hexadecimal" else text_keys(series, kind)


def text_keys(series: pl.Series, kind: TextKind = "value") -> Keys:
    """Return the key of each value: SipHash of its canonical text, so that 5, 5.0 and "5" are one value.

    Only distinct values are hashed. Two distinct values share a key with a probability of 2**-64.
    """
    return _keys_of_distinct(series, _hash_texts, kind)


def cross_keys(columns: Sequence[pl.Series], kind: KeyKind = "value") -> Keys:
    """Return the key of each combination of values, uint64 [rows]; `MISSING_KEY` if one of the values is missing."""
    found, missing = np.zeros(len(columns[0]), np.uint64), np.zeros(len(columns[0]), bool)
    for series in columns:
        of_column = keys(series, kind)
        found, missing = mix(found * np.uint64(3) + of_column), missing | (of_column == MISSING_KEY)
    return np.where(missing, np.uint64(MISSING_KEY), np.maximum(found, np.uint64(1)))


def text_keys_of(columns: Sequence[pl.Series], kind: TextKind = "value") -> list[Keys]:
    """Return the keys of each column, uint64 [rows], in one call, which is faster than `text_keys` for few rows."""
    if not columns:
        return []
    texts = canonical_texts(pl.concat([series.alias("") for series in columns]), kind)
    present = texts.is_not_null().to_numpy()
    found = np.full(len(texts), MISSING_KEY, np.uint64)
    if present.any():
        found[present] = _hash_texts(texts.drop_nulls().to_list())
    return list(found.reshape(len(columns), -1))


def hexadecimal_keys(series: pl.Series) -> Keys:
    """Return the key of each value of a Criteo column: its hexadecimal number plus 1; 0 for an invalid value."""
    return _keys_of_distinct(
        series, lambda values: np.array([hexadecimal_key(text) for text in values], np.uint64), "text"
    )


def hexadecimal_key(text: str) -> int:
    """Return the key of one Criteo value."""
    digits = "0123456789abcdefABCDEF"
    valid = 0 < len(text) <= 8 and all(letter in digits for letter in text)
    return int(text, 16) + 1 if valid else MISSING_KEY


def bags(series: pl.Series, separator: str | None, kind: KeyKind = "value") -> Bag:
    """Split a multi-valued column into its values, and return the key of each value; missing values are dropped.

    Args:
        series: Lists, or texts.
        separator: Separator of the values in a text; None if a text is a single value.
        kind: Rule by which a value becomes a key.
    """
    lengths, values = taken_apart(series, separator)
    found = keys(values, kind)
    # Empty texts and nulls among the values are dropped.
    present = found != MISSING_KEY
    owners = np.repeat(np.arange(len(series)), lengths)[present]
    counts = np.bincount(owners, minlength=len(series))
    return Bag(found[present], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def weighted_bags(
    series: pl.Series, weights: pl.Series, separator: str | None, kind: KeyKind = "value"
) -> tuple[Bag, Mask]:
    """Split a multi-valued column into its values as `bags` does, each with its weight.

    Args:
        series: Lists, or texts.
        weights: One number for each value, in lists or in texts with the same separator; a row without values needs no
            weights.
        separator: Separator of the values in a text.
        kind: Rule by which a value becomes a key.

    Returns:
        The values with weights, 0 for unreadable weights, and the mask of bad rows. A bad row has more or fewer weights
        than values, or a weight that is no finite number.
    """
    bag = bags(series, separator, kind)
    lengths, values = taken_apart(series, separator)
    of_weights, texts = taken_apart(weights, separator)
    numbers_of_rows, _ = numbers(texts)
    fits = lengths == of_weights
    found = np.zeros(len(values), np.float32)
    with np.errstate(over="ignore"):
        found[np.repeat(fits, lengths)] = numbers_of_rows[np.repeat(fits, of_weights)].astype(np.float32)
    present = keys(values, kind) != MISSING_KEY
    found, owners = found[present], np.repeat(np.arange(len(series)), lengths)[present]
    unread = ~np.isfinite(found)
    bad = ~fits & (np.diff(bag.offsets) > 0)
    bad[owners[unread]] = True
    found[unread] = 0
    return Bag(bag.keys, bag.offsets, found), bad


def taken_apart(series: pl.Series, separator: str | None) -> tuple[NDArray[np.int64], pl.Series]:
    """Return the number of elements of each row of a multi-valued column, int64 [rows], and all elements."""
    if series.dtype == pl.String and separator:
        series = series.str.split(separator)
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if not isinstance(series.dtype, pl.List):
        return np.ones(len(series), np.int64), series
    lengths = series.list.len().fill_null(0).to_numpy()
    return lengths, series.filter(lengths > 0).explode()


def _keys_of_distinct(series: pl.Series, keys_of: Callable[[list[str]], Keys], kind: TextKind) -> Keys:
    encoded = series.to_arrow().dictionary_encode()
    distinct = canonical_texts(pl.Series(values=encoded.dictionary), kind)
    table = np.zeros(len(distinct) + 1, np.uint64)
    table[:-1][distinct.is_not_null().to_numpy()] = keys_of(distinct.drop_nulls().to_list())
    # The last entry of the table is the key of null.
    return table[pc.fill_null(encoded.indices, pa.scalar(len(distinct), encoded.indices.type)).to_numpy()]


def _hash_texts(texts: list[str]) -> Keys:
    keys = pd.util.hash_array(np.array(texts, dtype=object), categorize=False)  # pyright: ignore[reportAttributeAccessIssue]
    return np.where(keys == MISSING_KEY, np.uint64(1), keys)


def check_columns(source: Path | str, found: Collection[str], wanted: Sequence[str], whose: str) -> None:
    """Raise if rows lack a wanted column, or have one twice; `whose`, such as "of the schema", ends the message.

    Raises:
        DataError: A wanted column is missing.
        ColumnError: A wanted column is not unique.
    """
    count = Counter([*found])  # of a mapping too, whose values are no counts
    if missing := absent_of(wanted, count):
        raise DataError(f"{source} lacks the columns {_listed(missing)} {whose}. Columns: {_listed([*found])}.")
    if twice := next((name for name in wanted if count[name] > 1), None):
        raise ColumnError(twice, source, f"is one of {count[twice]} of this name: rename them")


def absent_of(wanted: Sequence[str], found: Collection[str]) -> list[str]:
    """Return those of the wanted columns that are neither columns of a table nor parts of its columns."""
    return [name for name in wanted if name not in found and holder_of(name, found) is None]


def holder_of(name: str, found: Collection[str]) -> str | None:
    """Return the struct or list column for a dotted name, such as `user` for `user.age`; None if there is none."""
    ends = [place for place, letter in enumerate(name) if letter == "."]
    return next((name[:end] for end in reversed(ends) if name[:end] in found), None)


def with_parts(table: Mapping[str, pl.Series], wanted: Sequence[str], source: Path | str) -> dict[str, pl.Series]:
    """Return the wanted columns by name; a dotted name selects a field of a struct, or a position in a list.

    Raises:
        ColumnError: A column lacks the named part, or has a type that cannot be a feature.
    """
    found = {}
    for name in wanted:
        if name in table or (holder := holder_of(name, table)) is None:
            found[name] = table[name]
        else:
            found[name] = _part(table[holder], name[len(holder) + 1 :], name, source)
        dtype = found[name].dtype
        if isinstance(dtype, pl.Struct):
            raise ColumnError(name, source, f"holds a struct: name its fields, such as {name}.FIELD")
        values = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
        if values.is_nested():
            raise ColumnError(name, source, f"holds {str(dtype)[:60]}: leave it out of the schema")
    return found


def _part(series: pl.Series, path: str, name: str, source: Path | str) -> pl.Series:
    dtype, is_place = series.dtype, path.isdecimal()
    if isinstance(dtype, pl.Struct):
        field = next((one.name for one in dtype.fields if path == one.name or path.startswith(f"{one.name}.")), None)
        if field is not None:
            part = series.struct.field(field)
            return part if path == field else _part(part, path[len(field) + 1 :], name, source)
    if isinstance(dtype, pl.Array) and is_place and int(path) < dtype.shape[0]:
        return series.arr.get(int(path))
    if isinstance(dtype, pl.List) and is_place:
        return series.list.get(int(path), null_on_oob=True)
    if dtype == pl.Null:
        return series
    raise ColumnError(name, source, "is not a part of its column: correct the name in the schema")


def _listed(names: Sequence[str]) -> str:
    """Return the first 20 names as text, each cut to 40 characters."""
    shown = ("".join(letter if letter.isprintable() else "?" for letter in name[:40]) for name in names[:20])
    return ", ".join(shown) + (", ..." if len(names) > 20 else "")
