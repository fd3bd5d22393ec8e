"""Column types of a schema, derived columns, and the notation of texts."""

import codecs
import re
from enum import IntEnum
from math import isfinite
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shunter.errors import ShunterError
from shunter.frozen import Frozen
from shunter.label_losses import predicts_probability

MOST_BUCKETS = 65_536
TextKind = Literal["value", "written", "text"]


class ValueForm(IntEnum):
    """Version of the rule that makes equal values equal texts; encoders stored without a version use `FORMER`."""

    FORMER = 1
    CANONICAL = 2


def is_default(value: Any) -> bool:
    """Return True if the value is empty, so that the option is left out of the dumped schema."""
    return not value


UTF_8 = "utf-8"
POINT = "."


class TextForm(Frozen):
    """Notation of the texts of a log: number marks, missing values and encoding."""

    decimal: str = Field(
        default=POINT,
        pattern=r"^[.,]$",
        description="Decimal mark of numbers in a CSV file: a point or a comma.",
        exclude_if=lambda mark: mark == POINT,
    )
    thousands: str | None = Field(
        default=None,
        pattern=r"^[.,'\u2019_ \u00a0\u202f]$",
        description="Thousands mark of numbers in a CSV file.",
        exclude_if=is_default,
    )
    missing: tuple[str, ...] = Field(
        default=(), description="Texts that mean a missing value, in all columns.", exclude_if=is_default
    )
    encoding: str = Field(
        default=UTF_8,
        description="Encoding of a CSV file, such as latin-1 or cp1252.",
        exclude_if=lambda name: name == UTF_8,
    )

    @field_validator("missing", mode="before")
    @classmethod
    def _missing_as_texts(cls, value: Any) -> Any:
        listed = [value] if isinstance(value, str | int | float) else value or ()
        if isinstance(listed, list | tuple) and None in listed:
            raise ValueError('quote texts such as "NULL" and "~" under `missing`, or YAML reads them as null')
        return [str(one) if isinstance(one, int | float) else one for one in listed]

    @field_validator("encoding")
    @classmethod
    def _ascii_is_itself(cls, value: str) -> str:
        """Raise if the encoding does not extend ASCII: line ends and delimiters are searched in the raw bytes."""
        letters = bytes(range(128))
        try:
            if all(letters[at : at + 1].decode(value) == chr(at) for at in letters):
                return UTF_8 if codecs.lookup(value).name == UTF_8 else value
        except (LookupError, UnicodeError):
            pass
        raise ValueError(f"the encoding {value!r} is unknown or does not extend ASCII: save the file in UTF-8")

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError(f"the options decimal and thousands are both {self.decimal!r}: change one of them")
        return self

    @property
    def has_usual_texts(self) -> bool:
        """Return True for the default notation: decimal point, no thousands mark, only empty texts mean missing."""
        return self.decimal == POINT and self.thousands is None and not self.missing

    @property
    def number_pattern(self) -> str:
        """Regular expression of a number in this notation."""
        whole, fraction = "[0-9]+", re.escape(self.decimal)
        if self.thousands is not None:
            whole = f"(?:[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|[0-9]+)"
        return rf"^\s*[+-]?(?:{whole}(?:{fraction}[0-9]*)?|{fraction}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"


USUAL_TEXTS = TextForm()


