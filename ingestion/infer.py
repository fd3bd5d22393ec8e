"""Schema inference: guesses a schema from the first rows of a log and explains each line in a comment."""

import json
import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.encoding.canonical import merged_texts
from shunter.ingestion.encoding.columns import in_usual_form
from shunter.ingestion.encoding.times import see
from shunter.ingestion.fields import POINT, TextForm
from shunter.ingestion.sample import ColumnProfile, profile_column

LABELS = ("label", "click", "clicked", "is_click", "y", "target", "conversion", "converted", "is_conversion", "buy")
LABELS += ("purchase", "purchased", "liked", "like", "is_attributed", "action", "clk", "outcome", "event")
TIMES = ("time", "timestamp", "date", "datetime", "ts", "when", "hour", "day", "event_time", "created_at")
USERS = ("user", "user_id", "userid", "uid", "member_id", "customer_id", "visitor_id", "session_id", "device_id")
ITEMS = ("item", "item_id", "itemid", "iid", "ad_id", "adid", "product_id", "movie_id", "article_id", "video_id")
_RATINGS = ("rating", "stars", "score")
_WORDS = {"0", "1", "0.0", "1.0", "true", "false", "yes", "no", "t", "f", "y", "n"}
_IDENTIFIES = re.compile(r"(^|_)(id|code|zip|key|hash|cat|type|category)$|id$", re.IGNORECASE)
_FEW_VALUES = 20  # integers with at most this many distinct values are categories, not quantities
_UNIQUE_SHARE = 0.95
# Texts of missing values: `_MISSING` in any column, `_MISSING_NUMBERS` only in columns of numbers or times.
_MISSING = ("\\N", "NULL", "null", "(null)", "<null>", "<NA>", "#N/A")
_MISSING_NUMBERS = ("NA", "N/A", "n/a", "na", "NaN", "nan", "None", "none", "-", "--", "?")
# Decimal mark and thousands mark, more likely pairs first: 1,500 is 1500 rather than 1.5.
_MARKS = (
    (POINT, None),
    (POINT, ","),
    (",", None),
    (",", POINT),
    *((one, mark) for mark in " \u00a0\u202f'\u2019" for one in ",."),
)
_LIKE_A_NUMBER = "^\\s*[+-]?[0-9.,][0-9.,' \u00a0\u202f\u2019]*(?:[eE][+-]?[0-9]+)?\\s*$"
_AMOUNT = r"^\s*(?:\p{Sc}\s*[0-9][0-9.,]*|[0-9][0-9.,]*\s*(?:\p{Sc}|%))\s*$"
_READ_SHARE = 0.99
_FEW_DIGITS_SHARE = 0.1
_TRIED_ROWS = 20_000


def infer(sample: pl.DataFrame, unreadable: Mapping[str, str], name: str, encoding: str) -> str:
    """Infer a schema and return commented YAML.

    Raises:
        DataError: The sample is empty, no column can be the label, or no feature remains.
    """
    if not len(sample):
        raise DataError(f"The log {name} holds no row: give a log with rows.")
    form, why_form = _text_form(sample, encoding)
    sample = pl.DataFrame({column.name: _in_usual_form(column, form) for column in sample.get_columns()})
    profiles = [profile_column(column) for column in sample.get_columns()]
    label = _label(sample, profiles, unreadable)
    time = _named(profiles, TIMES, lambda column: column.time_share >= 0.95 and column.distinct >= 3)
    time = time or next((column for column in profiles if column.time_share >= 0.95 and column.distinct >= 3), None)
    rest = [column for column in profiles if column not in (label, time)]
    ids = [column for column in rest if not column.is_list and column.distinct > 1]
    user, item = (_named(ids, names, lambda _: True) for names in (USERS, ITEMS))
    useless = {column.name: why for column in rest if (why := _why_not(column, len(sample), (user, item)))}
    rest = [column for column in rest if column.name not in useless]
    numeric = [column for column in rest if column not in (user, item) and _is_amount(column)]
    several = [column for column in rest if column.is_list or (column.separator and column not in (user, item))]
    single = [column for column in rest if column not in numeric and column not in several]
    if not rest:
        raise DataError(
            f"The log {name} has no useful feature column besides the label {label.name}: add feature columns."
        )
    lines = [f"# Schema of {name}, guessed from {len(sample):,} rows: check the schema, above all the label."]
    threshold = ""
    if label.distinct != 2:
        assert label.values is not None
        threshold = f", positive_at_least: {float(np.nanquantile(label.values, 0.6)):g}"
    name_of_label = f"{{column: {_quoted(label.name)}{threshold}}}" if threshold else _quoted(label.name)
    lines.append(f"label: {name_of_label}  # {_seen(label)}")
    lines += [f"{key}: {json.dumps(value)}  # {why_form[key]}" for key, value in form.model_dump(mode="json").items()]
    lines += _block("numeric", [(_quoted(column.name), _seen(column)) for column in numeric])
    lines += _block("categorical", [_categorical(column, sample[column.name]) for column in single])
    entries: list[tuple[str, str]] = []
    for column in several:
        separator = f", separator: {_quoted(column.separator)}" if column.separator else ""
        entries.append((f"{{column: {_quoted(column.name)}{separator}}}", _seen(column)))
    lines += _block("multi_valued", entries)
    if time:
        lines.append(f"time: {_quoted(time.name)}  # {_seen(time)}; the latest rows become the test part")
    lines += [f"user: {_quoted(user.name)}  # who; for graph models"] if user in single and user else []
    lines += [f"item: {_quoted(item.name)}  # what was shown; for graph models"] if item in single and item else []
    lines += [f"# left out: {_quoted(column)}, {why}" for column, why in {**useless, **unreadable}.items()]
    return "\n".join(lines) + "\n"


