"""Signatures of registered models: whoever may write where they lie may not exchange one for another.

A model's folder holds `signed.json`: a digest over all of its files, and that digest's HMAC by the key of the home,
which never leaves it. The weights count by their checksum in `model/model.json`, against which they are read. What was
checked is what is loaded: the files are copied while they are read for the digest, and only the copy is loaded, whose
weights are a link that leads to where they are compared with their checksum.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shunter.checked_json import json_object, read_checked, read_or_quarantine, seal, unseal, write_checked
from shunter.errors import DamagedFileError, TrackingError, first_line
from shunter.files import make_private, open_regular
from shunter.settings import Settings
from shunter.tracking.registry.trusted import DATA, DESCRIPTION, WEIGHTS, update_loader

SIGNATURE = "signed.json"
MODEL_COPY = "shunter-model-"  # how temporary folders of copies begin
KEY_BYTES = 32
LARGEST_SIGNATURE_BYTES = 1 << 12
CHUNK_BYTES = 1 << 20


def sign_folder(data: Path) -> None:
    """Sign a model with the key of the home, which is made where there is none.

    Args:
        data: Data folder of the model, see `shunter.tracking.registry.serving`.

    Raises:
        OSError: A file cannot be read or written.
    """
    key, digest = _key(make=True), digest_of(data)
    values = {"key": _name_of(key), "digest": digest, "hmac": _code(key, digest)}
    (data / SIGNATURE).write_text(seal(json.dumps(values, indent=1)))


def checked_copy(data: Path, folder: Path, name: str, *, signed_since: float | None = None) -> Path:
    """Copy a model after a look at its signature; what comes of the copy is what was looked at.

    A model without a signature was registered by a former version of Shunter: it is loaded, and said to be unsigned.

    Args:
        data: Data folder of the model.
        folder: Folder for the copy, which must not exist; the weights are not copied but linked.
        name: What the message calls the model.
        signed_since: When the model was registered, in seconds since 1970; one that came after the key of the home
            must be signed. None where it is not known.

    Returns:
        `folder`.

    Raises:
        TrackingError: The model is not the one that was signed, is signed with another key, or cannot be read.
    """
    try:
        sums = {path: _copy(source, folder / path) for path, source in _files(data).items()}
        folder.joinpath(WEIGHTS).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(WEIGHTS).symlink_to((data / WEIGHTS).resolve())
        signature, key = _copy_signature(data, folder), _key(make=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its signature is damaged"
        raise TrackingError(
            f"The registered model {name!r} cannot be read ({reason}): register it again, or use another version."
        ) from error
    digest = _digest(sums)
    if digest not in _accepted():
        _check(name, digest, signature, key, is_former=signed_since is None or not key or signed_since < _key_time())
    return folder


def digest_of(data: Path) -> str:
    """A hash of all that a model consists of; its weights count by the checksum that its description names.

    Args:
        data: Data folder of the model.

    Raises:
        OSError: A file cannot be read.
    """
    return _digest({name: _sum(path) for name, path in _files(data).items()})


def copy_beside(folder: Path, copy: Path) -> None:
    """Copy the files of a model's folder beside its data, with the module that loads the model now.

    Raises:
        OSError: A file cannot be read or written.
    """
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_dir() and not name.is_relative_to(DATA):
            _copy(path, copy / name)
    if (copy / DESCRIPTION).is_file():
        update_loader(copy / DESCRIPTION)


def _check(name: str, digest: str, signature: dict[str, str] | None, key: bytes, *, is_former: bool) -> None:
    accept = f"set SHUNTER_ACCEPTED_MODELS={digest} if you trust it"
    if signature is None:
        if not is_former:
            raise TrackingError(
                f"The registered model {name!r} is not loaded, because it is not signed, as all are that were "
                f"registered here by now: put another version back with `shunter rollback`, or {accept}."
            )
        _say_unsigned(name, digest)
        return
    if not key or signature.get("key") != _name_of(key):
        raise TrackingError(
            f"The registered model {name!r} is not loaded, because it is signed with the key of another home: name "
            f"that key with SHUNTER_MODEL_KEY, or {accept}."
        )
    if not hmac.compare_digest(str(signature.get("hmac")), _code(key, digest)):
        raise TrackingError(
            f"The registered model {name!r} is not loaded, because it is not what was signed when it was registered: "
            f"put another version back with `shunter rollback`, or {accept}."
        )


@cache
def _say_unsigned(name: str, digest: str) -> None:  # once for each model: the digest is there for the cache
    logging.getLogger(__name__).warning(
        "The registered model %r is not signed, for a former version of Shunter registered it: whoever may write where "
        "it lies may have changed it; models that are registered from now on are signed.",
        name,
    )


def _accepted() -> set[str]:
    return {text.strip() for text in (Settings().accepted_models or "").split(",")}


def _files(data: Path) -> dict[str, Path]:
    """All that counts for the digest, by its path within the folder."""
    found = {path.relative_to(data).as_posix(): path for path in sorted(data.rglob("*")) if not path.is_dir()}
    return {name: path for name, path in found.items() if name not in (SIGNATURE, WEIGHTS)}


def _digest(sums: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def _sum(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> str:
    """Copy a file; the sha256 of the copied bytes."""
    found = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(source) as file, target.open("xb") as copy:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
            copy.write(chunk)
    return found.hexdigest()


def _copy_signature(data: Path, folder: Path) -> dict[str, str] | None:
    """Read the signature, None where there is none; the copy has it too, for the next to look at it."""
    try:
        with open_regular(data / SIGNATURE) as file:
            text = file.read(LARGEST_SIGNATURE_BYTES)
    except FileNotFoundError:
        return None
    values = json_object(unseal(text))
    (folder / SIGNATURE).write_bytes(text)
    return values


def _key(*, make: bool) -> bytes:
    """The key of the home; empty where there is none and none is to be made."""
    path = Settings().model_key_path
    if make and not path.exists():
        make_private(path.parent)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename it leaves the key of a process that was faster
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        record_of(path).unlink(missing_ok=True)  # of a key that was removed
    try:
        with open_regular(path) as file:
            key = file.read(KEY_BYTES + 1)
    except FileNotFoundError:
        return b""
    if len(key) != KEY_BYTES:
        raise TrackingError(
            f"The file {path} is no key of models (it has not {KEY_BYTES} bytes): restore it from a backup, or remove "
            f"it and {record_of(path)} and register the models again."
        )
    if make:
        _compare_with_record(path, key, make=True)
    return key


def check_model_key() -> None:
    """Raise if the key that is to sign a model is damaged; one that is not there yet is made when it is needed.

    Raises:
        TrackingError: The key is damaged or cannot be read.
    """
    try:
        if key := _key(make=False):
            _compare_with_record(Settings().model_key_path, key, make=False)
    except OSError as error:
        raise TrackingError(
            f"The key of models {Settings().model_key_path} cannot be read ({error.strerror}): make it readable."
        ) from error


def faults_of_models(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Compare the registered models below a folder with their signatures; those of other keys by their digest alone.

    Yields:
        The data folder of each model, with what is wrong with it.
    """
    for signature in sorted(folder.rglob(SIGNATURE)):
        data = signature.parent
        try:
            signed = json_object(unseal(signature.read_bytes()))
            weights = json.loads((data / WEIGHTS).with_name("model.json").read_text())["sha256"]
            digest, key = digest_of(data), _key(make=False)
            if signed["digest"] != digest:
                fault = "a file is not what was signed"
            elif _sum(data / WEIGHTS) != weights:
                fault = "its weights do not match their checksum"
            elif signed["key"] == _name_of(key) and signed["hmac"] != _code(key, digest):
                fault = "its signature is damaged"
            else:
                fault = None
        except (OSError, ValueError, KeyError, TypeError) as error:
            fault = f"it cannot be read ({first_line(error)})"
        except TrackingError:  # of the key, which is a part of its own
            fault = None
        yield data, fault


