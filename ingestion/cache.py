"""Cache of ingested data sets: the same bytes, schema, seed and code version are ingested once."""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from shunter.checked_folder import is_sealed, seal_folder, verify_folder
from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.engine.data.arrays import EAGER_BYTES
from shunter.engine.data.dataset import DESCRIPTION, Dataset
from shunter.errors import DamagedFileError, DataError
from shunter.ingestion.batch import Source
from shunter.ingestion.build import build
from shunter.ingestion.encoding.learned_map import LEARNED_MAPS
from shunter.ingestion.fields import SingleValued
from shunter.ingestion.progress import OnProgress, ignore
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.addresses import located, path_beside
from shunter.ingestion.sources.guard import Budget, check_sizes, open_checked
from shunter.ingestion.sources.parquet import partitions_of
from shunter.ingestion.survey import positives_alone
from shunter.ingestion.vectors import vector_files
from shunter.ingestion.workers import Work, crew_of
from shunter.quarantine import quarantine
from shunter.requests import ClusterRequest

log = logging.getLogger(__name__)

# Must be raised whenever a change of the code makes other arrays of the same source.
CODE_VERSION = 3
# File of known file hashes, by path, size and modification time.
MEMO = "file-hashes.json"


@dataclass(frozen=True)
class IngestReport:
    """Report of one ingestion.

    Attributes:
        rows: Rows of all splits.
        quarantined_rows: Rows rejected while reading.
        reused: Whether the data set was in the cache.
        seconds: Measured wall-clock time in seconds, including the hashing of the source.
        processes: Number of processes that worked on the ingestion.
    """

    rows: int
    quarantined_rows: int
    reused: bool
    seconds: float
    processes: int = 1

    @property
    def rows_per_second(self) -> float:
        """Ingested rows per second of wall-clock time."""
        return self.rows / self.seconds


def ingest_source(
    source: Source,
    cache: Path,
    seed: int,
    max_bad_share: float,
    *,
    positives_suffice: bool = False,
    processes: int | None = None,
    cluster: ClusterRequest | None = None,
    on_progress: OnProgress = ignore,
) -> tuple[Dataset, IngestReport]:
    """Return the data set of `source`, from the cache if present, else by ingesting the log.

    A data set is built in a temporary folder and moved to its place when complete. A failed or killed build
    therefore leaves no incomplete data set. A lock prevents two processes from building the same data
    set.

    Args:
        source: The log, see `shunter.ingestion.sources.open.open_source`.
        cache: Folder of the data sets.
        seed: Seed of the split.
        max_bad_share: Largest accepted share of unreadable rows, 0 to 1.
        positives_suffice: Whether the model needs no row with the label 0, see `shunter.ingestion.survey.Survey.check`.
        processes: Number of processes; None to decide by log size and cores. The arrays do not depend on the number.
        cluster: Ray cluster whose nodes read a long log if they can access the log and the cache; None for this
            machine.
        on_progress: Callback that receives the progress, unless the data set is in the cache.

    Raises:
        DataError: The source cannot be read or used.
        MissingExtensionError: The schema requests learned maps, and no extension learns them.
    """
    started, worked = time.perf_counter(), 1
    check_sizes(source.paths, source.name)
    check_learned_columns(source.schema, is_ranking=positives_suffice)
    if positives_suffice and source.schema.value_encodings:
        log.warning("The schema of %s has target or count encodings, which ranking models ignore.", source.name)
    (cache / "locks").mkdir(parents=True, exist_ok=True)
    fingerprint = fingerprint_of(source, seed, cache / MEMO)
    directory = cache / fingerprint[:16]
    with FileLock(cache / "locks" / f"{directory.name}.lock"):
        reused = _is_whole(directory)
        if reused:
            os.utime(directory)  # records the time of the last request
            dataset = replace(Dataset.load(directory), name=source.name)
            _check_bad_share(dataset, max_bad_share)
            if not positives_suffice and all(split.positives == split.rows for split in dataset.splits.values()):
                raise positives_alone(dataset.name)
            Budget.of_settings().take_rows(dataset.rows + dataset.quarantined_rows, source.name)
        else:
            with crew_of(cluster, source, cache, processes) as crew:
                worked = 1 if crew is None else crew.count
                dataset = _build_beside(
                    lambda folder: build(
                        source,
                        folder,
                        fingerprint,
                        seed,
                        max_bad_share,
                        positives_suffice=positives_suffice,
                        work=Work(crew, on_progress=on_progress),
                    ),
                    directory,
                    lambda: fingerprint_of(source, seed, cache / MEMO) == fingerprint,
                    source.name,
                )
    seconds = time.perf_counter() - started
    return dataset, IngestReport(dataset.rows, dataset.quarantined_rows, reused, seconds, worked)


def check_learned_columns(schema: Schema, *, is_ranking: bool) -> None:
    """Raise if the learned maps that the schema requests cannot be built.

    Raises:
        DataError: The user or the item has a learned map, and a ranking model needs a distinct id for each value.
        MissingExtensionError: No extension learns maps.
    """
    if schema.learned_columns:
        LEARNED_MAPS.entry("learn")
    for column in schema.learned_columns if is_ranking else ():
        if isinstance(column, SingleValued) and column.field in (schema.user, schema.item):
            raise DataError(
                f"The field {column.field} has learned_rows, but a ranking model needs an id for each "
                "value: leave learned_rows out of the schema, or use another --model."
            )


