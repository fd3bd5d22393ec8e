"""Inspection of a log before training: inferred schema, unreadable rows and findings about data quality."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.errors import DataError, RequestError
from shunter.ingestion.batch import MISSING_KEY, RawBatch
from shunter.ingestion.encoding.frequent import fit_filter
from shunter.ingestion.encoding.negatives import fit_sampler
from shunter.ingestion.encoding.sessions import fit_sessions, user_times
from shunter.ingestion.encoding.times import see_all
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.fields import UTF_8
from shunter.ingestion.findings import (
    Finding,
    LogSample,
    columns_that_vary,
    counted_sessions,
    drawn_negatives,
    findings_of_sample,
    left_out_rows,
    merged_writings,
    unmatched_rows,
)
from shunter.ingestion.infer import infer
from shunter.ingestion.sample import merged_columns, most_rows, sample_of
from shunter.ingestion.schema import Schema, parse_schema
from shunter.ingestion.sources.addresses import local_path
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.described import written_schema
from shunter.ingestion.sources.header import has_rows, varying_columns
from shunter.ingestion.sources.names import is_named
from shunter.ingestion.sources.open import (
    description_of,
    find_files,
    format_of_files,
    name_of,
    own_keys,
    source_of,
    with_where,
)
from shunter.ingestion.sources.recognise import likely_delimiter, likely_encoding
from shunter.ingestion.sources.tabular import TableChunk, TableSource, see_times
from shunter.ingestion.time_format import TimeReading
from shunter.ingestion.writer import Tally
from shunter.predicate import both
from shunter.record import Record
from shunter.requests.source import CRITEO, CSV, FORMATS

FileSource = CriteoSource | TableSource


@dataclass(frozen=True)
class Checked(Record):
    """Result of the inspection of a log.

    Attributes:
        name: Name of the log.
        data_format: File format of the log.
        rows: Readable rows in the inspected sample.
        positive_share: Share of the readable rows with a positive label, or with one above the mean of numbers, 0 to 1.
        bad_rows: Unreadable rows in the inspected sample.
        first_fault: Location and reason of the first row with the most frequent fault; None without unreadable rows.
        schema: Inferred schema as commented YAML; None if a schema file was given or the format needs no schema.
        findings: Findings about data quality.
    """

    name: str
    data_format: str
    rows: int
    positive_share: float
    bad_rows: int
    first_fault: str | None
    schema: str | None
    findings: tuple[Finding, ...]


def check(
    data: str, data_format: str | None = None, schema_file: str | None = None, where: str | None = None
) -> Checked:
    """Inspect the first rows of the first and of the last nonempty file of a log.

    Args:
        data: File, folder, glob or comma-separated list of these.
        data_format: File format; None to detect the format.
        schema_file: Path of the schema file; None to infer a schema.
        where: Predicate on the rows, in addition to the schema's predicate.

    Raises:
        DataError: No row of the log can be read, or no schema can be inferred.
        RequestError: A named data set is given, or a path that may not be read.
    """
    if is_named(data) and not Path(data).exists():
        raise RequestError(f"{data} is a built-in data set: give the path of your own log.")
    schema_file = schema_file and local_path(schema_file)
    paths = find_files(data, where=both(own_keys(schema_file).get("where"), where))
    name, inferred = name_of(data, paths), None
    if (published := description_of(paths, data_format, schema_file)) is not None:
        data_format, paths = published.name, published.chosen(paths)
    else:
        data_format = format_of_files(paths, data_format)
    reader = published.reader if published else data_format
    ends = (next((path for path in files if has_rows(path, reader)), paths[0]) for files in (paths, paths[::-1]))
    looked_at = tuple(dict.fromkeys(ends))
    is_known = published or data_format == CRITEO or FORMATS.load(data_format).usual_schema(looked_at) is not None
    if schema_file or is_known:
        source = source_of(name, looked_at, data_format, schema_file, where=where)
        if not schema_file and data_format != CRITEO:
            inferred = written_schema(source.schema, published.description if published else f"Format {data_format}")
    else:
        inferred, schema = _inferred(name, looked_at, data_format)
        source = with_where(FORMATS.load(data_format)(name, schema, looked_at), where)
    sample, bad, unclear = _read(source)
    if not sample.rows:
        raise DataError(
            f"No row of {name} can be read, such as {bad.first_fault}: mend the schema, or the log."
            if bad.rows
            else f"{name} has no rows: give a log with rows."
        )
    varying = varying_columns(replace(source, paths=paths))
    findings = [*unclear, *columns_that_vary(varying), *findings_of_sample(sample)]
    return Checked(
        name=name,
        data_format=data_format,
        rows=sample.rows,
        positive_share=float(sample.labels.mean()),
        bad_rows=bad.rows,
        first_fault=bad.first_fault,
        schema=inferred,
        findings=tuple(findings),
    )


def _inferred(name: str, paths: tuple[Path, ...], data_format: str) -> tuple[str, Schema]:
    """Infer a schema for a log without a schema file; return the YAML text and the parsed schema."""
    encodings = [likely_encoding(path) for path in paths] if data_format == CSV else []
    encoding = next((one for one in encodings if one != UTF_8), UTF_8)
    delimiter = likely_delimiter(paths[0], encoding) if data_format == CSV else None
    text = infer(*sample_of(paths, data_format, delimiter, encoding), name, encoding)
    return text, parse_schema(text)


def _read(source: FileSource) -> tuple[LogSample, Tally, list[Finding]]:
    """Read the first rows; return the sample, the tally of unreadable rows and the findings about times and texts."""
    chunks, rows, bad = [], 0, Tally()
    for chunk in source.chunks():
        chunks.append(chunk)
        rows += len(chunk.lines) if isinstance(chunk, TableChunk) else chunk.text.count(b"\n")
        if rows >= most_rows(len(source.schema.read_columns)):
            break
    source, unclear = _with_settled_times(source, chunks)
    source, sessions = _with_sessions(source, chunks)
    unclear += sessions
    batches: list[RawBatch] = []
    for chunk in chunks:
        batch = source.parse(chunk)
        bad.add(batch.rejected)
        batches.append(batch)
    merged = merged_columns(chunks[0].table, source.schema) if chunks and isinstance(chunks[0], TableChunk) else {}
    unmatched = Counter[str]()
    for chunk in chunks:
        if isinstance(chunk, TableChunk):
            unmatched.update(dict(zip((join.file for join in source.schema.joins), chunk.unmatched, strict=False)))
    good_rows = sum(len(batch.labels) for batch in batches)
    unclear += unmatched_rows(unmatched, good_rows)
    if source.schema.counted_columns and good_rows:
        names = [field.field for field in source.schema.categorical]
        places = [names.index(column) for column in source.schema.counted_columns]
        found = fit_filter(source.schema, [batch.columns.keys[places] for batch in batches], source.name)
        batches = [found.apply(batch, source.schema) for batch in batches]
    if source.schema.negatives is not None and isinstance(source, TableSource):
        sampler = fit_sampler(source.schema, batches, source.schema, source.name)
        batches = [sampler.apply(batch, source.schema) for batch in batches]
        unclear.append(drawn_negatives(sum(int((one.labels == 0).sum()) for one in batches), sampler.rate))
    left_out = sum(batch.left_out for batch in batches)
    unclear += left_out_rows(left_out, good_rows + sum(getattr(chunk, "left_out", 0) for chunk in chunks))
    unclear += [merged_writings(column, texts) for column, texts in merged.items()]
    return _sample(source.schema, batches), bad, unclear


def _with_settled_times(source: FileSource, chunks: list[Any]) -> tuple[FileSource, list[Finding]]:
    """Return the source with the detected time format; if times are ambiguous, drop the time and add a finding."""
    schema = source.schema
    if isinstance(source, CriteoSource) or schema.time is None:
        return source, []
    if schema.time_format is not None:
        return replace(source, reading=TimeReading(format=schema.time_format)), []
    try:
        reading = see_all([see_times(chunk, schema.time) for chunk in chunks]).settle(schema.time, 0.01)
    except DataError as error:
        if schema.sessions is not None:
            raise
        without = schema.model_copy(update={"time": None, "sequences": ()})
        return replace(source, schema=without), [Finding("time", schema.time, str(error))]
    return replace(source, reading=reading), []


def _with_sessions(source: FileSource, chunks: list[Any]) -> tuple[FileSource, list[Finding]]:
    """Return the source with the sessions of the sample, and the finding that counts them."""
    schema = source.schema
    if isinstance(source, CriteoSource) or schema.sessions is None or schema.time is None or not chunks:
        return source, []
    unit = see_all([see_times(chunk, schema.time) for chunk in chunks]).microseconds_per_unit(source.reading)
    sessions = fit_sessions(schema, [user_times(chunk, schema, source.reading) for chunk in chunks], unit, source.name)
    return replace(source, sessions=sessions), [counted_sessions(sessions.count, sessions.rows)]


def _sample(schema: Schema, batches: list[RawBatch]) -> LogSample:
    """Return the rows of all batches as one table of columns, sorted by time if every batch has times."""
    batches = [batch for batch in batches if len(batch.labels)]
    if not batches:
        return LogSample(pl.DataFrame(), np.empty(0, np.float32), np.empty(0, np.uint64))
    numeric = np.concatenate([batch.columns.numeric for batch in batches], axis=1)
    keys = np.concatenate([batch.columns.keys for batch in batches], axis=1)
    labels = np.concatenate([batch.main_labels for batch in batches])
    if schema.label.loss is not None:  # findings are about two classes: labels above the mean, and the others
        labels = (labels > labels.mean()).astype(np.float32)
    hashes = np.concatenate([_hashes(batch) for batch in batches])
    numbers = {name: pl.Series(row, nan_to_null=True) for name, row in zip(schema.numeric, numeric, strict=True)}
    values = {
        field.field: pl.Series(row).set(pl.Series(row == MISSING_KEY), None)
        for field, row in zip(schema.categorical, keys, strict=True)
    }
    order = np.arange(len(labels))
    if all(batch.times is not None for batch in batches):
        order = np.argsort(np.concatenate([batch.times for batch in batches if batch.times is not None]), kind="stable")
    table = pl.DataFrame({**numbers, **values})
    return LogSample(table[order] if table.width else table, labels[order], hashes[order])


def _hashes(batch: RawBatch) -> NDArray[np.uint64]:
    """Return a hash of all values of each row, uint64 [rows]."""
    bags: list[NDArray[np.uint64]] = []
    for bag in batch.columns.bags:
        total = np.concatenate([[np.uint64(0)], np.cumsum(mix(bag.keys), dtype=np.uint64)])
        bags.append(total[bag.offsets[1:]] - total[bag.offsets[:-1]])
    numbers = [row.view(np.uint32).astype(np.uint64) for row in (*batch.columns.numeric, batch.main_labels.copy())]
    times = [] if batch.times is None else [batch.times.view(np.uint64)]
    hashed = np.zeros(len(batch.labels), np.uint64)
    for part in chain(numbers, batch.columns.keys, bags, times):
        hashed = mix(hashed * np.uint64(3) + part)
    return hashed
