"""Pretrained vectors of a column's values: read, matched with the ids, and stored next to the arrays.

If the schema names a file of vectors, the embedding table of the column is initialized with these vectors
(`shunter.engine.data.vectors`).
"""

import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from shunter.engine.data.arrays import read_npz
from shunter.engine.data.given import FOLDER, GivenVectors, save_given
from shunter.errors import DataError
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.fields import Categorical
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.addresses import local_path, parse_address
from shunter.ingestion.sources.guard import Budget, check_paths, open_checked
from shunter.ingestion.sources.parquet import open_parquet, read_batches

ENDINGS = (".parquet", ".csv", ".npz")


def columns_with_vectors(schema: Schema) -> list[Categorical]:
    """Return the columns with a file of pretrained vectors."""
    return [column for column in (*schema.categorical, *schema.bags) if column.vectors is not None]


def vector_files(schema: Schema) -> tuple[Path, ...]:
    """Return the files of pretrained vectors after checking each path.

    Raises:
        DataError: A file is missing, or has an unsupported file name extension.
        RequestError: A file is outside the folders that may be read.
    """
    files: list[Path] = []
    for column in columns_with_vectors(schema):
        path = _path_of(column)
        check_paths([path])
        if path.suffix not in ENDINGS:
            raise DataError(
                f"The file type of the pretrained vectors of {column.column}, {path}, is not supported: give a "
                f"file in {', '.join(ENDINGS)}."
            )
        if not path.is_file():
            raise DataError(
                f"The file {path} of the pretrained vectors of {column.column} does not exist: check "
                "`vectors` in the schema."
            )
        files.append(path)
    return tuple(files)


def _path_of(column: Categorical) -> Path:
    """Return the path of a column's file of vectors; for an address, the path of the local copy."""
    text = column.vectors or ""
    return Path(text) if parse_address(text) is None else Path(local_path(text))


def write_vectors(schema: Schema, encoder: Encoder, directory: Path) -> None:
    """Store the pretrained vectors of each column, ordered by id, in the folder of a data set.

    Raises:
        DataError: A file cannot be used; the message gives the reason.
    """
    owners = [field.name for field in encoder.features.categorical if field.table is None]
    fields = {field.name: field for field in encoder.categorical}
    for column in columns_with_vectors(schema):
        path = _path_of(column)
        vectors, known = _by_id(path, column.column, fields[column.column])
        given = GivenVectors(
            field=column.column,
            table=owners.index(column.column),
            width=vectors.shape[1],
            is_frozen=column.freeze_vectors,
            given=int((~np.isnan(vectors[:, 0])).sum()),
            ids=len(vectors) - 1,
            unused=known,
        )
        save_given(directory / FOLDER, given, vectors)


def _by_id(path: Path, name: str, field: CategoricalField) -> tuple[NDArray[np.float32], int]:
    """Return the vector of each id, float32 [ids, width] with NaN if missing, and the number of unused vectors."""
    values, vectors = _read(path, name)
    if not len(vectors) or not vectors.shape[1]:
        raise DataError(f"The file {path} has no pretrained vectors of {name}: give a row for each value.")
    if not np.isfinite(vectors).all():
        value = values[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
        raise DataError(
            f"The pretrained vector of {value!r} in {path} has NaN or infinity: correct the vector, or leave it out."
        )
    if values.n_unique() < len(values):
        twice = values.filter(values.is_duplicated())[0]
        raise DataError(
            f"The file {path} has more than one pretrained vector of {twice!r}: give one for each value of {name}."
        )
    ids = field.ids.ids(read.keys(read.as_text(values)[0], field.key_kind))
    found = np.full((field.ids.rows, vectors.shape[1]), np.nan, np.float32)
    found[ids[ids > 0]] = vectors[ids > 0]
    if not (ids > 0).any():
        raise DataError(
            f"None of the {len(values):,} values in {path} occurs in the column {name} of the training "
            "part: check that both use the same ids."
        )
    return found, int((ids == 0).sum())


def _read(path: Path, name: str) -> tuple[pl.Series, NDArray[np.float32]]:
    """Read a file; return the values and their vectors, float32 [values, width]."""
    try:
        if path.suffix == ".npz":
            stored = read_npz(path)
            values, vectors = pl.Series(name, stored["ids"]), np.asarray(stored["vectors"], np.float32)
        else:
            frame = _frame(path)
            if name not in frame.columns:
                raise DataError(
                    f"The file {path} of pretrained vectors has no column {name} with the values that the "
                    f"vectors belong to. Columns: {', '.join(frame.columns[:8])}."
                )
            values, vectors = frame[name], _numbers(frame.drop(name), path)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split())[:100]
        raise DataError(
            f"The file {path} cannot be read as pretrained vectors of {name} ({reason}): see `vectors` in "
            "docs/reference/schema.md."
        ) from error
    if vectors.size and (vectors.ndim != 2 or len(vectors) != len(values)):
        raise DataError(
            f"The file {path} has {len(values):,} values of {name}, but vectors of the shape "
            f"{vectors.shape}: give one vector for each value."
        )
    return values, vectors


def _frame(path: Path) -> pl.DataFrame:
    if path.suffix == ".csv":
        with open_checked(path) as stream:
            return pl.read_csv(stream, infer_schema_length=10_000)
    with open_parquet(path) as (file, stream):
        batches = read_batches(path, file, stream, file.schema_arrow.names, Budget.of_settings())
        frame = pl.from_arrow(pa.Table.from_batches(batches, file.schema_arrow))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _numbers(frame: pl.DataFrame, path: Path) -> NDArray[np.float32]:
    """Return the vectors, float32 [rows, width], stored as one list column or as one column for each dimension."""
    if frame.width == 1 and isinstance(frame.dtypes[0], pl.List | pl.Array):
        lists = frame.to_series().to_list()
        widths = sorted({0 if one is None else len(one) for one in lists})
        if len(widths) > 1:
            raise DataError(
                f"The pretrained vectors in {path} have different widths, from {widths[0]} to {widths[-1]}: "
                "give vectors of one width."
            )
        return np.array(lists, np.float32).reshape(len(lists), widths[0] if widths else 0)
    if not frame.width:
        return np.empty((0, 0), np.float32)
    return frame.select(pl.all().cast(pl.Float32)).fill_null(float("nan")).to_numpy()
