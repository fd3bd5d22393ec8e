"""Objects of S3, Google Cloud Storage, Azure, web servers, SSH servers and Hadoop, read by fsspec into local copies."""

import hashlib
import os
import random
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar, cast

from shunter.errors import RequestError, ShunterError
from shunter.extensions.lake.copies import copy_path, make_room, touch
from shunter.extensions.lake.store_errors import ChangedObjectError, NoAccessError, NoObjectError, StoreError
from shunter.files import replacing
from shunter.ingestion.sources.addresses import Address
from shunter.ingestion.sources.guard import address_of
from shunter.ingestion.sources.open import is_in_folder
from shunter.registry import check_package
from shunter.settings import Settings

_PACKAGES = {
    "s3": ("s3fs", "s3fs"),
    "gs": ("gcsfs", "gcsfs"),
    "abfs": ("adlfs", "adlfs"),
    "http": ("aiohttp", "aiohttp"),
    "https": ("aiohttp", "aiohttp"),
    "sftp": ("paramiko", "paramiko"),
    "hdfs": ("pyarrow", "pyarrow"),
}
_WITH_HOSTS = {"sftp", "hdfs"}  # a connection belongs to one host, and is not shared by threads
_RANGE_BYTES = 8 << 20
_FILES_AT_ONCE = 4
_RANGES_AT_ONCE = 4
_ATTEMPTS = 6
_FIRST_WAIT_SECONDS = 0.1
_TAGS = (
    *("ETag", "etag", "md5Hash", "Content-MD5", "Digest"),
    *("LastModified", "last_modified", "Last-Modified", "mtime"),
)
_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_WITHOUT_CREDENTIALS = {  # of botocore, google-auth and azure-identity
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"),
    *("DefaultCredentialsError", "RefreshError", "ClientAuthenticationError", "UnauthorizedSSOTokenError"),
}
Result = TypeVar("Result")


