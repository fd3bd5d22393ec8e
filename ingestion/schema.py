"""Schema of a click log: roles of the columns, assignment of ids and split of the rows."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from shunter.errors import DataError
from shunter.frozen import Frozen
from shunter.ingestion.fields import (
    Categorical,
    Explode,
    Join,
    Label,
    MultiValued,
    Negatives,
    Sequence,
    SessionGaps,
    SingleValued,
    TextForm,
    TextKind,
    Unpack,
    ValueEncoding,
    ValueForm,
    is_default,
)
from shunter.ingestion.time_format import check_format
from shunter.predicate import columns_of, parse_predicate
from shunter.validation import clause, sentence
from shunter.yaml_file import parse_yaml, read_yaml

EXAMPLE = "label: click, numeric: [price], categorical: [user_id, item_id], time: timestamp"


def _listed(value: Any) -> Any:
    """Return the value as a list: a single column becomes a list, None an empty one."""
    if value is None:
        return ()
    return [value] if isinstance(value, str | dict) else value


def _columns(value: Any) -> Any:
    """Return a list of columns in which each plain name becomes a mapping with the key `column`."""
    listed = _listed(value)
    if not isinstance(listed, list | tuple):
        return listed
    return [{"column": item} if isinstance(item, str) else item for item in listed]


class Vocabulary(Frozen):
    """Default settings for the ids of all columns, which a column may override."""

    min_count: int = Field(default=2, ge=1, description="Values that occur less often in the training part share id 0.")
    max_ids: int = Field(default=1_000_000, ge=1, description="Maximum number of ids of one column.")
    hash_size: int | None = Field(default=None, ge=1, description="Hash the values of every column to this many ids.")
    learned_rows: int | None = Field(
        default=None,
        ge=2,
        description="For every column, share embedding rows between values with a similar relation to the label; at "
        "most this many rows.",
        exclude_if=is_default,
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.hash_size is not None and self.learned_rows is not None:
            raise ValueError("hash_size and learned_rows exclude each other: leave one of them out")
        return self

    def hash_size_of(self, column: Categorical) -> int | None:
        """Return the number of ids that a column is hashed to, its own setting first; None for other kinds of ids."""
        return column.hash_size or (self.hash_size if column.learned_rows is None else None)

    def learned_rows_of(self, column: Categorical) -> int | None:
        """Return the number of rows of a column's learned map, its own setting first; None for other kinds of ids."""
        if isinstance(column, SingleValued) and column.buckets is not None:
            return None
        return column.learned_rows or (self.learned_rows if column.hash_size is None else None)


class Split(Frozen):
    """Shares of the rows by split; with a time column the latest rows are the test split."""

    train: float = Field(default=0.8, gt=0, lt=1)
    validation: float = Field(default=0.1, gt=0, lt=1)
    test: float = Field(default=0.1, gt=0, lt=1)
    per_user: Literal["shares", "leave_one_out"] | None = Field(
        default=None,
        description="Split each user's rows by time: by the shares, or the last time for test and the second last for "
        "validation.",
        exclude_if=is_default,
    )

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        if abs(self.train + self.validation + self.test - 1) > 1e-6:
            raise ValueError("the shares train, validation and test must sum to 1")
        return self


class Options(Frozen):
    """Options for a source with known columns, such as Criteo."""

    vocabulary: Vocabulary = Vocabulary()
    split: Split = Split()
    buckets: int | None = Field(
        default=None,
        description="Number of buckets per numeric column; the bucket becomes an additional categorical feature.",
        exclude_if=is_default,
    )