def fingerprint_of(source: Source, seed: int, memo: Path) -> str:
    """Return a hash of everything that determines the arrays: file contents, schema, seed, code version.

    Args:
        source: The log. Hashes of unchanged files (by size and modification time) come from `memo`.
        seed: Seed of the split.
        memo: JSON file of known hashes.
    """
    parts = {
        "code_version": CODE_VERSION,
        "identity": source.identity,
        "schema": source.schema.model_dump(mode="json"),
        "seed": seed,
        "files": hash_files(source.paths, memo),
    }
    if vectors := vector_files(source.schema):
        parts["vectors"] = hash_files(vectors, memo)
    if any(partitions := [partitions_of(path) for path in source.paths]):
        parts["partitions"] = partitions
    if source.schema.value_encodings:
        parts["value_encodings"] = "with counts"
    joins = source.schema.joins
    logs = {located(path).parent: path for path in source.paths}.values() if joins else ()
    files = dict.fromkeys(path_beside(log, join.file) for log in logs for join in joins)
    if joined := tuple(file for file in files if file.exists()):
        parts["joined"] = hash_files(joined, memo)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def hash_files(paths: tuple[Path, ...], memo: Path) -> list[str]:
    """Return the SHA-256 of each file; a file with the size and modification time in `memo` is not read again."""

    def parse(text: bytes) -> dict[str, list]:
        return {path: [int(size), int(time), str(digest)] for path, (size, time, digest) in json_object(text).items()}

    known = read_or_quarantine(memo, parse) or {}
    stamps = {path: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
    new = [path for path, stamp in stamps.items() if known.get(str(path.resolve()), [None])[:2] != stamp]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for path, digest in zip(new, pool.map(_hash_file, new), strict=True):
            known[str(path.resolve())] = [*stamps[path], digest]
    if new:
        write_checked(memo, json.dumps(known, indent=1))
    return [known[str(path.resolve())][2] for path in paths]


def file_hashes(paths: tuple[Path, ...], cache: Path) -> list[str]:
    """Return the SHA-256 of each file, with known hashes stored in the cache of data sets.

    Raises:
        DataError: A file cannot be read.
    """
    cache.mkdir(parents=True, exist_ok=True)
    return hash_files(paths, cache / MEMO)


def forget(dataset: Dataset) -> None:
    """Remove a data set from the cache; a missing data set is no error."""
    with FileLock(dataset.directory.parent / "locks" / f"{dataset.directory.name}.lock"):
        (dataset.directory / "dataset.json").unlink(missing_ok=True)  # first, so that no partial data set remains
        shutil.rmtree(dataset.directory, ignore_errors=True)


def _build_beside(
    make: Callable[[Path], Dataset], directory: Path, is_unchanged: Callable[[], bool], name: str
) -> Dataset:
    """Build a data set in a temporary folder and rename the folder to `directory`; the caller holds the lock."""
    building = directory.with_name(f".{directory.name}.building")
    try:
        # Under the lock, existing folders are leftovers of a killed process.
        for leftover in (building, directory):
            shutil.rmtree(leftover, ignore_errors=True)
        building.mkdir()
        dataset = make(building)
        seal_folder(building)
        if not is_unchanged():
            raise DataError(f"The log {name} changed while it was read: ingest it again when no program writes to it.")
        building.rename(directory)
    except OSError as error:
        raise DataError(
            f"The data set cannot be written to {directory.parent} ({error.strerror or error}): "
            "free some space, or set SHUNTER_HOME to another folder."
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return replace(dataset, directory=directory)


def _check_bad_share(dataset: Dataset, max_bad_share: float) -> None:
    """Raise if a cached data set, accepted under another threshold, has too large a share of unreadable rows."""
    share = dataset.quarantined_rows / (dataset.quarantined_rows + dataset.rows)
    if share > max_bad_share:
        raise DataError(
            f"{dataset.quarantined_rows} rows ({share:.1%}) of {dataset.name} cannot be read, more than "
            f"the permitted {max_bad_share:.1%}: see {dataset.directory / 'quarantine.csv'} for their "
            "faults, then fix the rows or raise --max-bad-share."
        )


def _hash_file(path: Path) -> str:
    try:
        with open_checked(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"The file {path} cannot be read ({error.strerror}): make it readable.") from error


def _is_whole(directory: Path) -> bool:
    """Return True if the cache holds an undamaged data set; a damaged one is quarantined.

    Large arrays are verified while they are read (`shunter.engine.data.arrays`). A data set of a former version, which
    has no checksums, is built again.
    """
    if not (directory / DESCRIPTION).exists() and not is_sealed(directory):
        return False
    if not is_sealed(directory):
        log.warning("The data set %s is from an earlier version without checksums: the log is read again.", directory)
        return False
    try:
        verify_folder(directory, largest_bytes=EAGER_BYTES)
    except DamagedFileError as error:
        quarantine(directory, f"{error.path.name}: {error.reason}")
        return False
    except OSError as error:
        raise DataError(
            f"The cached data set {directory} cannot be read ({error.strerror}): make it readable."
        ) from error
    return True
