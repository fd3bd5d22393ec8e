"""Parsing of time columns: values are parsed separately, and mixed formats are detected before the times are used."""

import operator
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.time_format import AS_WRITTEN, DAY_FIRST, MONTH_FIRST, UNITS, TimeReading

Moments = NDArray[np.float64]
_LATEST = 253_402_300_800 * 10**6  # the year 10000
# Range of numbers for times from 1990 to 2120, by unit since 1970; the range identifies the unit.
_SINCE_1970 = {unit: (6.3e8 * 10**6 / scale, 4.8e9 * 10**6 / scale) for unit, scale in UNITS.items()}
_MONTHS = "january february march april may june july august september october november december"
_MONTH_NUMBERS = {name: number for number, full in enumerate(_MONTHS.split(), start=1) for name in (full, full[:3])}
_CLOCK = (
    r"(?:(?:[T :]|, ?)\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<half>[AP]M)?)?\s*(?P<zone>Z|(?:UTC|GMT)?[+-]\d{2}(?::?\d{2})?|UTC|GMT)?$"
)
_WEEKDAY = r"^(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
_FORMS = (
    r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})" + _CLOCK,
    r"^(?P<first>\d{1,2})[-/.](?P<other>\d{1,2})[-/.](?P<year>\d{4})" + _CLOCK,
    _WEEKDAY + r"(?P<day>\d{1,2})[-/ ](?P<name>[A-Z]{3,9})[-/ ,]+(?P<year>\d{4})" + _CLOCK,
    _WEEKDAY + r"(?P<name>[A-Z]{3,9})\.? +(?P<day>\d{1,2}),? +(?P<year>\d{4})" + _CLOCK,
    r"^(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})T(?P<hour>\d{2})(?P<minute>\d{2})(?P<second>\d{2})?"
    r"(?P<fraction>)(?P<half>)(?P<zone>Z)?$",
)


