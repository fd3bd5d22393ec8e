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
    """Version of the canonical form of values; an encoder without a version has `FORMER`."""

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
        description="Decimal mark of a number: a point or a comma.",
        exclude_if=lambda mark: mark == POINT,
    )
    thousands: str | None = Field(
        default=None,
        pattern=r"^[.,'\u2019_ \u00a0\u202f]$",
        description="Thousands mark of a number.",
        exclude_if=is_default,
    )
    missing: tuple[str, ...] = Field(
        default=(), description="Texts that mark a missing value, in all columns.", exclude_if=is_default
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
        raise ValueError(f"the encoding {value!r} is not known or no extension of ASCII: save the file in UTF-8")

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}: change one of them")
        return self

    @property
    def has_usual_texts(self) -> bool:
        """Return True if numbers have a decimal point, no thousands mark, and only an empty text is missing."""
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
        description="Name of the task, if there are several labels; by default the name of the column.",
        exclude_if=is_default,
    )
    positive_at_least: float | None = Field(
        default=None, description="Values of at least this number are positive; without it the column must hold 0 or 1."
    )
    positive: tuple[str, ...] = Field(
        default=(),
        description="Positive values of a column of event types; `*` for every value.",
        exclude_if=is_default,
    )

    loss: str | None = Field(
        default=None,
        description="Loss of a label that is a number, such as mse or poisson; without it the label is a click.",
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
            raise ValueError(f"the loss {value} is for clicks: give it as --loss, or use mse for a number")
        return value

    @field_validator("positive", mode="before")
    @classmethod
    def _positive_as_texts(cls, value: Any) -> Any:
        listed = value if isinstance(value, list | tuple) else [value]
        return [str(one) if isinstance(one, int) else one for one in listed]

    @model_validator(mode="after")
    def _check_positives(self) -> Self:
        if self.positive and self.positive_at_least is not None:
            raise ValueError(f"{self.column} has positive values and a threshold: leave out one of them")
        if self.loss is not None and (self.positive or self.positive_at_least is not None):
            raise ValueError(f"{self.column} is a number by its loss {self.loss}: leave out its positive values")
        return self


class Categorical(Frozen):
    """Column whose values become ids; omitted settings default to those of `Vocabulary`."""

    column: str
    min_count: int | None = Field(default=None, ge=1, description="Values seen less often in training share id 0.")
    max_ids: int | None = Field(
        default=None, ge=1, description="Largest number of ids, which go to the most frequent values."
    )
    hash_size: int | None = Field(
        default=None, ge=1, description="Hash the values to this many ids and keep no vocabulary."
    )
    learned_rows: int | None = Field(
        default=None,
        ge=2,
        description="Let values that behave alike in training share this many rows at most.",
        exclude_if=is_default,
    )
    vectors: str | None = Field(
        default=None,
        description="File of pretrained vectors, one for each value, as initial embeddings: .parquet, .csv or .npz.",
        exclude_if=is_default,
    )
    freeze_vectors: bool = Field(
        default=False, description="Whether the pretrained embeddings are frozen (not trained).", exclude_if=is_default
    )
    text: bool = Field(
        default=False,
        description="Values are texts as they are written: 0007 is not 7, and 3.10 is not 3.1.",
        exclude_if=is_default,
    )

    @property
    def has_own_ids(self) -> bool:
        """Return True if the column has settings of its own for the ids of its values."""
        return bool(self.min_count or self.max_ids or self.hash_size or self.learned_rows or self.vectors)

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.hash_size is not None and self.learned_rows is not None:
            raise ValueError(f"{self.column} is hashed or has a learned map: give hash_size or learned_rows, not both")
        return self

    @model_validator(mode="after")
    def _check_vectors(self) -> Self:
        if self.vectors is not None and self.hash_size is not None:
            raise ValueError(f"{self.column} has vectors, but hash_size would map several vectors to one id")
        if self.vectors is not None and self.learned_rows is not None:
            raise ValueError(f"{self.column} has vectors, but learned_rows would map several vectors to one id")
        if self.freeze_vectors and self.vectors is None:
            raise ValueError(f"{self.column} has no vectors: name a file under `vectors`, or leave freeze_vectors out")
        return self


class SingleValued(Categorical):
    """Column with one value per row; with `buckets` the values are numbers, and each bucket is an id."""

    buckets: int | tuple[float, ...] | None = Field(
        default=None,
        description="Number of buckets with equally many training rows, or the lower edges of the buckets.",
        exclude_if=is_default,
    )
    name: str | None = Field(
        default=None,
        description="Name of the field; needed if the column is also listed under `numeric`.",
        exclude_if=is_default,
    )
    cross: tuple[str, ...] = Field(
        default=(),
        description="Columns whose values together are one value; `column` is then the name of the field.",
        exclude_if=is_default,
    )

    @model_validator(mode="after")
    def _check_cross(self) -> Self:
        if self.cross and (len(set(self.cross)) < max(len(self.cross), 2) or self.column in self.cross):
            raise ValueError(f"{self.column} crosses two or more columns: name each once, and none as the field itself")
        if self.cross and (self.buckets is not None or self.vectors is not None):
            raise ValueError(f"{self.column} crosses columns: leave buckets and vectors out")
        return self

    @model_validator(mode="after")
    def _check_buckets(self) -> Self:
        if self.buckets is None:
            if self.name is not None:
                raise ValueError(
                    f"{self.column} must have the name of its column: only a column with buckets takes another name"
                )
            return self
        if self.has_own_ids or self.text:
            raise ValueError(
                f"{self.column} has buckets: leave out text, vectors, min_count, max_ids, hash_size and learned_rows, "
                "which cannot be combined with buckets"
            )
        if isinstance(self.buckets, int):
            if not 2 <= self.buckets <= MOST_BUCKETS:
                raise ValueError(f"{self.column} takes 2 to {MOST_BUCKETS:,} buckets, not {self.buckets}")
        elif not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or not isfinite(sum(self.buckets)):
            raise ValueError(f"the edges of {self.column} must be distinct numbers in ascending order")
        return self

    @property
    def field(self) -> str:
        """Name of the field in data sets and models."""
        return self.name or self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the values come from."""
        return self.cross or (self.column,)


class MultiValued(Categorical):
    """Column with any number of values per row."""

    separator: str | None = Field(
        default=None, min_length=1, description="Separator of the values in a text; a Parquet list needs none."
    )
    weights: str | None = Field(
        default=None,
        description="Column with a weight for each value, by which its embedding is multiplied before the sum.",
        exclude_if=is_default,
    )

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights is not None and self.weights == self.column:
            raise ValueError(f"the weights of {self.column} need a column of their own")
        return self


class Sequence(MultiValued):
    """History of values in order of time, oldest first.

    A column may hold the history as a list or as a text with a separator. With `by` the history is built from the log
    instead. Each row then gets the `items` of the same user or session in rows of strictly earlier time.
    """

    length: int = Field(default=50, ge=1, description="Largest number of values of a row; the latest are kept.")
    items: str | None = Field(
        default=None, description="Categorical column with the same values; the history shares its ids and embeddings."
    )
    by: str | None = Field(
        default=None, description="Column of the user or session; the history is built, and `column` becomes its name."
    )
    positives_only: bool = Field(default=False, description="Only rows with a positive label enter built histories.")

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        if self.weights is not None:
            raise ValueError(f"{self.column} is a history, whose values have no weights: leave weights out")
        if self.by is not None and self.items is None:
            raise ValueError(
                f"{self.column} is built by {self.by} and needs `items`, the column from which it is built"
            )
        if self.positives_only and self.by is None:
            raise ValueError(f"{self.column} is read from its column: positives_only needs a sequence with `by`")
        if self.items is not None and (self.has_own_ids or self.text):
            raise ValueError(
                f"{self.column} has the ids of {self.items}: set text, min_count, max_ids, hash_size, learned_rows or "
                "vectors there"
            )
        return self


class Join(Frozen):
    """Table of users, items or the like, whose columns are added to the rows with the same key.

    A row without a partner has no values in these columns. Of several rows of the table with one key, the first counts.
    """

    file: str = Field(min_length=1, description="File of the table; a relative path begins at the folder of the log.")
    key: tuple[str, ...] = Field(min_length=1, description="Columns of the log that hold the key.")
    key_in_file: tuple[str, ...] = Field(
        default=(), description="Columns of the table that hold the key, if their names differ.", exclude_if=is_default
    )
    format: str | None = Field(default=None, description="Format; guessed if omitted.", exclude_if=is_default)
    columns: tuple[str, ...] = Field(
        default=(), description="Names of the columns of a file without a header.", exclude_if=is_default
    )
    delimiter: str | None = Field(default=None, min_length=1, max_length=8, exclude_if=is_default)
    encoding: str = Field(default=UTF_8, exclude_if=lambda name: name == UTF_8)
    quotes: bool = Field(default=True, exclude_if=lambda quotes: quotes)
    found: str | None = Field(
        default=None,
        description="Name of an additional column: 1 for a row with a partner, else 0.",
        exclude_if=is_default,
    )

    @field_validator("key", "key_in_file", mode="before")
    @classmethod
    def _keys_listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.key_in_file and len(self.key_in_file) != len(self.key):
            raise ValueError(f"the join with {self.file} needs as many columns under key_in_file as under key")
        return self

    @property
    def keys_of_table(self) -> tuple[str, ...]:
        """Columns of the table that hold the key."""
        return self.key_in_file or self.key


class Explode(Frozen):
    """Column with all impressions of a row, each of which becomes a row: `N55689-1 N35729-0`."""

    column: str
    separator: str = Field(default=" ", min_length=1, description="Between the impressions.")
    item: str = Field(description="Name of the column of the items.")
    label: str | None = Field(
        default=None, description="Name of the column of the labels, which follow the last hyphen."
    )


class Unpack(Frozen):
    """Column with all features of a row in one text; each field in the text becomes a column of lists.

    The column of a field is named `prefix` followed by the field name; the column of its weights also ends with
    `_value`.
    """

    column: str
    separators: tuple[str, str, str] = Field(
        description="Separators: between features, after the field name, and before the weight."
    )
    prefix: str = Field(min_length=1, description="Prefix of the names of the created columns.")


class Negatives(Frozen):
    """Negatives that are drawn for each positive row, with other items."""

    per_positive: int = Field(ge=1, le=1_000, description="Negatives for each positive row.")
    columns: tuple[str, ...] = Field(
        default=(),
        description="Numeric and categorical columns that belong to the item; a negative has those of its drawn item.",
    )


class SessionGaps(Frozen):
    """Sessions of users, each ended by a gap in time; the named columns are those of a row in its session.

    All values of a row depend on its time and on earlier rows of its user, not on later rows.
    """

    gap_minutes: float = Field(gt=0, allow_inf_nan=False, description="A longer gap begins a new session.")
    column: str = Field(min_length=1, description="Name of the column of the session.")
    by: str | None = Field(default=None, description="Column of the user; default: `user`.", exclude_if=is_default)
    position: str | None = Field(
        default=None, description="Name of a column of the earlier rows in the session.", exclude_if=is_default
    )
    seconds_since_previous: str | None = Field(
        default=None,
        description="Name of a column of the seconds since the user's last earlier time.",
        exclude_if=is_default,
    )

    within_day: bool = Field(
        default=False,
        description="Whether a new day in UTC begins anew, so that no value depends on an earlier day; nights need it.",
        exclude_if=is_default,
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(name for name in (self.column, self.position, self.seconds_since_previous) if name is not None)


class ValueEncoding(Frozen):
    """Numeric feature computed from the training rows of each value of a categorical column."""

    column: str
    kind: Literal["target", "count"]
    smoothing: float = Field(
        default=20.0,
        gt=0,
        description="Smoothing: number of rows by which a share is shrunk towards the share of all rows.",
    )

    @property
    def name(self) -> str:
        """Name of the feature."""
        return f"{self.column}_{self.kind}"