class ObjectStore:
    """Object store; whole objects are copied to this machine."""

    def find(self, address: Address) -> list[Path]:
        """Return the paths of the local copies of an object, of a glob, or of the files of a folder.

        A file in a subfolder is included only if each subfolder on its path is a partition, such as `day=2026-03-01`.

        Raises:
            DataError: There is no file, or access is refused.
        """
        shown_address = address.location
        system = file_system(shown_address)
        if address.store in ("http", "https") and not shown_address.endswith("/") and "*" not in shown_address:
            infos = [_info(system, shown_address)]
        else:
            infos = _attempted(partial(_list, system), system._strip_protocol(shown_address), shown_address)
            if address.store in ("http", "https"):  # whose listings have names alone
                infos = [_info(system, info["name"]) for info in infos]
        files = [info for info in infos if not info["name"].endswith("/")]  # the others mark folders
        found = [_path_of(address.store, system, info) for info in files]
        if not found:
            raise NoObjectError(shown_address)
        touch(found)
        return found

    def copy(self, paths: Iterable[Path]) -> None:
        """Make the local copies that are absent.

        Raises:
            DataError: An object cannot be read, or changes while it is read.
        """
        by_origin: dict[str, list[Path]] = {}
        for path in paths:
            by_origin.setdefault(_origin(_address(path)), []).append(path)
        for origin, absent in by_origin.items():
            system = file_system(origin)
            with ThreadPoolExecutor(_FILES_AT_ONCE if system.async_impl else 1) as pool:
                infos = list(pool.map(partial(_info, system), map(_address, absent)))
                make_room(sum(info["size"] or 0 for info in infos), _address(absent[0]))
                for _ in pool.map(partial(_copy, system), absent, infos):
                    pass

    def check_free(self, address: Address) -> None:
        """Raise `RequestError` if there is something at an address, or `DataError` if the store refuses access."""
        system = file_system(address.location)
        if _attempted(system.exists, address.location, address.location):
            raise RequestError(
                f"The address {address.location} exists: name a new address, or remove the object first."
            )

    def put(self, path: Path, address: Address) -> None:
        """Write a file or a folder beside an address, and move it to the address when it is complete.

        Raises:
            DataError: The store refuses access, or cannot be reached.
        """
        system, shown_address = file_system(address.location), address.location.rstrip("/")
        target = str(system._strip_protocol(shown_address))
        beside = f"{target}.{secrets.token_hex(4)}.partial"
        inside = [one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()]
        inside.sort(key=lambda name: (-name.count("/"), name))  # what describes the folder comes last
        ends = [f"/{name}" for name in inside] or [""]
        try:
            for end in ends:
                _attempted(partial(_put, system, f"{path}{end}"), f"{beside}{end}", shown_address)
            for end in [""] if address.store in _WITH_HOSTS else ends:  # these move a folder as a whole
                _attempted(partial(system.mv, f"{beside}{end}"), f"{target}{end}", shown_address)
        except BaseException:
            with suppress(Exception):  # each library has classes of its own, and the first error counts
                system.rm(beside, recursive=path.is_dir())
            raise

    def get(self, address: Address, folder: Path) -> None:
        """Copy all files of a folder into a local folder.

        Raises:
            DataError: There is no such folder, or the store refuses access.
        """
        system, shown_address = file_system(address.location), address.location.rstrip("/")
        root = str(system._strip_protocol(shown_address)).strip("/") + "/"
        names = _attempted(partial(system.find, **_strict(system)), shown_address, shown_address)
        if not names:
            raise NoObjectError(shown_address)
        for name in names:
            target = folder / name.lstrip("/").removeprefix(root)
            if not target.resolve().is_relative_to(folder.resolve()):
                raise NoObjectError(shown_address, "holds a name that leaves its folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            _attempted(partial(system.get_file, name), str(target), shown_address)


def _put(system: Any, file: str, place: str) -> None:
    system.makedirs(place.rpartition("/")[0], exist_ok=True)
    system.put_file(file, place)


def file_system(address: str) -> Any:
    """Return the fsspec file system of an address, configured by its own library, without a cache of listings.

    Raises:
        MissingPackageError: Its package is not installed.
        DataError: There is no connection.
    """
    scheme = address.partition("://")[0]
    module, package = _PACKAGES[scheme]
    check_package("fsspec", "fsspec", "lake")
    check_package(module, package, "lake")
    import fsspec

    if scheme == "sftp":
        from shunter.extensions.lake.ssh import SshFiles

        return SshFiles(_origin(address))
    if scheme == "hdfs":
        from shunter.extensions.lake.hadoop import HadoopFiles

        return HadoopFiles(_origin(address))
    options: dict[str, Any] = {}
    if scheme in ("http", "https"):
        import aiohttp

        options["client_kwargs"] = {"timeout": aiohttp.ClientTimeout(sock_read=Settings().object_timeout_seconds)}
    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **options)


def _strict(system: Any) -> dict[str, str]:
    """Return the listing options that raise errors; by default fsspec lists nothing after a lost connection."""
    return {} if system.async_impl else {"on_error": "raise"}


def _list(system: Any, path: str) -> list[Mapping[str, Any]]:
    if any(letter in path for letter in "*?["):
        found = system.glob(path, detail=True, **_strict(system))
        return sorted((info for info in found.values() if info["type"] == "file"), key=lambda info: info["name"])
    if not path.endswith("/") and system.isfile(path):  # a web server has a page for a folder
        return [system.info(path)]
    root = path.strip("/") + "/"
    infos = system.find(path, detail=True, **_strict(system)).values()
    return [info for info in infos if is_in_folder(Path(info["name"].lstrip("/").removeprefix(root)))]


def _origin(address: str) -> str:
    """Return the scheme of an address, and its host for SFTP and HDFS, whose connections belong to one host."""
    scheme, _, place = address.partition("://")
    return f"{scheme}://{place.partition('/')[0]}" if scheme in _WITH_HOSTS else f"{scheme}://"


def _path_of(store: str, system: Any, info: Mapping[str, Any]) -> Path:
    name = info["name"].lstrip("/")
    if store in _WITH_HOSTS:
        address = f"{system.origin}/{name}"
    else:
        address = name if store in ("http", "https") else f"{store}://{name}"
    name = address.partition("://")[2].partition("?")[0].rpartition("/")[2]
    return copy_path(store, address, _version(info), name)


