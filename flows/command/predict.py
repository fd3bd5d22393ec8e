"""Scoring of files, and comparison of the scores of an updated model.

Rows are read, scored and written block by block, so that files of any length fit into memory.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION
from shunter.errors import RequestError, first_line
from shunter.files import replacing
from shunter.ingestion.encoding.value_counts import ValueCounts
from shunter.ingestion.rows import read_rows
from shunter.ingestion.sources.addresses import output_path, parse_address, without_file_scheme
from shunter.secrets import check_is_path
from shunter.tracking.registry.named import ExportedIncrement, open_model
from shunter.tracking.registry.row_scorer import ROWS_AT_ONCE

STANDARD_OUTPUT = "-"
# Rows of a block: a multiple of the scorer's batch, so that scores do not depend on blocks, not even in the last bit.
BLOCK_ROWS = 4 * ROWS_AT_ONCE

Write = Callable[[pl.DataFrame], None]


@dataclass(frozen=True)
class Scored:
    """Result of scoring files."""

    model: str
    rows: int
    counts: ValueCounts


def predict_file(
    named: str,
    data: str | Path | Sequence[str],
    out: str,
    *,
    keep: Sequence[str] = (),
    data_format: str | None = None,
    increments: Sequence[Path] = (),
    max_unknown: float | None = None,
) -> Scored:
    """Score the rows of files in order; the scores of a file do not depend on other files.

    Args:
        named: Name of the model for `shunter.tracking.registry.named.open_model`.
        data: Files of the rows for `shunter.ingestion.rows.read_rows`.
        out: File for the scores, `.csv` or `.parquet`, written atomically; `-` writes CSV to standard output.
        keep: Columns of the files that are put before the scores.
        data_format: Format of the rows; None: the format is guessed.
        increments: Increments that are applied to the model first.
        max_unknown: Largest share of a column's values that may be unknown or unreadable; None for any. On standard
            output, scores are written before a larger share is detected.

    Raises:
        UnusableValuesError: More of a column's values than `max_unknown` are unknown or unreadable.
        ShunterError: The model does not exist or does not match its signature, the rows cannot be read, or the scores
            cannot be written.
    """
    check_out(out)
    with open_model(named, increments) as model:
        scorer = model.fitting_scorer()
        if taken := sorted(set(keep) & set(scorer.outputs)):
            raise RequestError(
                f"The column {taken[0]} of --keep has the name of a score column: rename it in the input files."
            )
        columns = tuple(dict.fromkeys([*scorer.encoder.columns, *keep]))
        optional, encoding = scorer.encoder.optional_columns, scorer.encoder.text_form.encoding
        blocks = read_rows(data, columns, optional, BLOCK_ROWS, data_format, encoding=encoding)
        rows, counts = 0, scorer.encoder.count()
        with writer(out) as write:
            for block in blocks:
                scores, of_block = scorer.score_block(block)
                counts += of_block
                by_output = scores.reshape(block.height, -1).T
                named_scores = [pl.Series(*named) for named in zip(scorer.outputs, by_output, strict=True)]
                write(pl.concat([block.select(keep), pl.DataFrame(named_scores)], how="horizontal"))
                rows += block.height
            if not rows:
                write(pl.DataFrame(schema=dict.fromkeys(keep, pl.String) | dict.fromkeys(scorer.outputs, pl.Float64)))
            counts.check(max_unknown)
    return Scored(model.title, rows, counts)


def check_out(out: str) -> None:
    """Raise if the file for the scores has an unknown format or already exists."""
    if out == STANDARD_OUTPUT:
        return
    if parse_address(out) is None:
        check_is_path(without_file_scheme(out))
    if Path(out).suffix not in {".csv", ".parquet"}:
        raise RequestError(f"--out {out} is neither .csv nor .parquet: name a file of one of these types, or -.")
    if parse_address(out) is None and Path(without_file_scheme(out)).exists():
        raise RequestError(f"--out {out} exists: name a new file, or remove it first.")


@contextlib.contextmanager
def writer(out: str) -> Iterator[Write]:
    """Yield a function that appends a block of scored rows to `out`; a file appears only when it is complete."""
    if out == STANDARD_OUTPUT:
        yield _csv_writer(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with (
            output_path(out, "--out") as target,
            replacing(target) as partial,
            partial.open("wb") as file,
            _format_writer(target.suffix, file) as write,
        ):
            yield write
    except OSError as error:
        raise RequestError(f"--out {out} cannot be written ({error.strerror}): name another file.") from error


@contextlib.contextmanager
def _format_writer(suffix: str, file: IO[bytes]) -> Iterator[Write]:
    if suffix == ".csv":
        yield _csv_writer(file)
        return
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    writer: pa_parquet.ParquetWriter | None = None

    def write(block: pl.DataFrame) -> None:
        nonlocal writer
        table = block.to_arrow()
        writer = writer or pa_parquet.ParquetWriter(file, table.schema)
        try:
            writer.write_table(table.cast(writer.schema))
        except pa.ArrowException as error:
            raise RequestError(
                f"Columns of --keep differ in type between the input files ({first_line(error)}): write "
                "--out as .csv, or leave these columns out."
            ) from error

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _csv_writer(file: IO[bytes]) -> Write:
    is_first = True

    def write(block: pl.DataFrame) -> None:
        nonlocal is_first
        file.write(block.write_csv(include_header=is_first).encode())  # enough digits to restore each number
        is_first = False

    return write


def increment_summary(done: ExportedIncrement, folder: str) -> list[str]:
    """Return the summary of an exported increment, one sentence per item."""
    described = done.described
    return [
        f"{described.title} since {described.since} is in {folder}: {done.size:,} bytes, {done.size / done.whole:.1%} "
        f"of the {done.whole:,} of the whole model; {described.changed_rows:,} of {described.rows:,} rows.",
        "Applied to that model, it restores the new one bit by bit."
        if described.bits == FULL_PRECISION
        else f"Its rows are in {described.bits} bits: measured, they are off by {described.row_error:.2g} of their "
        "size (root mean square).",
    ]


def compare_scores(exact: str, near: str, increments: Sequence[Path], rows: Path) -> str:
    """Return a sentence that compares the scores of an incrementally updated model with those of the exact model.

    Args:
        exact: New model, by a name for `shunter.tracking.registry.named.open_model`.
        near: Older model, to which the increments are applied.
        increments: Folders of the increments.
        rows: File of rows that both models score.

    Raises:
        ShunterError: A model or an increment is missing or damaged, or the rows cannot be read.
    """
    with open_model(exact) as now, open_model(near, increments) as then:
        scorers = now.scorer(), then.scorer()
        if "prediction" in scorers[0].outputs:
            raise RequestError(
                f"The model {exact} predicts a number, but --rows compares probabilities: leave out --rows."
            )
        encoder = scorers[0].encoder
        count, distance, divergence, entropy = 0, 0.0, 0.0, 0.0
        encoding = encoder.text_form.encoding
        for block in read_rows(rows, encoder.columns, encoder.optional_columns, BLOCK_ROWS, encoding=encoding):
            scores = (np.asarray(scorer.score_block(block)[0], np.float64) for scorer in scorers)
            one, other = (np.clip(some, 1e-12, 1 - 1e-12) for some in scores)
            count += one.size
            distance += float(np.abs(one - other).sum())
            entropy -= float((one * np.log(one) + (1 - one) * np.log1p(-one)).sum())
            divergence += float((one * np.log(one / other) + (1 - one) * (np.log1p(-one) - np.log1p(-other))).sum())
    if not count:
        raise RequestError(f"The file {rows} has no rows, so no scores were compared: give a file with rows.")
    return (
        f"Measured on {count:,} scores of {rows}: probabilities differ by {distance / count:.2g} on average; the log "
        f"loss rises by {divergence / entropy:.2%} if the new model's probabilities are true (labels are not read)."
    )
