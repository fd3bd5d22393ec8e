"""Versions of tables of Delta Lake and Iceberg, and results of databases, stored as one local file each."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet

from shunter.errors import DataError, RequestError, ShunterError
from shunter.extensions.lake.copies import copy_path, make_room, touch
from shunter.extensions.lake.store_errors import NoAccessError, NoObjectError
from shunter.files import replacing
from shunter.ingestion.sources.addresses import Address
from shunter.registry import check_package
from shunter.secrets import without_secrets

_GROUP_ROWS = 1 << 17


class UnreadableTableError(DataError):
    """Error: a part of a table cannot be read.

    Attributes:
        address: Address of the table.
    """

    code = "unreadable-table"

    def __init__(self, address: str, error: Exception) -> None:
        super().__init__(address, error)
        self.address = address

    def __str__(self) -> str:
        """Return the error message."""
        reason = (str(self.args[1]).splitlines() or [type(self.args[1]).__name__])[0][:200].rstrip(".:")
        return f"{self.address} cannot be read ({without_secrets(reason)}): restore it, or give another version."


class _TableStore:
    """Store of tables whose `find` also copies the table version."""

    def copy(self, paths: Iterable[Path]) -> None:
        """Raise `DataError`, because the local copy of a version was removed after `find` returned it."""
        raise DataError(f"The data file {next(iter(paths))} of the table was removed: read the table again.")


class DeltaStore(_TableStore):
    """Store of tables of Delta Lake: `delta:LOCATION@VERSION`, by number or by time."""

    def find(self, address: Address) -> list[Path]:
        """Return the path of the local copy of a version, which is made if it is absent.

        Raises:
            DataError: There is no such table or version, or a part of it cannot be read.
        """
        check_package("deltalake", "deltalake", "lake")
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import TableNotFoundError

        shown_address, location = f"delta:{address.location}", address.location
        try:
            if "://" not in location:
                location = str(Path(location).expanduser().resolve())
            table = DeltaTable(location)
        except TableNotFoundError as error:
            raise NoObjectError(shown_address, "is not a Delta Lake table") from error
        except Exception as error:  # of the library's engine, which has no classes for what a store answers
            raise NoAccessError(shown_address) from error
        if address.version:
            try:
                table.load_as_version(_delta_version(address.version))
            except ShunterError:
                raise
            except Exception as error:
                raise NoObjectError(shown_address, f"has no version {address.version}") from error
        name = Path(address.location).name.partition(".")[0]
        name = f"{name}.{str(table.metadata().id)[:8]}.parquet"  # a table that is made anew begins with version 0 again
        path = copy_path("delta", address.location, str(table.version()), name)
        return _store_batches(
            path, lambda: QueryBuilder().register("t", table).execute("SELECT * FROM t"), shown_address
        )


class IcebergStore(_TableStore):
    """Store of tables of Iceberg: `iceberg://CATALOG/NAMESPACE.TABLE@SNAPSHOT`, of a catalogue of pyiceberg."""

    def find(self, address: Address) -> list[Path]:
        """Return the path of the local copy of a snapshot, which is made if it is absent.

        Raises:
            DataError: There is no such table or snapshot, or a part of it cannot be read.
        """
        check_package("pyiceberg", "pyiceberg", "lake")
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        shown_address = address.location
        catalog, _, name = shown_address.removeprefix("iceberg://").partition("/")
        try:
            table = load_catalog(catalog).load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise NoObjectError(shown_address, "is not a table of its catalogue") from error
        except Exception as error:  # of a catalogue that is not configured, or does not answer
            raise NoAccessError(shown_address) from error
        snapshots = {str(one.snapshot_id): one.snapshot_id for one in table.snapshots()}
        current = table.current_snapshot()
        version = address.version or (str(current.snapshot_id) if current else "")
        if version not in snapshots:
            raise NoObjectError(shown_address, f"has no version {version}" if version else "holds no row")
        path = copy_path("iceberg", shown_address, version, f"{name.rpartition('.')[2]}.parquet")
        return _store_batches(path, lambda: _file_by_file(table.scan(snapshot_id=snapshots[version])), shown_address)


def _file_by_file(scan: Any) -> pa.RecordBatchReader:
    """Return a reader of an Iceberg scan that loads one data file at a time; the scan's own reader loads all files."""
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    projected = scan.projection()
    reader = ArrowScan(scan.table_metadata, scan.io, projected, scan.row_filter, scan.case_sensitive)
    schema = schema_to_pyarrow(projected)
    batches = (batch for file in scan.plan_files() for batch in reader.to_record_batches([file]))
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches))


def store_result(store: str, location: str, name: str, write: Callable[[Path], None]) -> Path:
    """Return the path of the local copy of a result, which is named by its content.

    Args:
        store: Name of the store.
        location: Address or path of the database.
        name: Name of the file.
        write: Writes the result to a file.
    """
    make_room(0, location)
    partial = copy_path(store, location, f".{os.getpid()}.{secrets.token_hex(4)}", name)
    partial.parent.mkdir(parents=True)
    try:
        write(partial)
        with partial.open("rb") as file:
            version = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        path = copy_path(store, location, version, name)
        path.parent.mkdir(exist_ok=True)
        partial.replace(path)
    finally:
        shutil.rmtree(partial.parent, ignore_errors=True)
    touch([path])
    return path


def write_batches(path: Path, reader: Any) -> None:
    """Write the batches of an Arrow stream to a Parquet file, joined into row groups of at least `_GROUP_ROWS` rows."""
    stream = pa.RecordBatchReader.from_stream(reader)
    with pa_parquet.ParquetWriter(path, stream.schema) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in stream:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))


def _store_batches(path: Path, read: Callable[[], Any], shown_address: str) -> list[Path]:
    """Write the stream that `read` opens to the local copy of a version, if that is absent; return the copy."""
    try:
        if not path.exists():
            make_room(0, shown_address)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                write_batches(temporary, read())
        touch([path])
    except ShunterError:
        raise
    except Exception as error:  # of the libraries' engines, whose classes differ
        raise UnreadableTableError(shown_address, error) from error
    return [path]


def _delta_version(version: str) -> int | datetime:
    """Return a version as a number or a time.

    Raises:
        RequestError: The text is neither a number nor a time.
    """
    if version.isdecimal():
        return int(version)
    try:
        return datetime.fromisoformat(version).astimezone()
    except ValueError as error:
        raise RequestError(
            f"{version!r} is not a table version: give a number, or a time such as 2026-03-01T10:00Z."
        ) from error