@dataclass(frozen=True)
class TimesSeen:
    """Notations of times seen in a column (units of numbers, orders of dates): number of values and first value."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: "TimesSeen") -> "TimesSeen":
        """Return the combined observations of two parts of a log."""
        return TimesSeen(self.counts + other.counts, {**other.examples, **self.examples})

    def most(self, kinds: set[str]) -> str:
        """Return the one of `kinds` (date formats or number units) that most values have."""
        return max(kinds, key=lambda kind: self.counts[kind])

    def settle(self, column: str, max_bad_share: float) -> TimeReading:
        """Return the format in which the column is read, chosen by all observed values.

        Args:
            column: Name of the column.
            max_bad_share: Largest accepted share of values of a minority kind, which are then unreadable; 0 to 1.

        Raises:
            DataError: Units or kinds are mixed, or the order of day and month is ambiguous.
        """
        total, few = self.counts.total(), max_bad_share * self.counts.total()
        dates, numbers = self.counts.keys() & _DATE_KINDS, self.counts.keys() - _DATE_KINDS
        count_dates = sum(self.counts[kind] for kind in dates)
        if min(count_dates, total - count_dates) > few:
            raise self._mixed(column, self.most(numbers), self.most(dates))
        reading = AS_WRITTEN
        if dates and numbers:
            reading = replace(reading, kind="dates" if count_dates > total - count_dates else "numbers")
        if count_dates > total - count_dates:
            return replace(reading, day_first=self._day_first(column, few))
        units = numbers & UNITS.keys()
        if len(units) > 1 and self.counts["number"] <= 0.01 * total:
            unit = self.most(units)
            if sum(self.counts[other] for other in units - {unit}) > few:
                raise self._mixed(column, unit, self.most(units - {unit}))
            reading = replace(reading, unit=unit)
        return reading

    def microseconds_per_unit(self, reading: TimeReading) -> float | None:
        """Return the unit of the times that `moments` returns, in microseconds; None if numbers have no known unit."""
        units = self.counts.keys() & UNITS.keys()
        if reading.format is not None or reading.kind == "dates" or not (units or self.counts["number"]):
            return 1.0
        if reading.unit is None and (len(units) != 1 or self.counts["number"] > 0.01 * self.counts.total()):
            return None
        return float(UNITS[reading.unit or self.most(units)])

    def _day_first(self, column: str, few: float) -> bool | None:
        day, month = self.counts[DAY_FIRST], self.counts[MONTH_FIRST]
        if min(day, month) > few:
            raise self._mixed(column, DAY_FIRST, MONTH_FIRST)
        if day or month:
            return day > month
        if self.counts["either"] > few:
            raise DataError(
                f"The time column {column} has dates such as {self.examples['either']!r}, in which day and "
                f"month cannot be distinguished: write `time: {{column: {column}, format: day_first}}`, or "
                "month_first."
            )
        return None

    def _mixed(self, column: str, one: str, other: str) -> DataError:
        names = {"number": "numbers", "date": "dates", "either": "dates", DAY_FIRST: "dates with the day first"}
        names[MONTH_FIRST] = "dates with the month first"
        one, other = (f"{names.get(kind, kind)} ({self.examples[kind]})" for kind in (one, other))
        return DataError(
            f"The time column {column} mixes {one} and {other}: write all in one way, or name the right one in the "
            f"schema, for instance `time: {{column: {column}, format: seconds}}`, and the other rows are quarantined."
        )


_DATE_KINDS = {"date", "either", DAY_FIRST, MONTH_FIRST}


@dataclass(frozen=True)
class _Parsed:
    """Values of a column as read by each notation, float64 [rows], with NaN where the notation does not apply."""

    numbers: Moments
    dates: Moments
    day_first: Moments
    month_first: Moments


def moments(series: pl.Series, reading: TimeReading) -> Moments:
    """Return the times of a column, float64 [rows]: numbers unchanged, dates as microseconds since 1970.

    Numbers with a unit named in the schema become microseconds too. Missing and unreadable values are NaN.
    """
    if series.dtype.is_temporal():
        if series.dtype != pl.Time:
            series = series.cast(pl.Duration("us") if series.dtype == pl.Duration else pl.Datetime("us"))
        return read.numbers(series.cast(pl.Int64))[0]
    if reading.format is not None and reading.format not in (DAY_FIRST, MONTH_FIRST):
        return _formatted(series, reading.format)
    parsed = _parse(series)
    day_first = reading.format == DAY_FIRST if reading.format else reading.day_first
    found = np.full(len(series), np.nan)
    if reading.kind != "dates" and reading.format is None:
        found = parsed.numbers.copy()
        if reading.unit is not None:
            low, high = _SINCE_1970[reading.unit]
            found[~((found >= low) & (found < high))] = np.nan
    if reading.kind == "numbers":
        return found
    written = {True: parsed.day_first, False: parsed.month_first, None: np.full(len(series), np.nan)}[day_first]
    dates = np.where(np.isnan(parsed.dates), written, parsed.dates)
    return np.where(np.isnan(found), dates, found)


def see(series: pl.Series) -> TimesSeen:
    """Return the notations of the times in a column; empty for a column of a temporal type."""
    if series.dtype.is_temporal():
        return TimesSeen()
    parsed = _parse(series)
    in_unit = {name: (parsed.numbers >= low) & (parsed.numbers < high) for name, (low, high) in _SINCE_1970.items()}
    is_day, is_month = ~np.isnan(parsed.day_first), ~np.isnan(parsed.month_first)
    kinds = {
        **in_unit,
        "number": ~np.isnan(parsed.numbers) & ~np.any(list(in_unit.values()), axis=0),
        "date": ~np.isnan(parsed.dates),
        DAY_FIRST: is_day & ~is_month,
        MONTH_FIRST: is_month & ~is_day,
        "either": is_day & is_month,
    }
    counts = Counter({name: int(rows.sum()) for name, rows in kinds.items() if rows.any()})
    return TimesSeen(counts, {name: str(series[int(kinds[name].argmax())]).strip()[:40] for name in counts})


def see_all(parts: list[TimesSeen]) -> TimesSeen:
    """Return the sum of the notations seen in the parts of a column."""
    return reduce(operator.add, parts, TimesSeen())


def _formatted(series: pl.Series, written: str) -> Moments:
    if written in UNITS:
        with np.errstate(over="ignore"):
            found = read.numbers(series)[0] * UNITS[written]
        return np.where(np.abs(found) < _LATEST, found, np.nan)
    texts = series.cast(pl.String).str.strip_chars()
    if "%H" in written and "%M" not in written:  # polars reads no hour without a minute
        texts, written = texts + " 00", f"{written} %M"
    zoned = {"time_zone": "UTC"} if "%z" in written or "%Z" in written or "%:z" in written else {}
    kind = pl.Datetime("us", **zoned) if any(f"%{letter}" in written for letter in "HITXRrcs+") else pl.Date
    try:
        found = texts.str.strptime(kind, written, strict=False)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"The time format {written} in the schema is not a date pattern: correct it, for instance to %d.%m.%Y."
        ) from error
    return read.numbers(found.cast(pl.Datetime("us")).cast(pl.Int64))[0]


def _parse(series: pl.Series) -> _Parsed:
    numbers, bad = read.numbers(series)
    dates, day_first, month_first = (np.full(len(series), np.nan) for _ in range(3))
    if series.dtype == pl.String and bad.any():
        rows = np.flatnonzero(bad)
        texts = series.gather(rows).str.strip_chars()
        for form in _FORMS:
            if not len(rows):
                break
            groups = texts.str.extract_groups("(?i)" + form).struct.unnest()
            if "first" in groups.columns:
                first, other = _whole(groups["first"]), _whole(groups["other"])
                one, two = _microseconds(groups, other, first), _microseconds(groups, first, other)
                same = first == other
                dates[rows[same]] = one[same]
                day_first[rows[~same]], month_first[rows[~same]] = one[~same], two[~same]
            else:
                names = groups["name"].str.to_lowercase() if "name" in groups.columns else None
                month = groups["month"] if names is None else names.replace_strict(_MONTH_NUMBERS, default=None)
                dates[rows] = _microseconds(groups, _whole(month), _whole(groups["day"]))
            left = groups["year"].is_null()
            rows, texts = rows[left.to_numpy()], texts.filter(left)
    return _Parsed(numbers, dates, day_first, month_first)


def _microseconds(groups: pl.DataFrame, month: NDArray[np.int64], day: NDArray[np.int64]) -> Moments:
    """Return microseconds since 1970 in UTC; NaN if the pattern does not match or the date or time is impossible."""
    year, hour, minute, second = (_whole(groups[name]) for name in ("year", "hour", "minute", "second"))
    half = groups["half"].str.to_lowercase().fill_null("").to_numpy()
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23) & (minute <= 59) & (second <= 60)
    valid &= (half == "") | ((hour >= 1) & (hour <= 12))
    hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
    start = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    date = start.astype("datetime64[D]") + (day - 1)
    valid &= (date.astype("datetime64[M]") == start) & groups["year"].is_not_null().to_numpy()
    zone = groups["zone"].str.extract_groups(r"(?<sign>[+-])(?<hours>\d{2}):?(?<minutes>\d{2})?").struct.unnest()
    offset = 60 * _whole(zone["hours"]) + _whole(zone["minutes"])
    valid &= offset <= 15 * 60
    offset = np.where((zone["sign"] == "-").fill_null(False).to_numpy(), -offset, offset)
    seconds = date.astype(np.int64) * 86_400 + 3_600 * hour + 60 * (minute - offset) + second
    fraction = _whole(groups["fraction"].str.pad_end(6, "0").str.slice(0, 6))
    return np.where(valid, (seconds * 10**6 + fraction).astype(np.float64), np.nan)


def _whole(series: pl.Series) -> NDArray[np.int64]:
    """Parse integers; return 0 for a value that is missing or not an integer."""
    return series.cast(pl.Int64, strict=False).fill_null(0).to_numpy()