def _text_form(sample: pl.DataFrame, encoding: str) -> tuple[TextForm, dict[str, str]]:
    """Infer number marks and missing texts; return the form and the reason for each key, as a comment."""
    texts = [column.drop_nulls().head(_TRIED_ROWS) for column in sample.get_columns() if column.dtype == pl.String]
    values = {column.name: column.filter(~column.is_in((*_MISSING, *_MISSING_NUMBERS))) for column in texts}
    numbers = [column for column in values.values() if _share(column, _LIKE_A_NUMBER) >= _READ_SHARE]

    def count(marks: tuple[str, str | None]) -> int:
        return sum(_fits(column, TextForm(decimal=marks[0], thousands=marks[1])) for column in numbers)

    decimal, thousands = _MARKS[0] if count(_MARKS[0]) == len(numbers) else max(_MARKS, key=count)
    form = TextForm(decimal=decimal, thousands=thousands, encoding=encoding)
    missing: dict[str, list[str]] = {}
    for column in texts:
        found = set(column.unique()) & {*_MISSING, *_MISSING_NUMBERS}
        if found and not _holds_numbers(values[column.name], form):
            found &= set(_MISSING)
        for text in sorted(found):
            missing.setdefault(text, []).append(column.name)
    reasons = {"encoding": "most of the first lines with other letters than those of ASCII are not UTF-8"}
    for key, mark in (("decimal", decimal), ("thousands", thousands)):
        examples = (column.filter(column.str.contains(mark or "", literal=True)).head(1) for column in numbers)
        reasons[key] = " and ".join(f"{one[0]} in {_quoted(one.name)}" for one in examples if len(one))
    if thousands is not None and thousands in ",." and count((thousands, None)) == len(numbers):
        reasons["thousands"] += f"; if these are fractions, write decimal: '{thousands}' instead"
    columns = dict.fromkeys(_quoted(name) for names in missing.values() for name in names)
    reasons["missing"] = f"no values in {', '.join(columns)}; the same in every column"
    return TextForm(**{**form.model_dump(), "missing": list(missing)}), reasons


def _fits(values: pl.Series, form: TextForm) -> bool:
    """Return True if the texts are numbers in the notation `form`.

    If all texts have three digits before the first thousands mark, they are lists of ids, not numbers.
    """
    if _share(values, form.number_pattern) < _READ_SHARE:
        return False
    marked = values.filter(values.str.contains(form.thousands, literal=True)) if form.thousands else values.clear()
    return not len(marked) or _share(marked, r"^\s*[+-]?[0-9]{1,2}[^0-9]") >= _FEW_DIGITS_SHARE


def _share(texts: pl.Series, pattern: str) -> float:
    return float(texts.str.contains(pattern).to_numpy().mean()) if len(texts) else 0.0


