"""Data sets that are requested by name instead of by path."""

import hashlib
import io
import json
import tempfile
import zipfile
from pathlib import Path

import polars as pl

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.errors import DataError, RequestError
from shunter.files import replacing
from shunter.ingestion.batch import Source
from shunter.ingestion.fields import Label, MultiValued, Sequence, SingleValued
from shunter.ingestion.schema import Options, Schema, read_schema
from shunter.ingestion.sources.criteo import criteo_schema
from shunter.ingestion.sources.names import DEFAULT_ROWS, MOVIELENS
from shunter.ingestion.sources.synthetic import SyntheticSource
from shunter.ingestion.sources.tabular import ParquetSource
from shunter.python_processes import run_python
from shunter.quarantine import quarantine

_WHEEL = "recbole-1.2.1-py3-none-any.whl"
_WHEEL_SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
_MEMBER = "recbole/dataset_example/ml-100k/ml-100k.{}"


def open_movielens(argument: str, schema_file: str | None, downloads: Path) -> Source:
    """Open MovieLens-100K, downloaded if necessary; the argument is the length of the histories.

    Raises:
        RequestError: The length is not a positive number.
        DataError: The data set cannot be fetched.
    """
    numbers = _numbers_of(MOVIELENS, argument, most=1)
    if numbers == (0,):
        raise _names_nothing(MOVIELENS, argument)
    return _movielens(_options_of(schema_file), downloads, *numbers)


def open_synthetic(argument: str, schema_file: str | None, downloads: Path) -> Source:
    """Open generated clicks; the argument is `ROWS:SEED`, both optional.

    Raises:
        RequestError: The number of rows or the seed is not a number.
    """
    numbers = _numbers_of("synthetic", argument, most=2)
    rows, seed = (*numbers, *(DEFAULT_ROWS, 0)[len(numbers) :])
    return SyntheticSource(rows, seed, schema=criteo_schema(_options_of(schema_file)))


def _options_of(schema_file: str | None) -> Options:
    return read_schema(schema_file, Options) if schema_file else Options()


def _numbers_of(name: str, argument: str, *, most: int) -> tuple[int, ...]:
    texts = argument.replace("_", "").split(":") if argument else []
    if len(texts) > most or not all(text.isdigit() for text in texts):
        raise _names_nothing(name, argument)
    return tuple(map(int, texts))


def _names_nothing(name: str, argument: str) -> RequestError:
    data = f"{name}:{argument}"
    return RequestError(
        f"{data!r} is not the name of a data set: write ml-100k, ml-100k:LENGTH or synthetic:ROWS:SEED."
    )


def _movielens(options: Options, downloads: Path, history_length: int | None = None) -> Source:
    # The file name holds a prefix of the digest, so that a newly pinned wheel does not reuse an old table.
    table = downloads / f"ml-100k-{_WHEEL_SHA256[:8]}.parquet"
    if not _is_whole(table):
        wheel = fetch_wheel(_WHEEL, _WHEEL_SHA256, downloads)
        with replacing(table) as partial:
            join_movielens(wheel).write_parquet(partial)
            digest = _digest(partial)
        write_checked(_record_of(table), json.dumps({"sha256": digest}))
    schema = Schema(
        label=Label(column="rating", positive_at_least=4),
        numeric=("age", "release_year"),
        categorical=tuple(SingleValued(column=n) for n in ("user_id", "item_id", "gender", "occupation", "zip_code")),
        multi_valued=(MultiValued(column="genres"),),
        sequences=()
        if history_length is None
        else (Sequence(column="rated_items", items="item_id", by="user_id", length=history_length),),
        time="timestamp",
        user="user_id",
        item="item_id",
        **dict(options),
    )
    return ParquetSource("ml-100k", schema, (table,))


def join_movielens(wheel: Path) -> pl.DataFrame:
    """Read ratings, users and films from the wheel, which is a zip archive, and join the three tables."""
    with zipfile.ZipFile(wheel) as archive:
        parts = {
            part: pl.read_csv(
                io.BytesIO(archive.read(_MEMBER.format(part))), separator="\t", infer_schema=False, quote_char=None
            )
            for part in ("inter", "user", "item")
        }
    # The header gives each column as name:type.
    ratings, users, films = (part.rename(lambda name: name.split(":")[0]) for part in parts.values())
    films = films.select(
        "item_id",
        # One film has no year and only the genre unknown, spelt in two ways.
        pl.col("release_year").cast(pl.Int32, strict=False),
        pl.col("class").str.split(" ").alias("genres"),
    )
    return (
        ratings.cast({"rating": pl.Float32, "timestamp": pl.Int64})
        .join(users.cast({"age": pl.Int32}), on="user_id", how="left", maintain_order="left")
        .join(films, on="item_id", how="left", maintain_order="left")
    )


def fetch_wheel(name: str, sha256: str, downloads: Path) -> Path:
    """Download a wheel with pip and check its digest; an existing file is only checked.

    Raises:
        DataError: Pip cannot download the wheel, or the digest differs.
    """
    kept = downloads / name
    if kept.exists():
        if _digest(kept) == sha256:
            return kept
        quarantine(kept, "its sha256 differs from the expected value")
    requirement = "==".join(name.split("-")[:2])
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads) as folder:
        command = ["-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
        command += ["--only-binary=:all:", "--dest", str(Path(folder).absolute()), requirement]
        finished = run_python(*command, folder=Path(folder))
        fetched = Path(folder) / name
        if finished.returncode or not fetched.exists():
            raise DataError(
                f"The package {requirement} of a built-in data set cannot be downloaded: check that pip "
                "reaches its package index."
            )
        if _digest(fetched) != sha256:
            raise DataError(
                f"The package {requirement} of a built-in data set does not have the expected sha256: "
                "check the package index of pip."
            )
        fetched.replace(kept)
    return kept


def _is_whole(table: Path) -> bool:
    """Return True if a table has the digest recorded at its writing; quarantine a damaged table.

    A table of a former version has no record and is written again.
    """
    recorded = read_or_quarantine(_record_of(table), lambda text: str(json_object(text)["sha256"]))
    if recorded is None or not table.exists():
        return False
    if _digest(table) != recorded:
        quarantine(table, "its sha256 differs from the recorded value")
        return False
    return True


def _record_of(table: Path) -> Path:
    return table.with_suffix(".json")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