class Label(Frozen):
    """Label column."""

    column: str
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Name of the prediction task, if there are several labels; by default the name of the column.",
        exclude_if=is_default,
    )
    positive_at_least: float | None = Field(
        default=None,
        description="Smallest value of the column that is a positive label; without it the column must hold 0 or 1.",
    )
    positive: tuple[str, ...] = Field(
        default=(),
        description="Values of an event-type column that are positive labels; `*` for every value.",
        exclude_if=is_default,
    )

    loss: str | None = Field(
        default=None,
        description="Loss of a label that is a number, such as mse or poisson; without it the label is a click (0 or "
        "1).",
        exclude_if=is_default,
    )

    @field_validator("loss")
    @classmethod
    def _loss_of_numbers(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            is_for_clicks = predicts_probability(value)
        except ShunterError as error:
            raise ValueError(str(error).rstrip(".")) from error
        if is_for_clicks:
            raise ValueError(
                f"the loss {value} is for click labels: give it as --loss, or use mse for a label that is a number"
            )
        return value

    @field_validator("positive", mode="before")
    @classmethod
    def _positive_as_texts(cls, value: Any) -> Any:
        listed = value if isinstance(value, list | tuple) else [value]
        return [str(one) if isinstance(one, int) else one for one in listed]

    @model_validator(mode="after")
    def _check_positives(self) -> Self:
        if self.positive and self.positive_at_least is not None:
            raise ValueError(f"the label {self.column} has both positive values and a threshold: leave one of them out")
        if self.loss is not None and (self.positive or self.positive_at_least is not None):
            raise ValueError(
                f"the label {self.column} is a number because of its loss {self.loss}: leave its positive values out"
            )
        return self


class Categorical(Frozen):
    """Column whose values become ids; omitted settings default to those of `Vocabulary`."""

    column: str
    min_count: int | None = Field(
        default=None, ge=1, description="Values that occur less often in the training part share id 0."
    )
    max_ids: int | None = Field(
        default=None, ge=1, description="Maximum number of ids, which are given to the most frequent values."
    )
    hash_size: int | None = Field(
        default=None, ge=1, description="Hash the values to this many ids instead of using a vocabulary."
    )
    learned_rows: int | None = Field(
        default=None,
        ge=2,
        description="Share embedding rows between values with a similar relation to the label; at most this many rows.",
        exclude_if=is_default,
    )
    vectors: str | None = Field(
        default=None,
        description="File with a pretrained vector for each value, for initial embeddings: .parquet, .csv or .npz.",
        exclude_if=is_default,
    )
    freeze_vectors: bool = Field(
        default=False,
        description="Whether the pretrained embeddings are frozen, that is, not trained.",
        exclude_if=is_default,
    )
    text: bool = Field(
        default=False,
        description="Compare values as texts: 0007 is then not 7, and 3.10 is not 3.1.",
        exclude_if=is_default,
    )

    @property
    def has_own_ids(self) -> bool:
        """Return True if the column has settings of its own for the ids of its values."""
        return bool(self.min_count or self.max_ids or self.hash_size or self.learned_rows or self.vectors)

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.hash_size is not None and self.learned_rows is not None:
            raise ValueError(f"the column {self.column} has both hash_size and learned_rows: leave one of them out")
        return self

    @model_validator(mode="after")
    def _check_vectors(self) -> Self:
        if self.vectors is not None and self.hash_size is not None:
            raise ValueError(
                f"the column {self.column} has pretrained vectors, but hash_size would map several vectors to "
                "one id: leave one of them out"
            )
        if self.vectors is not None and self.learned_rows is not None:
            raise ValueError(
                f"the column {self.column} has pretrained vectors, but learned_rows would map several vectors "
                "to one id: leave one of them out"
            )
        if self.freeze_vectors and self.vectors is None:
            raise ValueError(
                f"the column {self.column} has no pretrained vectors: name a file under `vectors`, or leave "
                "freeze_vectors out"
            )
        return self


class SingleValued(Categorical):
    """Column with one value per row; with `buckets` the values are numbers, and each bucket is an id."""

    buckets: int | tuple[float, ...] | None = Field(
        default=None,
        description="Number of buckets with equally many training rows, or the lower bounds of the buckets.",
        exclude_if=is_default,
    )
    name: str | None = Field(
        default=None,
        description="Name of the field, which is needed if the column is also listed under `numeric`.",
        exclude_if=is_default,
    )
    cross: tuple[str, ...] = Field(
        default=(),
        description="Columns whose combined values are the categories of this field; `column` is then the field's "
        "name.",
        exclude_if=is_default,
    )

    @model_validator(mode="after")
    def _check_cross(self) -> Self:
        if self.cross and (len(set(self.cross)) < max(len(self.cross), 2) or self.column in self.cross):
            raise ValueError(
                f"the crossed field {self.column} needs two or more different columns, none named like the field itself"
            )
        if self.cross and (self.buckets is not None or self.vectors is not None):
            raise ValueError(f"the field {self.column} is a cross of columns: leave buckets and vectors out")
        return self

    @model_validator(mode="after")
    def _check_buckets(self) -> Self:
        if self.buckets is None:
            if self.name is not None:
                raise ValueError(
                    f"the field {self.column} must have the name of its column: only a column with buckets "
                    "can have another name"
                )
            return self
        if self.has_own_ids or self.text:
            raise ValueError(
                f"the column {self.column} has buckets, which exclude text, vectors, min_count, max_ids, "
                "hash_size and learned_rows: leave these out"
            )
        if isinstance(self.buckets, int):
            if not 2 <= self.buckets <= MOST_BUCKETS:
                raise ValueError(
                    f"the column {self.column} can have 2 to {MOST_BUCKETS:,} buckets, but has {self.buckets}"
                )
        elif not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or not isfinite(sum(self.buckets)):
            raise ValueError(f"the bucket bounds of {self.column} must be distinct numbers in ascending order")
        return self

    @property
    def field(self) -> str:
        """Name of the field in data sets and models."""
        return self.name or self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the log that the values are read from."""
        return self.cross or (self.column,)


class MultiValued(Categorical):
    """Column with any number of values per row."""

    separator: str | None = Field(
        default=None, min_length=1, description="Separator of the values in a text; a Parquet list column needs none."
    )
    weights: str | None = Field(
        default=None,
        description="Column with a weight for each value, which multiplies the value's embedding before pooling.",
        exclude_if=is_default,
    )

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights is not None and self.weights == self.column:
            raise ValueError(f"the weights of {self.column} must be in another column")
        return self


class Sequence(MultiValued):
    """History of values in order of time, oldest first.

    A column may hold the history as a list or as a text with a separator. With `by` the history is built from the log
    instead. Each row then gets the `items` of the same user or session in rows of strictly earlier time.
    """

    length: int = Field(default=50, ge=1, description="Maximum length of the history; the latest values are kept.")
    items: str | None = Field(
        default=None,
        description="Categorical column with the same values, whose ids and embeddings the history shares.",
    )
    by: str | None = Field(
        default=None,
        description="Column of the user or session by which the history is built; `column` is then the history's name.",
    )
    positives_only: bool = Field(default=False, description="Build the history from rows with a positive label only.")

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        if self.weights is not None:
            raise ValueError(f"{self.column} is a history, which cannot have weights: leave weights out")
        if self.by is not None and self.items is None:
            raise ValueError(f"the history {self.column}, built by {self.by}, needs `items`: the column of its values")
        if self.positives_only and self.by is None:
            raise ValueError(
                f"the history {self.column} is read from a column: positives_only needs a sequence with `by`"
            )
        if self.items is not None and (self.has_own_ids or self.text):
            raise ValueError(
                f"{self.column} shares the ids of {self.items}: set text, min_count, max_ids, hash_size, "
                "learned_rows or vectors for that column"
            )
        return self


class Join(Frozen):
    """Table of users, items or the like, whose columns are added to the rows with the same key.

    A row whose key the table lacks has no values in these columns. If table rows share a key, the first one is joined.
    """

    file: str = Field(
        min_length=1, description="File of the joined table; a relative path starts at the folder of the log."
    )
    key: tuple[str, ...] = Field(min_length=1, description="Columns of the log that hold the join key.")
    key_in_file: tuple[str, ...] = Field(
        default=(),
        description="Columns of the joined table that hold the key, if their names differ from those in the log.",
        exclude_if=is_default,
    )
    format: str | None = Field(default=None, description="Format; guessed if omitted.", exclude_if=is_default)
    columns: tuple[str, ...] = Field(
        default=(), description="Column names, for a file without a header.", exclude_if=is_default
    )
    delimiter: str | None = Field(default=None, min_length=1, max_length=8, exclude_if=is_default)
    encoding: str = Field(default=UTF_8, exclude_if=lambda name: name == UTF_8)
    quotes: bool = Field(default=True, exclude_if=lambda quotes: quotes)
    found: str | None = Field(
        default=None,
        description="Name of an additional column: 1 if the row was found in the joined table, else 0.",
        exclude_if=is_default,
    )

    @field_validator("key", "key_in_file", mode="before")
    @classmethod
    def _keys_listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.key_in_file and len(self.key_in_file) != len(self.key):
            raise ValueError(
                f"the join with {self.file} has different numbers of columns under key and key_in_file: make them equal"
            )
        return self

    @property
    def keys_of_table(self) -> tuple[str, ...]:
        """Columns of the joined table that hold the key."""
        return self.key_in_file or self.key


class Explode(Frozen):
    """Column with all impressions of a row, such as `N55689-1 N35729-0`; each impression becomes a row of its own."""

    column: str
    separator: str = Field(default=" ", min_length=1, description="Between the impressions.")
    item: str = Field(description="Name of the new column of items.")
    label: str | None = Field(
        default=None, description="Name of the new column of labels, which are read after each item's last hyphen."
    )


class Unpack(Frozen):
    """Column with all features of a row in one text; each field in the text becomes a column of lists.

    The column of a field is named `prefix` followed by the field name; the column of its weights also ends with
    `_value`.
    """

    column: str
    separators: tuple[str, str, str] = Field(
        description="Three separators: between features, after the field name, and before the weight."
    )
    prefix: str = Field(min_length=1, description="Prefix of the names of the new columns.")


class Negatives(Frozen):
    """Sampled negatives: copies of each positive row with other items."""

    per_positive: int = Field(ge=1, le=1_000, description="Number of sampled negatives for each positive row.")
    columns: tuple[str, ...] = Field(
        default=(),
        description="Numeric and categorical columns that describe the item; a negative gets those of its sampled "
        "item.",
    )


class SessionGaps(Frozen):
    """Sessions of users, each ended by a gap in time, and names of the columns that sessions add to the rows.

    All values of a row depend on its time and on earlier rows of its user, not on later rows.
    """

    gap_minutes: float = Field(
        gt=0, allow_inf_nan=False, description="Minutes without a row of the user after which a new session begins."
    )
    column: str = Field(min_length=1, description="Name of the new column of sessions.")
    by: str | None = Field(
        default=None,
        description="Column of the user whose rows form sessions; by default `user`.",
        exclude_if=is_default,
    )
    position: str | None = Field(
        default=None,
        description="Name of a new column with the number of earlier rows in the session.",
        exclude_if=is_default,
    )
    seconds_since_previous: str | None = Field(
        default=None,
        description="Name of a new column with the seconds since the user's previous row.",
        exclude_if=is_default,
    )

    within_day: bool = Field(
        default=False,
        description="Whether sessions also end at midnight UTC, so that no value depends on an earlier day; needed for "
        "nightly runs.",
        exclude_if=is_default,
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that sessions add."""
        return tuple(name for name in (self.column, self.position, self.seconds_since_previous) if name is not None)


class ValueEncoding(Frozen):
    """Numeric feature computed from the training rows of each value of a categorical column."""

    column: str
    kind: Literal["target", "count"]
    smoothing: float = Field(
        default=20.0,
        gt=0,
        description="Smoothing: number of rows by which a value's positive rate is shrunk towards the overall rate.",
    )

    @property
    def name(self) -> str:
        """Name of the numeric feature."""
        return f"{self.column}_{self.kind}"
