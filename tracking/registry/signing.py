"""Checks of registered models, which protect against replaced models and code of users with write access.

A model's folder contains `signed.json`: a digest over all files of the model, and the HMAC of the digest with the key
of the home. The key never leaves the home. The digest includes the checksum of the weights in `model/model.json`, which
is verified when the weights are read. To load exactly the checked files, the files are copied while the digest is
computed, and only the copy is loaded. The copy has a link to the weights, whose checksum is verified.

MLflow's loader imports the module that the model names, adds folders of the model to the import path, and unpickles
objects. The model must therefore contain only what `shunter.tracking.registry.models` writes: the name of Shunter's
loader, JSON, arrays and safetensors.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from shunter.checked_json import json_object, parse_json, seal, unseal
from shunter.errors import Distrust, RequestError, TrackingError, UntrustedModelError, first_line
from shunter.files import make_private, open_regular
from shunter.settings import Settings
from shunter.tracking.registry.model_keys import known_keys, name_of_key, signing_key
from shunter.yaml_file import load_yaml, yaml_text

LOADER_MODULE = "shunter.tracking.registry.serving"
# Former names of the loader module, from before the package `shunter` contained all folders, oldest last.
FORMER_LOADER_MODULES = (LOADER_MODULE.removeprefix("shunter."), ".".join(("tasks", "track", "serving")))
DATA = "data/recommender"
WEIGHTS = "model/model.safetensors"  # path within the data folder
FLAVOR = "python_function"
KEYS = {"loader_module", "data", "env", "python_version", "streamable"}
SUFFIXES = {".json", ".npz", ".safetensors", ".txt", ".yaml"}
DESCRIPTION = "MLmodel"
NAMES = {DESCRIPTION, "registered_model_meta"}  # MLflow writes the latter file after a download
LARGEST_DESCRIPTION_BYTES = 1 << 20
SIGNATURE = "signed.json"
MODEL_COPY = "shunter-model-"  # prefix of temporary folders with copies
LARGEST_SIGNATURE_BYTES = 1 << 12
CHUNK_BYTES = 1 << 20
FINGERPRINT = re.compile("[0-9a-f]{64}")


def sign_folder(data: Path) -> None:
    """Sign a model with the key of the home; create the key if missing.

    Args:
        data: Data folder of the model, see `shunter.tracking.registry.serving`.

    Raises:
        OSError: A file cannot be read or written.
    """
    key, digest = signing_key(), digest_of(data)
    values = {"key": name_of_key(key), "digest": digest, "hmac": _code(key, digest)}
    (data / SIGNATURE).write_text(seal(json.dumps(values, indent=1)))


def checked_copy(data: Path, folder: Path, name: str) -> Path:
    """Copy a model and check its signature against the copied bytes; return the folder of the copy.

    Args:
        data: Data folder of the model.
        folder: Folder for the copy, which must not exist; the weights are linked instead of copied.
        name: Name of the model for error messages.

    Raises:
        UntrustedModelError: No known key has signed the files, and their fingerprint is not accepted.
        TrackingError: The model cannot be read.
    """
    try:
        sums = {path: _copy(source, folder / path) for path, source in _files(data).items()}
        folder.joinpath(WEIGHTS).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(WEIGHTS).symlink_to((data / WEIGHTS).resolve())
        signature, keys = None, known_keys()
        with suppress(FileNotFoundError), open_regular(data / SIGNATURE) as file:
            text = file.read(LARGEST_SIGNATURE_BYTES)
            signature = json_object(unseal(text))
            (folder / SIGNATURE).write_bytes(text)  # for later checks
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its signature is damaged"
        raise TrackingError(
            f"The registered model {name!r} cannot be read ({reason}): register it again, or use another version."
        ) from error
    digest = _digest(sums)
    distrust = _distrust(signature, digest, keys)
    if distrust is not None and not _is_accepted(digest):
        raise UntrustedModelError(name, distrust, digest)
    return folder


def accept_model(fingerprint: str) -> None:
    """Permit this home to load the model with a fingerprint, regardless of its signature.

    Raises:
        RequestError: The text is not a fingerprint.
        OSError: The home cannot be written.
    """
    if not FINGERPRINT.fullmatch(fingerprint):
        raise RequestError(
            f"--accept {fingerprint[:80]} is not the fingerprint of a model: give the 64 digits that "
            "`shunter export` prints."
        )
    folder = Settings().accepted_models_directory
    make_private(folder.parent)
    make_private(folder)
    (folder / fingerprint).touch(mode=0o600)


def digest_of(data: Path) -> str:
    """Return the digest of all files of a model; for the weights, of their checksum in `model/model.json`.

    Raises:
        OSError: A file cannot be read.
    """
    return _digest({name: _sum(path) for name, path in _files(data).items()})


def copy_beside(folder: Path, copy: Path) -> None:
    """Copy the files of a model's folder except its data folder, and update the loader module in the copy.

    Raises:
        OSError: A file cannot be read or written.
    """
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_dir() and not name.is_relative_to(DATA):
            _copy(path, copy / name)
    if (copy / DESCRIPTION).is_file():
        update_loader(copy / DESCRIPTION)


def _distrust(signature: dict[str, str] | None, digest: str, keys: dict[str, bytes]) -> Distrust | None:
    if signature is None:
        return Distrust.UNSIGNED
    key = keys.get(str(signature.get("key")))
    if key is None:
        return Distrust.UNKNOWN_KEY
    return None if hmac.compare_digest(str(signature.get("hmac")), _code(key, digest)) else Distrust.CHANGED


def _fault_of(data: Path) -> str | None:
    """Return the fault of a model; None if there is none, or if only the key that signed the model is unknown."""
    weights = parse_json((data / WEIGHTS).with_name("model.json").read_text())["sha256"]
    if _sum(data / WEIGHTS) != weights:
        return "its weights do not match their checksum"
    digest = digest_of(data)
    if _is_accepted(digest):
        return None
    if not (data / SIGNATURE).exists():
        return f"{Distrust.UNSIGNED} (fingerprint {digest})"
    signed = json_object(unseal((data / SIGNATURE).read_bytes()))
    if signed["digest"] != digest:
        return "a file is not what was signed"
    return "its signature is damaged" if _distrust(signed, digest, known_keys()) is Distrust.CHANGED else None


def _is_accepted(digest: str) -> bool:
    settings = Settings()
    named = {text.strip() for text in (settings.accepted_models or "").split(",")}
    return digest in named or (settings.accepted_models_directory / digest).exists()


def _files(data: Path) -> dict[str, Path]:
    """Return the files that the digest includes, by path within the folder."""
    found = {path.relative_to(data).as_posix(): path for path in sorted(data.rglob("*")) if not path.is_dir()}
    return {name: path for name, path in found.items() if name not in (SIGNATURE, WEIGHTS)}


def _digest(sums: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def _sum(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> str:
    """Copy a file; return the SHA-256 of the copied bytes."""
    found = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(source) as file, target.open("xb") as copy:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
            copy.write(chunk)
    return found.hexdigest()


def faults_of_models(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Compare the registered models below a folder with their signatures.

    Yields:
        The data folder of each model and its fault, None for an intact model.
    """
    for data in sorted(folder.rglob(DATA)):
        try:
            fault = _fault_of(data)
        except (OSError, ValueError, KeyError, TypeError) as error:
            fault = f"it cannot be read ({first_line(error)})"
        except TrackingError:  # a fault of the key, which is reported separately
            fault = None
        yield data, fault


