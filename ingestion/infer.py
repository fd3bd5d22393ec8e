"""A schema for a log that has none yet, guessed from its first rows and written down with what was seen."""

import json
import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.encoding.canonical import merged_texts
from shunter.ingestion.sample import ColumnLook, look

LABELS = ("label", "click", "clicked", "is_click", "y", "target", "conversion", "converted", "is_conversion", "buy")
LABELS += ("purchase", "purchased", "liked", "like", "is_attributed", "action", "clk", "outcome", "event")
TIMES = ("time", "timestamp", "date", "datetime", "ts", "when", "hour", "day", "event_time", "created_at")
USERS = ("user", "user_id", "userid", "uid", "member_id", "customer_id", "visitor_id", "session_id", "device_id")
ITEMS = ("item", "item_id", "itemid", "iid", "ad_id", "adid", "product_id", "movie_id", "article_id", "video_id")
_RATINGS = ("rating", "stars", "score")
_WORDS = {"0", "1", "0.0", "1.0", "true", "false", "yes", "no", "t", "f", "y", "n"}
_IDENTIFIES = re.compile(r"(^|_)(id|code|zip|key|hash|cat|type|category)$|id$", re.IGNORECASE)
_FEW_VALUES = 20  # whole numbers with fewer are a choice rather than an amount
_UNIQUE_SHARE = 0.95


def infer(sample: pl.DataFrame, unreadable: Mapping[str, str], name: str) -> str:
    """Guess a schema, as commented YAML.

    Args:
        sample: Rows of the log.
        unreadable: Columns that the sample does not hold, each with the reason.
        name: Name of the log.

    Raises:
        DataError: No column can be the label, or no feature is left.
    """
    if not len(sample):
        raise DataError(f"{name} holds no row: give a log with rows.")
    looks = [look(column) for column in sample.get_columns()]
    label = _label(sample, looks, unreadable)
    time = _named(looks, TIMES, lambda column: column.time_share >= 0.95 and column.distinct >= 3)
    time = time or next((column for column in looks if column.time_share >= 0.95 and column.distinct >= 3), None)
    rest = [column for column in looks if column not in (label, time)]
    user, item = (_named(rest, names, _is_id) for names in (USERS, ITEMS))
    useless = {column.name: why for column in rest if (why := _why_not(column, len(sample), (user, item)))}
    rest = [column for column in rest if column.name not in useless]
    numeric = [column for column in rest if column not in (user, item) and _is_amount(column)]
    several = [column for column in rest if column.is_list or (column.separator and column not in (user, item))]
    single = [column for column in rest if column not in numeric and column not in several]
    if not rest:
        raise DataError(f"{name} has no column that a model could learn from beside its label {label.name}: add some.")
    lines = [f"# Schema of {name}, guessed from {len(sample):,} rows: check it, above all the label."]
    lines.append(f"label: {_label_yaml(label)}  # {_seen(label)}")
    lines += _block("numeric", [(_quoted(column.name), _seen(column)) for column in numeric])
    lines += _block("categorical", [_categorical(column, sample[column.name]) for column in single])
    lines += _block("multi_valued", [(_several_yaml(column), _seen(column)) for column in several])
    if time:
        lines.append(f"time: {_quoted(time.name)}  # {_seen(time)}; the latest rows become the test part")
    lines += [f"user: {_quoted(user.name)}  # who; for graph models"] if user in single and user else []
    lines += [f"item: {_quoted(item.name)}  # what was shown; for graph models"] if item in single and item else []
    lines += [f"# left out: {_quoted(column)}, {why}" for column, why in {**useless, **unreadable}.items()]
    return "\n".join(lines) + "\n"


def _label(sample: pl.DataFrame, looks: list[ColumnLook], unreadable: Mapping[str, str]) -> ColumnLook:
    binary = [column for column in looks if not column.is_list and column.distinct == 2 and _is_binary(sample, column)]
    rated = [column for column in looks if column.name.lower() in _RATINGS and column.values is not None]
    found = _named(binary, LABELS, lambda _: True) or next(iter([*rated, *binary]), None)
    if found is None:
        names = ", ".join([f"{name[:40]}: {why}" for name, why in unreadable.items()][:5])
        names = ", ".join(column.name[:40] for column in looks[:20]) + (names and f"; left out {names}")
        raise DataError(
            f"No column holds 0 and 1, true and false or yes and no, as a label does (there are {names}): write a "
            "schema with `label: {column: ..., positive_at_least: ...}` and give it with --schema."
        )
    return found


def _is_binary(sample: pl.DataFrame, column: ColumnLook) -> bool:
    values = sample[column.name].drop_nulls().cast(pl.String, strict=False).str.to_lowercase().unique()
    return set(values.to_list()) <= _WORDS


def _named(looks: list[ColumnLook], names: tuple[str, ...], fits) -> ColumnLook | None:
    """The column with the first of some names that fits."""
    by_name = {column.name.lower(): column for column in looks if fits(column)}
    return next((by_name[name] for name in names if name in by_name), None)


def _is_id(column: ColumnLook) -> bool:
    return not column.is_list and column.distinct > 1


def _why_not(column: ColumnLook, rows: int, kept: tuple[ColumnLook | None, ...]) -> str | None:
    """Why a column is of no use to a model."""
    if column.present == 0:
        return "it is empty"
    if column.distinct <= 1 and column.present == rows:
        return f"it always holds {column.example}"
    is_full = column.present == rows > _FEW_VALUES
    if column.values is not None and is_full and (np.diff(column.values) == 1).all():
        return "it numbers the rows"
    is_key = column.values is None or bool(_IDENTIFIES.search(column.name)) or column.name.lower() == "index"
    is_unique = not column.is_list and column.distinct >= _UNIQUE_SHARE * rows
    if is_unique and is_full and is_key and column not in kept and not column.separator:
        return "nearly every row has a value of its own"
    return None


def _is_amount(column: ColumnLook) -> bool:
    if column.values is None or _IDENTIFIES.search(column.name):
        return False
    return not column.is_whole or column.distinct > _FEW_VALUES


def _label_yaml(label: ColumnLook) -> str:
    if label.distinct == 2:
        return _quoted(label.name)
    assert label.values is not None
    threshold = float(np.nanquantile(label.values, 0.6))
    return f"{{column: {_quoted(label.name)}, positive_at_least: {threshold:g}}}"


def _categorical(column: ColumnLook, values: pl.Series) -> tuple[str, str]:
    """A column of values, or of texts where zeros tell them apart."""
    if merged := merged_texts(values):
        return f"{{column: {_quoted(column.name)}, text: true}}", f"{_seen(column)}; {' and '.join(merged)} are two"
    return _quoted(column.name), _seen(column)


def _several_yaml(column: ColumnLook) -> str:
    separator = f", separator: {_quoted(column.separator)}" if column.separator else ""
    return f"{{column: {_quoted(column.name)}{separator}}}"


def _seen(column: ColumnLook) -> str:
    example = " ".join("".join(letter if letter.isprintable() else "?" for letter in column.example).split())
    return f"{column.distinct:,} values, for instance {example}" if column.distinct else "no value"


def _block(key: str, entries: list[tuple[str, str]]) -> list[str]:
    return [f"{key}:", *(f"  - {entry}  # {comment}" for entry, comment in entries)] if entries else []


def _quoted(text: str | None) -> str:
    """A name as YAML reads it back as the same text."""
    text = text or ""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) and text.lower() not in {*_WORDS, "on", "off", "null"}
    return text if plain else json.dumps(text)
