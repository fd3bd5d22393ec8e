"""Canonical text of a value: the same text for equal values of any type, file format or library.

The key of a value is a hash of its canonical text. The table of forms is in docs/reference/schema.md.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import polars as pl

from shunter.ingestion.fields import TextKind

# Texts that may differ from their canonical text. The test is coarse: `canonical_text` decides.
_MAY_DIFFER = (
    r"^(?:\+[0-9.][0-9.eE+-]*|-?0[0-9.eE][0-9.eE+-]*|-0|-?\.[0-9][0-9eE+-]*|-?[1-9][0-9]*[.eE][0-9.eE+-]*"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].+|[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+|-?[0-9]+ days? .+"
    r"|True|TRUE|False|FALSE)$"
)
# Already canonical texts among these: digits, short fractions, and times without a zone from 01:00 on.
_IS_CANONICAL = (
    r"^(?:0|[1-9][0-9]*|-?[1-9][0-9]{0,8}\.[0-9]{0,5}[1-9]|-?0\.0{0,3}[1-9](?:[0-9]{0,9}[1-9])?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2} (?:0[1-9]|1[0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,8}[1-9])?)$"
)
_WHOLE_WITH_POINT = r"^(-?[0-9]+)\.0+$"
_LEADING_ZEROS = r"^0+([0-9]+)$"
# Numbers whose zeros may be significant: 0007, 3.10.
_ZEROS_MEANT = r"^(?:0[0-9]+|-?[0-9]+\.[0-9]*[1-9]0+)$"

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE][+-]?([0-9]{1,3}))?")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]{1,9}))?"
    r" ?(?:Z|UTC|([+-][0-9]{2}):?([0-9]{2})?)?"
)
_CLOCK = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})\.([0-9]+)")
_DURATION = re.compile(r"(-?[0-9]+) days? \+?([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")


def canonical_texts(values: pl.Series, kind: TextKind) -> pl.Series:
    """Return the canonical text of each value; null for an empty text, for NaN and for bytes that are not UTF-8.

    Args:
        values: Values of one type.
        kind: `value` for the canonical text; `written` to leave texts unchanged; `text` for the canonical text of older
            models.
    """
    if kind == "text":
        return _former_texts(values)
    if values.dtype == pl.String:
        stripped = values.str.strip_chars()
        texts = stripped.set(stripped == "", None)
        return texts if kind == "written" else _canonical(texts)
    if values.dtype.is_integer():
        return values.cast(pl.String)
    if values.dtype == pl.Boolean or isinstance(values.dtype, pl.Null):
        return values.cast(pl.String)
    if values.dtype.is_float():
        values = values.cast(pl.Float32) if values.dtype == pl.Float16 else values
        return _canonical(_texts_of_floats(values))
    return _canonical(_plain_texts(values))


def canonical_text(text: str) -> str:
    """Return the canonical text of a text without surrounding spaces."""
    if text in {"True", "TRUE", "False", "FALSE"}:
        return text.lower()
    for pattern, form in _FORMS:
        if found := pattern.fullmatch(text):
            return form(found)
    return text


def merged_texts(values: pl.Series) -> tuple[str, ...]:
    """Return two texts with one canonical text that may be different values, such as 3.1 and 3.10; empty if none."""
    if values.dtype != pl.String:
        return ()
    texts = values.drop_nulls().str.strip_chars().unique(maintain_order=True)
    if not texts.str.contains(_ZEROS_MEANT).any():
        return ()
    frame = pl.DataFrame({"text": texts, "value": canonical_texts(texts, "value")})
    groups = frame.group_by("value", maintain_order=True).agg("text")["text"]
    for group in groups.filter(groups.list.len() > 1):
        if group.str.contains(_ZEROS_MEANT).any():
            return tuple(sorted(group.to_list(), key=lambda text: (len(text), text))[:2])
    return ()


def seconds_of(durations: pl.Series) -> pl.Series:
    """Return durations as a column of seconds."""
    return durations.cast(pl.Duration("ns")).cast(pl.Int64) / 1e9


def _canonical(texts: pl.Series) -> pl.Series:
    texts = texts.str.replace(_WHOLE_WITH_POINT, "$1")
    candidates = texts.str.contains(_MAY_DIFFER).fill_null(False).arg_true()
    if not len(candidates):
        return texts
    found = texts.gather(candidates).str.replace(_LEADING_ZEROS, "$1")
    changed = (~found.str.contains(_IS_CANONICAL)).arg_true()
    if len(changed):
        forms = [canonical_text(text) for text in found.gather(changed)]
        found = found.scatter(changed, pl.Series(forms, dtype=pl.String))
    return texts.scatter(candidates, found)


def _texts_of_floats(values: pl.Series) -> pl.Series:
    """Return integers as digits and other numbers as the shortest decimal that parses to the same number."""
    whole = ((values == values.floor()) & (values.abs() < 2.0**63)).fill_null(False)
    integers = values.set(~whole, 0).fill_nan(0).cast(pl.Int64).cast(pl.String)
    texts = values.fill_nan(None).cast(pl.String)
    return texts.set(whole, None).fill_null(integers.set(~whole, None))


def _plain_texts(values: pl.Series) -> pl.Series:
    """Convert a column that has neither texts nor numbers to texts, as input for `_canonical`."""
    dtype = values.dtype
    if isinstance(dtype, pl.Datetime):
        utc = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if dtype.time_zone else values
        return utc.dt.strftime("%Y-%m-%d %H:%M:%S%.f").str.replace(r" 00:00:00$", "")
    if dtype == pl.Time:
        return values.dt.strftime("%H:%M:%S%.f")
    if isinstance(dtype, pl.Duration):
        return _texts_of_durations(values)
    if dtype == pl.Binary:
        return pl.Series(values.name, [(decoded(value) or "").strip() or None for value in values], pl.String)
    return values.cast(pl.String)


def _texts_of_durations(values: pl.Series) -> pl.Series:
    """Return seconds with nine decimals, by integer division, since float division rounds differently from parsing."""
    nanoseconds = values.cast(pl.Duration("ns")).cast(pl.Int64)
    size = pl.col("size")
    return pl.DataFrame({"is_negative": nanoseconds < 0, "size": nanoseconds.abs()}).select(
        pl.when("is_negative").then(pl.lit("-")).otherwise(pl.lit(""))
        + (size // 10**9).cast(pl.String)
        + "."
        + (size % 10**9).cast(pl.String).str.zfill(9)
    )[:, 0]


def decoded(value: bytes | None) -> str | None:
    """Return bytes as a text; None for bytes that are not UTF-8."""
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return None


def _number(found: re.Match[str]) -> str:
    sign, whole, fraction, exponent = found.groups()
    text = found[0]
    if not (whole or fraction):
        return text
    if exponent is None and not (fraction or "").strip("0"):
        digits = whole.lstrip("0") or "0"
        return f"-{digits}" if sign == "-" and digits != "0" else digits
    # Other texts with an exponent are more often codes than numbers: 0e12, 12e45.
    is_zero = not (fraction or "").strip("0") + (exponent or "").strip("0")
    if exponent is not None and not (len(whole) == 1 and (whole != "0" or is_zero)):
        return text
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        return text
    return str(int(value)) if value.is_integer() else repr(value)


def _time(found: re.Match[str]) -> str:
    day, minutes, seconds, fraction, zone_hours, zone_minutes = found.groups()
    clock = minutes + (seconds or ":00")
    if zone_hours and int(zone_hours + (zone_minutes or "")):
        offset = timedelta(hours=int(zone_hours), minutes=int(zone_hours[0] + (zone_minutes or "0")))
        try:
            day, clock = (datetime.fromisoformat(f"{day} {clock}") - offset).isoformat(" ").split(" ")
        except (ValueError, OverflowError):
            return found[0]
    fraction = (fraction or "").rstrip("0")
    if fraction:
        return f"{day} {clock}.{fraction}"
    return day if clock == "00:00:00" else f"{day} {clock}"


def _clock(found: re.Match[str]) -> str:
    fraction = found[2].rstrip("0")
    return f"{found[1]}.{fraction}" if fraction else found[1]


def _duration(found: re.Match[str]) -> str:
    days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    nanoseconds = whole * 10**9 + int((fraction or "0").ljust(9, "0"))
    whole, rest = divmod(abs(nanoseconds), 10**9)
    return canonical_text(f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:09d}")


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_NUMBER, _number),
    (_TIME, _time),
    (_CLOCK, _clock),
    (_DURATION, _duration),
)


def _former_texts(values: pl.Series) -> pl.Series:
    """Return the canonical texts of older models: the printed form of each type, integers without a decimal point."""
    if values.dtype.is_float():
        return _texts_of_floats(values)
    if values.dtype != pl.String:
        return values.cast(pl.String)
    texts = values.str.strip_chars().str.replace(r"^(-?\d+)\.0+$", "$1")
    return texts.set(texts == "", None)
