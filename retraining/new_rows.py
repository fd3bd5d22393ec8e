"""Continued training on new rows of a data frame: rows are assigned to days, and a nightly run trains on the days."""

import hashlib
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from shunter.errors import DamagedFileError, DataError, UnsupportedError
from shunter.flows.command.options import build
from shunter.flows.python.frames import store_frame
from shunter.flows.python.session import run
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.columns import check_columns
from shunter.ingestion.encoding.times import moments, see
from shunter.ingestion.schema import Schema, read_schema
from shunter.ingestion.time_format import UNITS, TimeReading
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.nightly_runs import NightlyResult
from shunter.settings import Settings

MICROSECONDS = 1e6


def update(model: str, rows: pl.DataFrame, schema_file: str, options: Mapping[str, Any]) -> NightlyResult:
    """Add rows to the days of a registered model, and start a nightly run that evaluates on the newest of these days.

    The same rows are added only once, so that the same call resumes an interrupted nightly run.

    Args:
        model: Name of the registered model.
        rows: Rows with the columns of the schema.
        schema_file: Schema that names the time column.
        options: Other options of `NightlyRequest`.

    Raises:
        UnsupportedError: The schema names no time column.
        DataError: A column is missing, no time can be read, or there is no earlier day to train on.
        RequestError: An option is invalid.
        DamagedFileError: Rows of an earlier call have changed since.
    """
    schema = read_schema(schema_file, Schema)
    if schema.time is None:
        raise UnsupportedError("update", model, "a schema that names the time, by which rows fall into days")
    check_columns("The frame", rows.columns, schema.read_columns, "of the schema")
    folder = Settings().frames_directory / "days" / model
    days = days_of(rows[schema.time], schema)
    for day in (found := days.drop_nulls().unique().sort()):
        file = store_frame(rows.filter(days == day))
        target = folder / day.isoformat() / f"{file.parent.name}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    if not len(found):
        raise DataError(f"No value of the column {schema.time} can be read as a time: name its format in the schema.")
    for path in folder.glob("*/*.parquet"):
        with path.open("rb") as content:
            if not hashlib.file_digest(content, "sha256").hexdigest().startswith(path.stem):
                raise DamagedFileError(path, "its sha256 is not the recorded one")
    given = {"data": str(folder / "{date}" / "*.parquet"), "schema_file": schema_file, "register_as": model}
    complete = {"day": found[-1], "min_rows_share": 0.0}  # the newest day counts as complete with any number of rows
    request = build(NightlyRequest, {**given, **complete, **options})
    return run("shunter.retraining.nightly_flow:nightly", request)


def days_of(values: pl.Series, schema: Schema) -> pl.Series:
    """Return the day in UTC of each time; null for a value that is not a time.

    Raises:
        DataError: The order of day and month is ambiguous.
    """
    texts = values if values.dtype.is_temporal() else read.as_text(values)[0]
    assert schema.time is not None, "days need a time column"
    reading = TimeReading(format=schema.time_format)
    if schema.time_format is None and not texts.dtype.is_temporal():
        seen = see(texts)
        units = {name: count for name, count in seen.counts.items() if name in UNITS}
        unit = max(units, key=units.__getitem__, default=None)
        reading = TimeReading(format=unit) if unit else seen.settle(schema.time, 0.01)
    found = moments(texts, reading) / MICROSECONDS
    days = [None if np.isnan(seconds) else datetime.fromtimestamp(seconds, UTC).date() for seconds in found]
    return pl.Series(days, dtype=pl.Date)