def _code(key: bytes, digest: str) -> str:
    return hmac.new(key, b"shunter model\n" + digest.encode(), hashlib.sha256).hexdigest()


def check_model_folder(folder: Path, name: str) -> None:
    """Raise if loading a registered model could run foreign code.

    Raises:
        TrackingError: The model names another loader, contains code, or has a file of a type that could contain code.
    """
    problem = _problem(folder)
    if problem is not None:
        raise TrackingError(
            f"The registered model {name!r} is not loaded, because {problem} and could run code: roll back "
            "to a version that Shunter made with `shunter rollback`, or train and register one."
        )


def update_loader(description: Path) -> None:
    """Replace a former loader module in the description of a model by the current one.

    Args:
        description: The model's file `MLmodel`; rewritten if it names a former loader.
    """
    text = description.read_text()
    for former in FORMER_LOADER_MODULES:
        text = text.replace(f"loader_module: {former}\n", f"loader_module: {LOADER_MODULE}\n")
    if text != description.read_text():
        description.write_text(text)


def _problem(folder: Path) -> str | None:
    """Return the reason why the model is not trusted, as part of a sentence; None for a trusted model."""
    path = folder / DESCRIPTION
    try:
        if path.stat().st_size > LARGEST_DESCRIPTION_BYTES:
            return f"its file {DESCRIPTION} is larger than any that Shunter writes"
        description = load_yaml(yaml_text(path))
    except (OSError, ValueError):
        return f"its file {DESCRIPTION} cannot be read"
    flavors = description.get("flavors") if isinstance(description, dict) else None
    if not isinstance(flavors, dict) or set(flavors) != {FLAVOR} or not isinstance(flavors[FLAVOR], dict):
        return "it has a format that Shunter does not write"
    return _strange_flavor(flavors[FLAVOR]) or _strange_file(folder)


def _strange_flavor(flavor: dict[str, Any]) -> str | None:
    if flavor.get("loader_module") not in (LOADER_MODULE, *FORMER_LOADER_MODULES):
        return f"it is loaded by {str(flavor.get('loader_module'))[:60]!r}"
    if flavor.get("data") != DATA:
        return "its data are in another folder"
    strange = sorted(str(key) for key, value in flavor.items() if key not in KEYS and value is not None)
    return f"it sets {', '.join(strange)[:60]}" if strange else None


def _strange_file(folder: Path) -> str | None:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_symlink() and name != f"{DATA}/{WEIGHTS}"
        ):  # the checksum of the weights is verified when they are read
            return f"{name[:60]} is a link"
        if path.is_file() and path.suffix not in SUFFIXES and name not in NAMES:
            return f"it holds the file {name[:60]!r}"
    return None