class Schema(Options, TextForm):
    """Columns of a click log; columns that the schema does not name are ignored."""

    label: Annotated[Label, BeforeValidator(lambda value: {"column": value} if isinstance(value, str) else value)]
    labels: Annotated[tuple[Label, ...], BeforeValidator(_columns)] = Field(
        default=(),
        description="Several labels (tasks) instead of one: the first is the main task; cells of the others may be "
        "empty.",
        exclude_if=is_default,
    )
    weight: str | None = Field(
        default=None,
        description="Column with the weight of each row in losses and metrics; weights are at least 0.",
        exclude_if=is_default,
    )
    numeric: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    categorical: Annotated[tuple[SingleValued, ...], BeforeValidator(_columns)] = ()
    multi_valued: Annotated[tuple[MultiValued, ...], BeforeValidator(_columns)] = ()
    sequences: Annotated[tuple[Sequence, ...], BeforeValidator(_columns)] = ()
    value_encodings: tuple[ValueEncoding, ...] = Field(
        default=(),
        description="Numeric features computed for the values of a column; written as `target_encoding` and "
        "`count_encoding`.",
        exclude_if=is_default,
    )
    time: str | None = Field(
        default=None, description="Column of times (numbers, dates or ISO 8601 texts), by which the rows are split."
    )
    time_format: Annotated[str, AfterValidator(check_format)] | None = Field(
        default=None,
        description="Unit or date pattern of ambiguous times; written as `format` under `time`.",
        exclude_if=is_default,
    )
    part: str | None = Field(
        default=None,
        description="Column with the predefined split of each row: train, validation or test.",
        exclude_if=is_default,
    )
    delimiter: str | None = Field(
        default=None, min_length=1, max_length=8, description="Separator of the columns of a CSV file, such as `::`."
    )
    columns: tuple[str, ...] = Field(
        default=(), description="Column names, for a CSV file without a header.", exclude_if=is_default
    )
    quotes: bool = Field(
        default=True,
        description="Whether values of a CSV file may be in double quotes; if false, a quote is an ordinary character.",
        exclude_if=lambda quotes: quotes,
    )
    where: str | None = Field(
        default=None,
        description="Predicate of the rows to read, such as `day >= '2026-03-01' and shop in (3, 5)`; all if omitted.",
        exclude_if=is_default,
    )
    min_rows: dict[str, PositiveInt] = Field(
        default={},
        description="Minimum number of rows of each value of a column; rows of rarer values are dropped, in a single "
        "pass.",
        exclude_if=is_default,
    )
    k_core: dict[str, PositiveInt] = Field(
        default={},
        description="Minimum number of rows of each user and item; rarer ones are removed until none is left (k-core).",
        exclude_if=is_default,
    )
    negatives: Annotated[
        Negatives | None, BeforeValidator(lambda value: {"per_positive": value} if isinstance(value, int) else value)
    ] = Field(
        default=None,
        description="Sampling of negatives for each positive row; the log's own negative rows are dropped.",
        exclude_if=is_default,
    )
    sessions: SessionGaps | None = Field(
        default=None,
        description="Sessions, which begin after a pause between the rows of a user.",
        exclude_if=is_default,
    )
    joins: tuple[Join, ...] = Field(
        default=(),
        description="Tables that are joined to the log by a key, to add their columns.",
        exclude_if=is_default,
    )
    explode: Explode | None = Field(
        default=None,
        description="Column that lists all impressions of a row with their labels; each impression becomes a row.",
        exclude_if=is_default,
    )
    unpack: tuple[Unpack, ...] = Field(
        default=(), description="Columns that hold all features of a row in one text.", exclude_if=is_default
    )
    user: str | None = Field(default=None, description="Categorical column of the user, for ranking models.")
    item: str | None = Field(default=None, description="Categorical column of the item, for ranking models.")
    group: str | None = Field(
        default=None,
        description="Categorical column of the group within which rows compete, such as a session or a query; by "
        "default the user.",
        exclude_if=is_default,
    )
    value_form: ValueForm = Field(
        default=ValueForm.CANONICAL,
        description="Version of the rule by which two values count as equal; 1 is the rule of older models.",
        exclude_if=lambda form: form == ValueForm.CANONICAL,
    )

    @model_validator(mode="before")
    @classmethod
    def _first_label(cls, values: Any) -> Any:
        """Take the first of several labels as the main label; a list of one becomes that label."""
        if not isinstance(values, dict) or not isinstance(labels := values.get("labels"), list | tuple) or not labels:
            return values
        if values.get("label", labels[0]) != labels[0]:
            raise ValueError(
                "the schema has both `label` and `labels`: use `label` for one label, `labels` for several"
            )
        return {**values, "label": labels[0], "labels": labels if len(labels) > 1 else ()}

    @model_validator(mode="before")
    @classmethod
    def _label_of_event(cls, values: Any) -> Any:
        """Turn a column of event types into the label."""
        if not isinstance(values, dict) or (event := values.get("event")) is None:
            return values
        if "label" in values or "labels" in values:
            raise ValueError("`event` defines the label: leave out `label` and `labels`")
        if not isinstance(event, dict) or event.keys() != {"column", "positive"}:
            raise ValueError(
                "`event` needs a column and its positive values: write `event: {column: type, positive: [buy]}`"
            )
        return {**{key: value for key, value in values.items() if key != "event"}, "label": event}

    @model_validator(mode="before")
    @classmethod
    def _encodings_by_kind(cls, values: Any) -> Any:
        """Merge the keys `target_encoding` and `count_encoding` into `value_encodings`, each entry with its kind."""
        if not isinstance(values, dict) or not values.keys() & {"target_encoding", "count_encoding"}:
            return values
        rest, found = dict(values), [*values.get("value_encodings", ())]
        for kind in ("target", "count"):
            listed = _columns(rest.pop(f"{kind}_encoding", None))
            if not isinstance(listed, list | tuple) or not all(isinstance(one, dict) for one in listed):
                raise ValueError(
                    f"{kind}_encoding needs a list of columns: write `{kind}_encoding: [user_id, item_id]`"
                )
            found += [{**one, "kind": kind} for one in listed]
        return {**rest, "value_encodings": found}

    @model_validator(mode="before")
    @classmethod
    def _k_core_of_sides(cls, values: Any) -> Any:
        """Expand a single number `k_core` into the minimum number of rows of each user and of each item."""
        if not isinstance(values, dict) or not isinstance(k := values.get("k_core"), int):
            return values
        if not values.get("user") or not values.get("item"):
            raise ValueError(
                "k_core counts the rows of each user and item: name both columns, or write `k_core: {COLUMN: K}`"
            )
        return {**values, "k_core": {values["user"]: k, values["item"]: k}}

    @model_validator(mode="before")
    @classmethod
    def _sessions_of_user(cls, values: Any) -> Any:
        """Set the `by` column of the sessions to the user column if it is omitted."""
        if not isinstance(values, dict) or not isinstance(sessions := values.get("sessions"), dict):
            return values
        return {**values, "sessions": {"by": values.get("user"), **sessions}}

    @model_validator(mode="before")
    @classmethod
    def _numbers_with_buckets(cls, values: Any) -> Any:
        """Turn a numeric column with buckets into a categorical one; with `beside` keep the numeric column too."""
        if not isinstance(values, dict) or not isinstance(named := _listed(values.get("numeric")), list | tuple):
            return values
        numbers: list[Any] = []
        cut: list[Any] = []
        if (buckets := values.get("buckets")) is not None:
            named = [{"column": n, "buckets": buckets, "beside": True} if isinstance(n, str) else n for n in named]
        for item in named:
            if not isinstance(item, dict):
                numbers.append(item)
                continue
            if item.keys() == {"column", "length"} and isinstance(item["length"], int):
                numbers += [f"{item['column']}.{place}" for place in range(item["length"])]
                continue
            if not {"column", "buckets"} <= item.keys() <= {"column", "buckets", "beside"}:
                raise ValueError(
                    "an entry of `numeric` is a column name, or has buckets or a list length: write "
                    "`{column: age, buckets: 32, beside: true}` or `{column: vector, length: 64}`"
                )
            numbers += [item["column"]] if item.get("beside") else []
            name = {"name": f"{item['column']}_bucket"} if item.get("beside") else {}
            cut.append({"column": item["column"], "buckets": item["buckets"], **name})
        if not cut and numbers == [*named]:
            return values
        rest = {key: value for key, value in values.items() if key != "buckets"}
        return {**rest, "numeric": numbers, "categorical": [*_listed(values.get("categorical")), *cut]}

    @model_validator(mode="before")
    @classmethod
    def _time_with_format(cls, values: Any) -> Any:
        """Split a time given as a column with its format into `time` and `time_format`."""
        if not isinstance(values, dict) or not isinstance(time := values.get("time"), dict):
            return values
        if "column" not in time or not time.keys() <= {"column", "format"}:
            raise ValueError("`time` needs a column and its format: write `time: {column: when, format: seconds}`")
        return {**values, "time": time["column"], "time_format": time.get("format")}

    @field_validator("where")
    @classmethod
    def _valid_predicate(cls, value: str | None) -> str | None:
        if value is not None:
            parse_predicate(value)
        return value

    @field_validator("columns")
    @classmethod
    def _columns_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if twice := next((name for name in value if value.count(name) > 1), None):
            raise ValueError(f"the column {twice!r} is named twice under `columns`: give each column its own name")
        return value

    @model_validator(mode="after")
    def _check_sides(self) -> Self:
        for side in ("user", "item", "group"):
            if (name := getattr(self, side)) is not None and name not in self._with_values:
                raise ValueError(f"the {side} column {name} must be one of the columns under `categorical`")
        if self.split.per_user and (self.user is None or self.time is None or self.part is not None):
            raise ValueError("a split per_user needs `user` and `time`, and excludes `part`: change the schema")
        if self.user is not None and self.user == self.item:
            raise ValueError(f"the column {self.user} is named both as user and as item: name two columns")
        if uncounted := [name for name in self.counted_columns if name not in self._with_values]:
            raise ValueError(
                f"the column {uncounted[0]} under min_rows or k_core must be one of the columns under `categorical`"
            )
        return self

    @model_validator(mode="after")
    def _check_sessions(self) -> Self:
        if self.sessions is None:
            return self
        names, by = self.sessions.columns, self.sessions.by
        if self.time is None or self.part is not None:
            raise ValueError(
                "sessions need `time` and exclude `part`, since a predefined split need not follow the time"
            )
        if by is None or by in names:
            raise ValueError("sessions need the column of the user: name it as `user`, or under `by` of the sessions")
        others = {*self.label_columns, *self.weights_of_values, *(field.column for field in self.bags)}
        if taken := [name for name in names if name in others | {self.time, self.weight} or names.count(name) > 1]:
            raise ValueError(f"sessions create the column {taken[0]}, which exists already: choose another name")
        if not self.session_columns:
            raise ValueError(
                f"no feature, group or history uses the new column {names[0]}: name it under `categorical`"
            )
        return self

    @model_validator(mode="after")
    def _check_negatives(self) -> Self:
        if self.negatives is None:
            return self
        single = [field.field for field in self.categorical if field.buckets is None and not field.cross]
        if unknown := [name for name in self.negatives.columns if name not in (*single, *self.numeric)]:
            raise ValueError(
                f"the column {unknown[0]} of a sampled item must be one of the columns under `numeric` or `categorical`"
            )
        drawn = {self.item, *self.negatives.columns}
        if crossed := [field.column for field in self.categorical if drawn & {*field.cross}]:
            raise ValueError(
                f"{crossed[0]} crosses a column that is sampled with the item, which is not supported: leave "
                "the cross out"
            )
        if self.item is None or self.labels or self.built_sequences or self.label.loss is not None:
            raise ValueError(
                "`negatives` needs `item` and a single click label, and excludes sequences built with `by`"
            )
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        read = [name for name in (self.weight, self.time) if name]
        labels = {label.column for label in self.labels or (self.label,) if "*" not in label.positive}
        encoded = [one.name for one in self.value_encodings]
        named = [*labels, *self.features, *encoded, *self.weights_of_values, *read]
        count = Counter(named)
        if repeated := sorted(name for name in count if count[name] > 1 and name != self.time):
            raise ValueError(f"columns are listed twice in the schema: {', '.join(repeated)}")
        fields = [field.field for field in self.categorical if field.buckets is None]
        if unknown := [one.column for one in self.value_encodings if one.column not in fields]:
            raise ValueError(
                f"the encoded column {unknown[0]} must be one of the columns under `categorical`, without buckets"
            )
        if crossed := sorted({name for field in self.categorical for name in field.cross} & {*labels}):
            raise ValueError(f"the label {crossed[0]} cannot be crossed with another column")
        several = {*(field.column for field in self.bags), *self.weights_of_values}
        if crossed := sorted({name for field in self.categorical for name in field.cross} & several):
            raise ValueError(f"the column {crossed[0]} holds several values per row and cannot be crossed")
        if self.time in self.label_columns:
            raise ValueError("the column of the label cannot be the time column")
        if self.weight is not None and self.weight == self.time:
            raise ValueError("the column of weights cannot be the time column")
        if self.part is not None and self.part in (*named, *self.label_columns):
            raise ValueError(f"the column {self.part} names the split of each row and cannot be used for anything else")
        return self

    @model_validator(mode="after")
    def _check_tasks(self) -> Self:
        if repeated := sorted({name for name in self.tasks if self.tasks.count(name) > 1}):
            raise ValueError(
                f"several labels have the same name: {', '.join(repeated)}; give each label its own `name`"
            )
        if self.labels and any(label.loss is not None for label in self.labels):
            raise ValueError("a label with its own loss must be the only label: name it under `label`")
        if unfit := [name for name in self.tasks if not re.fullmatch(r"[A-Za-z0-9_-]+", name)]:
            raise ValueError(f"the label {unfit[0]!r} needs a `name` of letters, digits, _ and - only")
        return self

    @model_validator(mode="after")
    def _check_sequences(self) -> Self:
        for sequence in self.sequences:
            if sequence.items is not None and sequence.items not in self._with_values:
                raise ValueError(
                    f"the column {sequence.items!r}, given as items of {sequence.column!r}, must be one of the columns "
                    "under `categorical`, without `buckets`"
                )
            if sequence.by is not None and self.time is None:
                raise ValueError(f"the history {sequence.column}, built by {sequence.by}, needs `time` in the schema")
            if sequence.by is not None and self.part is not None:
                raise ValueError(no_built_histories(sequence.column))
            if sequence.by in self.label_columns:
                raise ValueError(f"the history {sequence.column} cannot be built by the label: set `by` to the user")
        return self

    @property
    def _with_values(self) -> tuple[str, ...]:
        """Categorical columns with one value per row, without buckets and crosses."""
        return tuple(field.column for field in self.categorical if field.buckets is None and not field.cross)

    def without_time(self) -> Self:
        """Return a copy without the time column, for rows not split by time; unchanged if sessions need the time."""
        return self if self.session_columns else self.model_copy(update={"time": None, "time_format": None})

    def key_kind(self, column: str) -> TextKind:
        """Return the rule that converts values of a column to keys; a history has the rule of its item column."""
        items = {sequence.column: sequence.items for sequence in self.sequences if sequence.items is not None}
        named = items.get(column, column)
        fields = (*self.categorical, *self.bags)
        if any(field.text for field in fields if field.column == named):
            return "written"
        return "value" if self.value_form is ValueForm.CANONICAL else "text"

    @property
    def built_sequences(self) -> tuple[Sequence, ...]:
        """Sequences that the ingestion builds from earlier rows."""
        return tuple(sequence for sequence in self.sequences if sequence.by is not None)

    @property
    def bags(self) -> tuple[MultiValued, ...]:
        """Columns with any number of values per row, multi-valued columns first, in reading order."""
        return (*self.multi_valued, *(sequence for sequence in self.sequences if sequence.by is None))

    @property
    def learned_columns(self) -> tuple[Categorical, ...]:
        """Columns whose ids are a learned map."""
        columns = (*self.categorical, *self.bags)
        return tuple(column for column in columns if self.vocabulary.learned_rows_of(column) is not None)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of several labels, the main label first; empty for a single label."""
        return tuple(label.name or label.column for label in self.labels)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Distinct columns of the labels: two labels may be two thresholds of one column."""
        return tuple(dict.fromkeys(label.column for label in self.labels or (self.label,)))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features of a model."""
        columns = (*self.bags, *self.built_sequences)
        single = (column.field for column in self.categorical)
        return (*self.numeric, *single, *(column.column for column in columns))

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Distinct columns that the features are read from: two features may share a column, built ones have none."""
        single = [column for field in self.categorical for column in field.columns]
        bags = [field.column for field in self.bags]
        return tuple(dict.fromkeys([*self.numeric, *single, *bags, *self.weights_of_values]))

    @property
    def number_columns(self) -> frozenset[str]:
        """Columns whose texts are numbers, including labels and row weights."""
        cut = [field.column for field in self.categorical if field.buckets is not None]
        weight = [self.weight] if self.weight is not None else []
        labels = [label.column for label in self.labels or (self.label,) if not label.positive]
        return frozenset([*labels, *self.numeric, *cut, *weight])

    @property
    def weights_of_values(self) -> tuple[str, ...]:
        """Distinct columns with the weights of bag values: two bags may share a weight column."""
        return tuple(dict.fromkeys(field.weights for field in self.multi_valued if field.weights is not None))

    @property
    def counted_columns(self) -> tuple[str, ...]:
        """Columns of `min_rows` and `k_core`: rows whose value is too rare in such a column are left out."""
        return tuple(dict.fromkeys([*self.min_rows, *self.k_core]))

    @property
    def session_columns(self) -> tuple[str, ...]:
        """Columns of the sessions that features or histories read."""
        names = self.sessions.columns if self.sessions is not None else ()
        used = {*self.feature_columns, *(sequence.by for sequence in self.built_sequences)}
        return tuple(name for name in names if name in used)

    @property
    def needs_one_process(self) -> bool:
        """Return True if histories or sessions are built: one process must then read the whole log."""
        return bool(self.built_sequences or self.sessions)

    @property
    def derives(self) -> bool:
        """Return True if columns are derived from those of the files."""
        return bool(self.joins or self.explode or self.unpack)

    @property
    def where_columns(self) -> tuple[str, ...]:
        """Columns that the predicate `where` compares."""
        return () if self.where is None else columns_of(parse_predicate(self.where))

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Distinct columns that are read from files."""
        made = self.session_columns
        users = [sequence.by for sequence in self.built_sequences]
        users += [self.sessions.by] if self.sessions is not None and made else []
        named = [*self.label_columns, *self.feature_columns, *users, self.weight, self.time, self.part]
        return tuple(dict.fromkeys(name for name in named if name is not None and name not in made))


def no_built_histories(column: str) -> str:
    """Return the error message for built histories with a predefined split: later rows could leak between splits."""
    return (
        f"the sequence {column} is built by time, but the rows of a predefined split need not follow in time: give a "
        "column that holds the history, or let Shunter split the rows by time"
    )


Model = TypeVar("Model", bound=Options)


def read_schema(path: str | Path, kind: type[Model]) -> Model:
    """Read a schema from a YAML or JSON file (JSON is YAML too).

    Raises:
        DataError: The file is missing, is not YAML or does not match `kind`.
    """
    return schema_of(read_yaml(Path(path), "schema file", EXAMPLE), kind, f"The schema file {path}")


def parse_schema(text: str) -> Schema:
    """Parse a schema from YAML text.

    Raises:
        DataError: The text is not YAML or is no valid schema.
    """
    return schema_of(parse_yaml(text, "The schema", EXAMPLE), Schema, "The schema")


def schema_of(values: dict[str, Any], kind: type[Model], schema_name: str) -> Model:
    """Validate the keys of a schema; `schema_name`, such as `The schema file a.yaml`, begins error messages.

    Raises:
        DataError: The keys do not match `kind`, or name no feature.
    """
    try:
        schema = kind.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        # A misspelt key makes a required key missing: the misspelt key is reported first.
        reason = clause(min(faults, key=lambda fault: fault["type"] != "extra_forbidden"), kind)
        raise DataError(sentence([f"{schema_name} is wrong, {reason}"])) from error
    if isinstance(schema, Schema) and not schema.features:
        raise DataError(f"{schema_name} names no feature: write for instance '{EXAMPLE}', one key per line.")
    return schema
