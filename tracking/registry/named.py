"""Lookup and export of a model by name in the registry (with an alias or a version) or by folder."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION, Bits
from shunter.errors import RequestError, TrackingError
from shunter.python_processes import loading
from shunter.registry import Entry, Registry
from shunter.tracking.listing import find_version
from shunter.tracking.registry.signing import (
    DATA,
    DESCRIPTION,
    MODEL_COPY,
    check_model_folder,
    checked_copy,
    copy_beside,
    digest_of,
)
from shunter.tracking.registry.versions import CHAMPION, fetch, version_by_alias, version_by_number
from shunter.tracking.store import tracking_errors

if TYPE_CHECKING:
    from shunter.tracking.registry.serving import RankingScorer, Scorer

NAMED = re.compile(r"(?P<name>[^/:@]+)(?:@(?P<alias>[^/:@]+)|/(?P<version>\d+))?")
READ_ME = "README.txt"

# Formats of exports. The target of an entry has the arguments and the result of `export_model`.
OWN_FORMAT = "shunter"
EXPORT_FORMATS = Registry(
    "format of exports",
    {
        OWN_FORMAT: Entry(target="shunter.tracking.registry.named:export_model"),
        "torch": Entry(target="shunter.extensions.exports.programs:export_torch"),
        "aoti": Entry(target="shunter.extensions.exports.programs:export_compiled"),
        "onnx": Entry(target="shunter.extensions.exports.programs:export_onnx"),
        "vectors": Entry(target="shunter.extensions.exports.vectors:export_vectors"),
    },
    group="shunter.export_formats",
)

# Operations on increments of models: write an increment, apply it, and find a chain of increments in a folder.
INCREMENTS = Registry(
    "operation on increments of models",
    {
        name: Entry(target=f"shunter.extensions.incremental_checkpoints.increments:{function}")
        for name, function in (("write", "write_increment"), ("apply", "apply_increment"), ("chain", "increment_chain"))
    },
    group="shunter.model_increments",
)


@dataclass(frozen=True)
class ExportedModel:
    """Exported model.

    Attributes:
        title: Name of the model in messages.
        fingerprint: Digest of the files, by which another home can accept the model.
        size: Size of the export in bytes.
    """

    title: str
    fingerprint: str
    size: int


@dataclass(frozen=True)
class ExportedIncrement:
    """Exported increment.

    Attributes:
        earlier: Name of the base model for `open_model`.
        described: Description of the increment, as its extension writes it.
        size: Size of the increment in bytes.
        whole: Size of the whole new model in bytes.
    """

    earlier: str
    described: Any
    size: int
    whole: int


@dataclass(frozen=True)
class LoadedModel:
    """Model in memory with its folder.

    Attributes:
        title: Name of the model in messages.
        folder: Folder in MLflow's format.
        scorer: Scorer of raw rows.
    """

    title: str
    folder: Path
    scorer: "Scorer | RankingScorer"


@dataclass(frozen=True)
class NamedModel:
    """Verified model, whose folder matches its signature and cannot run foreign code.

    Attributes:
        title: Name of the model in messages.
        folder: Temporary folder in MLflow's format, deleted when the model is closed.
    """

    title: str
    folder: Path

    @property
    def weights(self) -> Path:
        """Folder of the model's weights, for `shunter.engine.checkpoint.storage.load_model`."""
        return self.folder / DATA / "model"

    def scorer(self, memory_bytes: int | None = None) -> "Scorer | RankingScorer":
        """Load the scorer of raw rows; for arguments and errors see `shunter.tracking.registry.serving.load_scorer`."""
        with loading("torch"):
            from shunter.tracking.registry.serving import load_scorer

        return load_scorer(self.folder / DATA / "model", self.folder / DATA / "encoder", memory_bytes)

    def fitting_scorer(self) -> "Scorer | RankingScorer":
        """Load the model's scorer; tables too large for the free memory stay in their file."""
        with loading("torch"):
            from shunter.tracking.registry.serving import free_memory_for

        return self.scorer(free_memory_for(self.weights))

    def loaded(self) -> LoadedModel:
        """Load the model into memory; for errors see `scorer`."""
        return LoadedModel(self.title, self.folder, self.scorer())


@contextmanager
def open_model(named: str, increments: Sequence[Path] = ()) -> Iterator[NamedModel]:
    """Find and verify a model; the verified copy exists during the block.

    Args:
        named: `NAME` for the champion, `NAME@ALIAS`, `NAME/VERSION`, or a folder in MLflow's format.
        increments: Folders of `shunter export --since` to apply to the model, in order.

    Raises:
        RequestError: The model does not exist, or an increment has another base model.
        CheckpointError: An increment is damaged.
        TrackingError: The model could run foreign code or does not match its signature, or the store fails.
        MissingExtensionError: No installed extension applies increments.
    """
    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as temporary:
        title, source = _local(named) or _registered(named, Path(temporary, "fetched"))
        check_model_folder(source, title)
        copy = Path(temporary, "model")  # a private copy cannot change between the check and the loading
        checked_copy(source / DATA, copy / DATA, title)
        with tracking_errors():
            copy_beside(source, copy)
        check_model_folder(copy, title)
        model = NamedModel(title, copy)
        for number, increment in enumerate(increments):
            new: LoadedModel = INCREMENTS.load("apply")(model.loaded(), increment, Path(temporary, f"model-{number}"))
            model = NamedModel(new.title, new.folder)
        yield model