def _holds_numbers(values: pl.Series, form: TextForm) -> bool:
    """Return True if the texts of a column, without missing values, are numbers or times."""
    if _share(values, form.number_pattern) >= _READ_SHARE:
        return True
    return len(values) > 0 and see(values).counts.total() >= _READ_SHARE * len(values)


def _in_usual_form(column: pl.Series, form: TextForm) -> pl.Series:
    if column.dtype != pl.String:
        return column
    present = in_usual_form(column, form, is_number=False)
    is_number = _share(present.drop_nulls(), form.number_pattern) >= _READ_SHARE
    return in_usual_form(column, form, is_number=is_number)


def _label(sample: pl.DataFrame, profiles: list[ColumnProfile], unreadable: Mapping[str, str]) -> ColumnProfile:
    binary = []
    for column in profiles:
        if not column.is_list and column.distinct == 2:
            values = sample[column.name].drop_nulls().cast(pl.String, strict=False).str.to_lowercase().unique()
            binary += [column] if {*values.to_list()} <= _WORDS else []
    rated = [column for column in profiles if column.name.lower() in _RATINGS and column.values is not None]
    found = _named(binary, LABELS, lambda _: True) or next(iter([*rated, *binary]), None)
    if found is None:
        names = ", ".join([f"{name[:40]}: {why}" for name, why in unreadable.items()][:5])
        names = ", ".join(column.name[:40] for column in profiles[:20]) + (names and f"; left out {names}")
        raise DataError(
            f"No column looks like a label, with 0 and 1, true and false or yes and no (columns: {names}): "
            "write a schema with `label: {column: ..., positive_at_least: ...}` and give it with --schema."
        )
    return found


def _named(profiles: list[ColumnProfile], names: tuple[str, ...], fits) -> ColumnProfile | None:
    """Return the column with the first name in `names` among the columns for which `fits` is true; else None."""
    by_name = {column.name.strip().lower(): column for column in profiles if fits(column)}
    return next((by_name[name] for name in names if name in by_name), None)


def _why_not(column: ColumnProfile, rows: int, kept: tuple[ColumnProfile | None, ...]) -> str | None:
    """Return why a column is useless for a model; None for a useful column."""
    if column.present == 0:
        return "it is empty"
    if column.distinct <= 1 and column.present == rows:
        return f"it always holds {column.example}"
    is_full = column.present == rows > _FEW_VALUES
    if column.values is not None and is_full and (np.diff(column.values) == 1).all():
        return "the column numbers the rows"
    is_key = column.values is None or bool(_IDENTIFIES.search(column.name)) or column.name.lower() == "index"
    is_unique = not column.is_list and column.distinct >= _UNIQUE_SHARE * rows
    if is_unique and is_full and is_key and column not in kept and not column.separator:
        return "nearly every row has a different value"
    return None


def _is_amount(column: ColumnProfile) -> bool:
    if column.values is None or _IDENTIFIES.search(column.name):
        return False
    return not column.is_whole or column.distinct > _FEW_VALUES


def _categorical(column: ColumnProfile, values: pl.Series) -> tuple[str, str]:
    """Return YAML and comment of a categorical column, with `text: true` if zeros distinguish values (3.1, 3.10)."""
    if merged := merged_texts(values):
        return f"{{column: {_quoted(column.name)}, text: true}}", f"{_seen(column)}; {' and '.join(merged)} are two"
    if values.dtype == pl.String and _share(values.drop_nulls(), _AMOUNT) >= _READ_SHARE:
        return _quoted(
            column.name
        ), f"{_seen(column)}; amounts with a currency sign are texts: without the sign they would be numbers"
    return _quoted(column.name), _seen(column)


def _seen(column: ColumnProfile) -> str:
    example = " ".join("".join(letter if letter.isprintable() else "?" for letter in column.example).split())
    return f"{column.distinct:,} values, for instance {example}" if column.distinct else "no value"


def _block(key: str, entries: list[tuple[str, str]]) -> list[str]:
    return [f"{key}:", *(f"  - {entry}  # {comment}" for entry, comment in entries)] if entries else []


def _quoted(text: str | None) -> str:
    """Return a name in quotes where YAML would otherwise not read back the same text."""
    text = text or ""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) and text.lower() not in {*_WORDS, "on", "off", "null"}
    return text if plain else json.dumps(text)
