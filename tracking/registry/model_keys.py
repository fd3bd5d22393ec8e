"""Keys that sign registered models: the current key of the home and its former keys."""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path

from shunter.checked_json import json_object, read_checked, read_or_quarantine, write_checked
from shunter.errors import DamagedFileError, TrackingError
from shunter.files import make_private, open_regular
from shunter.settings import Settings

KEY_BYTES = 32
SUFFIX = ".key"


def signing_key() -> bytes:
    """Return the key of the home, created if missing; a copy of the key remains if the key is removed.

    Raises:
        TrackingError: The key is damaged.
        OSError: The key cannot be read or written.
    """
    settings = Settings()
    path = settings.model_key_path
    if not path.exists():
        _write(path, secrets.token_bytes(KEY_BYTES))
        record_of(path).unlink(missing_ok=True)  # the record of a removed key
    key = _read(path)
    _compare_with_record(path, key, make=True)
    kept = settings.model_keys_directory / f"{name_of_key(key)}{SUFFIX}"
    if stored_key_fault(kept) is not None:
        kept.unlink(missing_ok=True)
        _write(kept, key)
    return key


def known_keys() -> dict[str, bytes]:
    """Return the current and the former keys of the home by name; damaged former keys are skipped.

    Raises:
        TrackingError: The key of the home is damaged.
        OSError: The key of the home cannot be read.
    """
    keys = [path.read_bytes() for path in stored_keys() if stored_key_fault(path) is None]
    with contextlib.suppress(FileNotFoundError):
        keys.append(_read(Settings().model_key_path))
    return {name_of_key(key): key for key in keys}


def stored_keys() -> list[Path]:
    """Return the files of all keys that this home has signed with."""
    return sorted(Settings().model_keys_directory.glob(f"*{SUFFIX}"))


def stored_key_fault(path: Path) -> str | None:
    """Return the fault of a stored key, whose file name is derived from the key; None for an intact key."""
    try:
        with open_regular(path) as file:
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        return error.strerror
    return None if name_of_key(key) == path.stem else "it is not the key of this name"


def check_model_key() -> None:
    """Raise if the signing key is damaged; a missing key is not a fault, since it is created on demand.

    Raises:
        TrackingError: The key is damaged or cannot be read.
    """
    path = Settings().model_key_path
    try:
        _compare_with_record(path, _read(path), make=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TrackingError(
            f"The key file {path}, which signs models, cannot be read ({error.strerror}): make it readable."
        ) from error


def name_of_key(key: bytes) -> str:
    """Return a name for a key that does not reveal the key."""
    return hashlib.sha256(b"shunter key\n" + key).hexdigest()[:16]


def record_of(path: Path) -> Path:
    """Return the file that records the name of a key, so that a damaged or replaced key is detected."""
    return path.with_name(f"{path.name}.check")


def _write(path: Path, key: bytes) -> None:
    """Write a key that only its owner can read; an existing key of a faster process is not replaced."""
    make_private(path.parent)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise TrackingError(
            f"The key file {path}, which signs models, must have {KEY_BYTES} bytes but does not: restore "
            f"it from a backup{_or_copy(_recorded_name(record_of(path), mends=False))}, or remove it and "
            f"{record_of(path)}."
        )
    return key


def _compare_with_record(path: Path, key: bytes, *, make: bool) -> None:
    """Compare a key with the name recorded at its creation; raise `TrackingError` if the names differ.

    A key without a valid record (damaged, or from a former version) gets a new record if `make` is true, as in signing.
    """
    recorded = _recorded_name(record_of(path), mends=make)
    if recorded is None:
        if make:
            with contextlib.suppress(OSError):  # a key shared by several homes may be in a read-only folder
                write_checked(record_of(path), json.dumps({"key": name_of_key(key)}))
    elif recorded != name_of_key(key):
        raise TrackingError(
            f"The key file {path}, which signs models, is damaged or was replaced: restore it from a "
            f"backup{_or_copy(recorded)}; if you replaced it, remove {record_of(path)}."
        )


def _or_copy(name: str | None) -> str:
    """Return ` or PATH` with the stored copy of a key, for an error message; empty if there is no copy."""
    return "".join(f" or {path}" for path in stored_keys() if path.stem == name)


def _recorded_name(record: Path, *, mends: bool) -> str | None:
    def parse(text: bytes) -> str:
        return str(json_object(text)["key"])

    if mends:
        return read_or_quarantine(record, parse)
    try:
        return read_checked(record, parse)
    except (OSError, DamagedFileError):
        return None
