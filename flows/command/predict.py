"""Scoring a file: rows are read, scored and written block by block, so that a file of any length fits in memory."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import polars as pl

from shunter.errors import RequestError
from shunter.files import replacing
from shunter.ingestion.rows import read_rows
from shunter.requests import DataFormat
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.serving import ROWS_AT_ONCE

if TYPE_CHECKING:
    from shunter.tracking.registry.ranking_serving import RankingScorer
    from shunter.tracking.registry.serving import Scorer

STANDARD_OUTPUT = "-"
# A multiple of what the scorer takes at once: cut elsewhere, floating-point sums could differ in their last bit.
BLOCK_ROWS = 4 * ROWS_AT_ONCE

Write = Callable[[pl.DataFrame], None]


@dataclass(frozen=True)
class Scored:
    """What was done.

    Attributes:
        model: What the model is called.
        rows: Rows that were scored.
    """

    model: str
    rows: int


def predict_file(
    named: str,
    path: Path,
    out: str,
    *,
    keep: Sequence[str] = (),
    data_format: DataFormat | None = None,
    increments: Sequence[Path] = (),
) -> Scored:
    """Score the rows of a file, in their order.

    Args:
        named: The model, as `shunter.tracking.registry.named.open_model` takes it.
        path: The rows.
        out: File for the scores, `.csv` or `.parquet`, which is there completely or not at all; `-` writes CSV to
            standard output.
        keep: Columns of the file that are put before the scores.
        data_format: Format of the rows; None to guess it.
        increments: Increments that are laid upon the model first.

    Raises:
        ShunterError: There is no such model, it is not what was signed, the rows cannot be read, or the scores
            cannot be written.
    """
    check_out(out)
    with open_model(named, increments) as model:
        scorer = model.fitting_scorer()
        if taken := sorted(set(keep) & set(scorer.outputs)):
            raise RequestError(f"--keep {taken[0]} has the name of a score: rename that column first.")
        columns = tuple(dict.fromkeys([*scorer.encoder.columns, *keep]))
        blocks = read_rows(path, columns, scorer.encoder.optional_columns, BLOCK_ROWS, data_format)
        rows = 0
        with writer(out) as write:
            for block in blocks:
                write(pl.concat([block.select(keep), _scores(scorer, block)], how="horizontal"))
                rows += block.height
            if not rows:
                write(pl.DataFrame(schema=dict.fromkeys(keep, pl.String) | dict.fromkeys(scorer.outputs, pl.Float64)))
    return Scored(model.title, rows)


def _scores(scorer: "Scorer | RankingScorer", block: pl.DataFrame) -> pl.DataFrame:
    """A column for each score; extension arrays keep long whole numbers with gaps from becoming floating-point."""
    scores = scorer.predict(block.to_pandas(use_pyarrow_extension_array=True))
    if isinstance(scores, np.ndarray):
        return pl.DataFrame({scorer.outputs[0]: scores})
    return pl.DataFrame({name: scores[name].to_numpy() for name in scorer.outputs})


def check_out(out: str) -> None:
    """Refuse a file for the scores that is of no known format, or there already."""
    if out == STANDARD_OUTPUT:
        return
    if Path(out).suffix not in {".csv", ".parquet"}:
        raise RequestError(f"--out {out} is neither .csv nor .parquet: name a file of one of them, or -.")
    if Path(out).exists():
        raise RequestError(f"--out {out} exists: name a new file, or remove it first.")


@contextlib.contextmanager
def writer(out: str) -> Iterator[Write]:
    """What writes the blocks after each other to `out`; a file is there when all of them are in it."""
    if out == STANDARD_OUTPUT:
        yield _csv_writer(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    target = Path(out)
    try:
        with replacing(target) as partial, partial.open("wb") as file, _format_writer(target.suffix, file) as write:
            yield write
    except OSError as error:
        raise RequestError(f"--out {out} cannot be written ({error.strerror}): name another file.") from error


@contextlib.contextmanager
def _format_writer(suffix: str, file: IO[bytes]) -> Iterator[Write]:
    if suffix == ".csv":
        yield _csv_writer(file)
        return
    import pyarrow.parquet as pa_parquet

    writer: pa_parquet.ParquetWriter | None = None

    def write(block: pl.DataFrame) -> None:
        nonlocal writer
        table = block.to_arrow()
        writer = writer or pa_parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _csv_writer(file: IO[bytes]) -> Write:
    is_first = True

    def write(block: pl.DataFrame) -> None:
        nonlocal is_first
        file.write(block.write_csv(include_header=is_first).encode())  # as many digits as tell a number from all others
        is_first = False

    return write