def _compare_with_record(path: Path, key: bytes, *, make: bool) -> None:
    """Compare a key with the name that was recorded when it was made.

    A key whose record is damaged, or that is of a former version, gets a new record when it signs the next time.
    """
    recorded = _recorded_name(record_of(path), mends=make)
    if recorded is None:
        if make:
            with contextlib.suppress(OSError):  # of a key that homes share, in a folder that is not this home's
                write_checked(record_of(path), json.dumps({"key": _name_of(key)}))
    elif recorded != _name_of(key):
        raise TrackingError(
            f"The file {path} is damaged, or another key was put in its place: restore it from a backup; if you put "
            f"it there, remove {record_of(path)}."
        )


def _recorded_name(record: Path, *, mends: bool) -> str | None:
    def parse(text: bytes) -> str:
        return str(json_object(text)["key"])

    if mends:
        return read_or_quarantine(record, parse)
    try:
        return read_checked(record, parse)
    except (OSError, DamagedFileError):
        return None


def record_of(path: Path) -> Path:
    """Return the file that holds the name of a key, by which a damaged key is recognised."""
    return path.with_name(f"{path.name}.check")


def _key_time() -> float:
    return Settings().model_key_path.stat().st_mtime


def _name_of(key: bytes) -> str:
    """A name for a key that tells nothing of it."""
    return hashlib.sha256(b"shunter key\n" + key).hexdigest()[:16]


def _code(key: bytes, digest: str) -> str:
    return hmac.new(key, b"shunter model\n" + digest.encode(), hashlib.sha256).hexdigest()
