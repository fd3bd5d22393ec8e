"""Addresses of objects and tables outside the file system; stores copy them to files in the home folder of Shunter.

Extensions and other packages provide stores (implementations of `Store`); the core reads the local copies.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shunter.errors import RequestError
from shunter.ingestion.sources.guard import address_of, check_address, check_text
from shunter.registry import Entry, Registry
from shunter.secrets import check_is_path
from shunter.settings import Settings


def _table(target: str, *, has_versions: bool = False) -> Entry:
    return Entry(
        target=f"shunter.extensions.lake.{target}", capabilities={"is_table": True, "has_versions": has_versions}
    )


_OBJECTS = Entry(target="shunter.extensions.lake.objects:ObjectStore", capabilities={"is_writable": True})
_PAGES = Entry(target="shunter.extensions.lake.objects:ObjectStore")
STORES = Registry(
    "store of data",
    {
        **dict.fromkeys(("s3", "gs", "abfs", "sftp", "hdfs"), _OBJECTS),
        **dict.fromkeys(("http", "https"), _PAGES),
        "delta": _table("tables:DeltaStore", has_versions=True),
        "iceberg": _table("tables:IcebergStore", has_versions=True),
        "duckdb": _table("databases:DuckDbStore"),
        "sqlite": _table("databases:SqliteStore"),
        "postgresql": _table("databases:PostgresStore"),
    },
    group="shunter.stores",
    defaults={"is_table": False, "has_versions": False, "is_writable": False},
)
_FORM = re.compile(r"([a-z][a-z0-9+.-]*)(://|:)(.+)", re.DOTALL)
_VERSION = re.compile(r"(?:^|(?<![/:])/)[^/@:]*@[^/@]*$")  # not the host behind a user
_IN_FILES = "file://"


@dataclass(frozen=True)
class Address:
    """Parsed address of an object, a folder or glob of objects, or a table.

    Attributes:
        store: Name of the store: the scheme of an address, or the kind of a table.
        location: Path or address of the data, without version and query.
        version: Version of a table; empty for the newest.
        query: Name of a table of a database, or a query; empty for other stores.
    """

    store: str
    location: str
    version: str = ""
    query: str = ""

    @property
    def is_table(self) -> bool:
        """Return True if the address names a table rather than files."""
        return bool(STORES.stated(self.store).get("is_table"))

    def check(self) -> None:
        """Raise `RequestError` if the location may not be read."""
        (check_address if "://" in self.location else check_text)(self.location)


class Store(Protocol):
    """Store of data that is copied to local files, see `shunter.ingestion.sources.guard.address_of` for their paths.

    A store with the capability `is_writable` also has the methods `check_free(address)`, `put(path, address)` and
    `get(address, folder)` of `shunter.extensions.lake.objects.ObjectStore`.
    """

    def find(self, address: Address) -> list[Path]:
        """Return the paths of the local copies of the files of an address; objects are not copied yet.

        Raises:
            DataError: Nothing is found, or the store refuses access.
        """
        ...

    def copy(self, paths: Iterable[Path]) -> None:
        """Make the local copies that are absent.

        Raises:
            DataError: An object cannot be read, or changes while it is read.
        """
        ...


def parse_address(text: str) -> Address | None:
    """Return the address that a text names; None for a path or a named data set."""
    match = _FORM.fullmatch(text)
    if match is None or (match[1] not in STORES.entries and match[2] == ":"):
        return None
    name, mark, rest = match.groups()
    if name + mark == _IN_FILES or (mark == "://" and name not in STORES):
        return None
    if not STORES.stated(name).get("is_table"):
        return Address(name, text) if mark == "://" else None
    place, _, query = rest.partition("#")
    version = ""
    if STORES.stated(name).get("has_versions") and _VERSION.search(place):
        place, _, version = place.rpartition("@")
    return Address(name, place if mark == ":" else f"{name}://{place}", version, query)


def find_objects(text: str) -> list[Path] | None:
    """Return the paths of the local copies of an address, which `copy_objects` makes; None if the text is a path.

    Raises:
        RequestError: The address holds a secret or may not be read, or the extension of its store is absent.
        DataError: Nothing is found, or the store refuses access.
    """
    address = parse_address(text)
    if address is None:
        return None
    address.check()
    return _store(address.store).find(address)


def copy_objects(paths: Iterable[Path]) -> None:
    """Make the local copies that are absent; files that are no local copies are left out.

    Raises:
        DataError: An object cannot be read, or changes while it is read.
    """
    wanted: dict[str, list[Path]] = {}
    for path in paths:
        if path.is_relative_to(folder := Settings().objects_directory) and not path.exists():
            wanted.setdefault(path.relative_to(folder).parts[0], []).append(path)
    for store, absent in wanted.items():
        _store(store).copy(absent)


def local_path(text: str) -> str:
    """Return the path of one file: a checked path unchanged, or the local copy of an address.

    Raises:
        RequestError: The text may not be read, or names several files.
        DataError: The file is not found or cannot be read.
    """
    found = find_objects(text)
    if found is None:
        check_text(text := without_file_scheme(text))
        return text
    if len(found) != 1:
        raise RequestError(
            f"The pattern {text} matches {len(found)} files, but one file is needed: write its full name."
        )
    copy_objects(found)
    return str(found[0])


def path_beside(log: Path, text: str) -> Path:
    """Return the path of a file that belongs to a log: the local copy of an address, or of an object beside the log.

    Args:
        log: A file of the log.
        text: Address or path; a relative one begins at the folder of the log.

    Raises:
        RequestError: The address may not be read, or names several files.
        DataError: The object is not found or cannot be read.
    """
    if parse_address(text) is not None:
        return Path(local_path(text))
    path, address = Path(text).expanduser(), address_of(log)
    if path.is_absolute() or address is None or address.startswith(_IN_FILES):
        return log.parent / path
    return Path(local_path(f"{address.rpartition('/')[0]}/{text}"))


@contextmanager
def output_path(target: str | Path, option: str) -> Iterator[Path]:
    """Yield a path for an output file or folder: the target, or a temporary path that is uploaded at the end.

    Raises:
        RequestError: The store takes no files, there is something at the address, or it may not be used.
        DataError: The store refuses access, or cannot be reached.
    """
    address = parse_address(target := str(target))
    if address is None:
        check_is_path(target := without_file_scheme(target))
        yield Path(target)
        return
    address.check()
    if not STORES.stated(address.store).get("is_writable"):
        raise RequestError(
            f"Files cannot be written to {option} {target}: name a path, or an address of an object store."
        )
    store: Any = _store(address.store)
    store.check_free(address)
    with tempfile.TemporaryDirectory(prefix="shunter-out-") as folder:
        path = Path(folder, address.location.rstrip("/").rpartition("/")[2])
        yield path
        store.put(path, address)


@contextmanager
def local_folders(given: Iterable[str | Path]) -> Iterator[list[Path]]:
    """Yield folders as paths; those at addresses are copied for the length of the block.

    Raises:
        RequestError: The address may not be read, or belongs to no object store.
        DataError: There is no such folder, or the store refuses access.
    """
    with tempfile.TemporaryDirectory(prefix="shunter-in-") as copies:
        found: list[Path] = []
        for number, one in enumerate(map(str, given)):
            address = parse_address(one)
            if address is None:
                check_is_path(path := without_file_scheme(one))
                found.append(Path(path))
                continue
            address.check()
            if not STORES.stated(address.store).get("is_writable"):
                raise RequestError(
                    f"The address {one} cannot hold folders: name a path, or an address of an object store."
                )
            store: Any = _store(address.store)
            found.append(Path(copies, str(number), address.location.rstrip("/").rpartition("/")[2]))
            found[-1].mkdir(parents=True)
            store.get(address, found[-1])
        yield found


def versions_of(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return the addresses, with version, of the tables whose local copies are among the files, as for `--data`."""
    folder, found = Settings().objects_directory, dict[str, None]()
    for path in paths:
        address = address_of(path)
        store = path.relative_to(folder).parts[0] if address is not None and path.is_relative_to(folder) else ""
        if address is not None and STORES.stated(store).get("is_table"):
            scheme, _, place = address.partition("://")
            location = f"/{place}" if scheme == "file" else address
            own = location if scheme == store else f"{store}:{location}"
            found[f"{own}{path.parent.name if STORES.stated(store).get('has_versions') else ''}"] = None
    return (*found,)


def whole_path(text: str, base: Path) -> str:
    """Return the absolute path of a text that is relative to a folder; return addresses unchanged."""
    return text if parse_address(text) is not None else str(base / Path(text).expanduser())


def without_file_scheme(text: str) -> str:
    """Return the path of an address `file://`; return other texts unchanged."""
    return text.removeprefix(_IN_FILES) if text.startswith(f"{_IN_FILES}/") else text


def located(path: Path) -> Path:
    """Return the path that a locally copied object has in its store; return the path of any other file unchanged."""
    address = address_of(path)
    return path if address is None else Path(address.partition("://")[2])


def _store(name: str) -> Store:
    return STORES.load(name)()