def digest_of_model(named: str) -> str:
    """Return the digest that identifies a model as a base of increments; for argument and errors see `open_model`."""
    with open_model(named) as model:
        return digest_of(model.folder / DATA)


def export_model(named: str, folder: Path, increments: Sequence[Path] = ()) -> ExportedModel:
    """Copy a model to a new folder that MLflow and `open_model` can load, and check that the copy loads.

    Args:
        named: Name or folder of the model, see `open_model`.
        folder: Folder to create.
        increments: Increments to apply, see `open_model`.

    Returns:
        Title, fingerprint and size of the model.

    Raises:
        RequestError: The model does not exist, or the folder exists or cannot be written.
        TrackingError: See `open_model`.
    """
    with atomic_folder(folder) as partial, open_model(named, increments) as model:
        shutil.copytree(model.folder, partial)  # follows the link to the weights
        (partial / READ_ME).write_text(_read_me(model.title))
        NamedModel(model.title, partial).scorer()  # checks that the copied weights match their checksum
        return ExportedModel(model.title, digest_of(partial / DATA), bytes_below(partial))


def export_increment(
    named: str, folder: Path, since: str, increments: Sequence[Path] = (), bits: Bits = FULL_PRECISION
) -> ExportedIncrement:
    """Export the increment from an earlier model to a model into a new folder.

    Args:
        named: Name or folder of the new model, see `open_model`.
        folder: Folder to create.
        since: Name or folder of the earlier model, see `open_model`, or another version number of the same model.
        increments: Increments to apply to the earlier model first.
        bits: Bits per number in the stored rows; `auto` is 32 for tables below 1 GiB, and then 8.

    Raises:
        RequestError: A model does not exist or ranks items, or the folder cannot be created.
        CheckpointError: A model or an increment is damaged.
        TrackingError: See `open_model`.
    """
    found = NAMED.fullmatch(named)
    earlier = f"{found['name']}/{since}" if since.isdigit() and found is not None and not _local(since) else since
    with (
        atomic_folder(folder) as partial,
        open_model(named) as now,
        open_model(earlier, increments) as before,
    ):
        partial.mkdir()
        described = INCREMENTS.load("write")(now.loaded(), before.loaded(), partial, bits)
        return ExportedIncrement(earlier, described, bytes_below(partial), bytes_below(now.folder))


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary path next to `folder`; after the block the temporary folder is renamed to `folder`.

    Raises:
        RequestError: The folder exists already, or cannot be written.
    """
    if folder.exists():
        raise RequestError(f"The folder {folder} exists: name a new folder, or remove it first.")
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise RequestError(f"The folder {folder} cannot be written ({error.strerror}): name another folder.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def bytes_below(folder: Path) -> int:
    """Return the total size in bytes of all files in a folder, including the targets of links."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _read_me(title: str) -> str:
    return (
        f"The model {title}, exported by Shunter: an encoder of raw rows (JSON and arrays), the architecture (JSON) "
        "and the weights (safetensors). Where the same version of Shunter is installed, one line loads it:\n\n"
        "    mlflow.pyfunc.load_model('PATH OF THIS FOLDER').predict(frame)\n\n"
        "or without Python: shunter predict 'PATH OF THIS FOLDER' rows.parquet\n\n"
        "It is signed with the key of the home that registered it. Another home loads it once SHUNTER_MODEL_KEY names "
        "that key, or once --accept or SHUNTER_ACCEPTED_MODELS names the fingerprint that `shunter export` printed.\n"
    )


def _local(named: str) -> tuple[str, Path] | None:
    """Return the title and path of a model folder; None if `named` is no such folder and may be a registered name."""
    folder = Path(named).expanduser()
    return (str(folder), folder) if (folder / DESCRIPTION).is_file() else None


def _registered(named: str, fetched: Path) -> tuple[str, Path]:
    """Return title and folder of a registered version; download the folder unless it is on this machine."""
    found = NAMED.fullmatch(named)
    if found is None:
        raise RequestError(
            f"There is no model {named!r}: give a registered name such as shunter, shunter@champion or "
            "shunter/3, or the folder of an exported model."
        )
    name, number = found["name"], found["version"]
    alias = found["alias"] or CHAMPION
    there = find_version(name, int(number) if number else None, alias)  # without MLflow, whose import takes a second
    if there is None:
        version = version_by_number(name, int(number)) if number else version_by_alias(name, alias)
        there = version.version, fetch(version, fetched)
    if not (there[1] / DESCRIPTION).is_file():
        raise TrackingError(f"Version {there[0]} of {name!r} holds no model: use another version.")
    return f"{name}/{there[0]}", there[1]