def _version(info: Mapping[str, Any]) -> str:
    """Return a text that identifies the content of an object: its ETag or time, and its size.

    If the server states neither ETag nor time, each process reads the object again.
    """
    tag = next((info[key] for key in _TAGS if info.get(key)), None) or _time_of_process()
    return hashlib.sha256(f"{tag}|{info['size']}".encode()).hexdigest()[:16]


@cache
def _time_of_process() -> int:
    return time.time_ns()


def _address(path: Path) -> str:
    address = address_of(path)
    assert address is not None
    return address


def _info(system: Any, address: str) -> Mapping[str, Any]:
    return _attempted(system.info, address, address)


def _copy(system: Any, path: Path, info: Mapping[str, Any]) -> None:
    """Copy one object; the object must have one version from the listing until the last byte is read."""
    address, wanted = _address(path), path.parent.name
    if f"@{_version(info)}" != wanted:
        raise ChangedObjectError(address)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        if info["size"] is None or info.get("partial") is False:
            _attempted(lambda _: _stream(system, info, temporary), None, address)
        else:
            _copy_ranges(system, info, temporary, address)
        if f"@{_version(_info(system, address))}" != wanted:
            raise ChangedObjectError(address)


def _stream(system: Any, info: Mapping[str, Any], target: Path) -> None:
    """Copy an object of a server that does not serve ranges."""
    with system.open(info["name"], "rb", block_size=0) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, _RANGE_BYTES)
        if info["size"] is not None and file.tell() != info["size"]:
            raise ConnectionError("the response was truncated")


def _copy_ranges(system: Any, info: Mapping[str, Any], target: Path, address: str) -> None:
    """Copy an object in ranges; each range is retried separately."""
    size = info["size"]

    def copy(start: int) -> None:
        end = min(start + _RANGE_BYTES, size)

        def read(_: None) -> bytes:
            if system.async_impl:
                from fsspec.asyn import sync

                seconds = Settings().object_timeout_seconds
                found = sync(system.loop, system._cat_file, info["name"], start=start, end=end, timeout=seconds)
                data = cast("bytes", found)
            else:
                data = system.cat_file(info["name"], start=start, end=end)
            if len(data) != end - start:
                raise ConnectionError("the response was truncated")
            return data

        os.pwrite(descriptor, _attempted(read, None, address), start)

    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    at_once = _RANGES_AT_ONCE if system.async_impl else 1
    with closing(os.fdopen(descriptor, "wb")), ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(copy, range(0, size, _RANGE_BYTES)):
            pass


def _attempted(work: Callable[[Any], Result], argument: Any, shown_address: str) -> Result:
    """Call a function of a store and return its result; retry with exponentially growing waits.

    Raises:
        DataError: Nothing exists at the address, access is refused, or all attempts fail.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return work(argument)
        except ShunterError:
            raise
        except Exception as error:  # each library has classes of its own for errors of servers and connections
            if _is_refusal(error):
                raise NoAccessError(shown_address) from error
            cause = error.__cause__  # for a web server, the real error
            is_absent = not type(cause).__module__.startswith("aiohttp") or _status(cause) == HTTPStatus.NOT_FOUND
            if isinstance(error, FileNotFoundError) and is_absent:
                raise NoObjectError(shown_address) from error
            if attempt == _ATTEMPTS:
                raise StoreError(shown_address, attempt, error) from error
            time.sleep(_FIRST_WAIT_SECONDS * 2**attempt * random.uniform(0.5, 1.0))
    raise AssertionError


def _is_refusal(error: BaseException | None) -> bool:
    """Return True if a store refused access, or a library found no credentials."""
    while error is not None:
        without = type(error).__name__ in _WITHOUT_CREDENTIALS
        if without or isinstance(error, PermissionError) or _status(error) in _REFUSED:
            return True
        error = error.__cause__
    return False


def _status(error: BaseException | None) -> Any:
    return getattr(error, "status", None) or getattr(error, "code", None)
