"""A model by what a user calls it: a name in the registry, with an alias or a version, or a folder."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.engine.checkpoint.keeping import FULL_PRECISION, Bits
from shunter.errors import RequestError, TrackingError
from shunter.tracking.registry.increments import Increment, LoadedModel, apply_increment, write_increment
from shunter.tracking.registry.signing import MODEL_COPY, checked_copy, copy_beside, digest_of
from shunter.tracking.registry.trusted import DATA, DESCRIPTION, check_model_folder
from shunter.tracking.registry.versions import CHAMPION, fetch, version_by_alias, version_by_number
from shunter.tracking.store import tracking_errors

if TYPE_CHECKING:
    from shunter.tracking.registry.ranking_serving import RankingScorer
    from shunter.tracking.registry.serving import Scorer

NAMED = re.compile(r"(?P<name>[^/:@]+)(?:@(?P<alias>[^/:@]+)|/(?P<version>\d+))?")
READ_ME = "README.txt"


@dataclass(frozen=True)
class ExportedModel:
    """An exported model.

    Attributes:
        title: What messages call it.
        fingerprint: Digest of its files, by which another home can accept it.
    """

    title: str
    fingerprint: str


@dataclass(frozen=True)
class ExportedIncrement:
    """What was written.

    Attributes:
        earlier: The earlier model, as `open_model` takes it.
        described: What the increment says of itself.
        size: Bytes of it.
        whole: Bytes of the whole new model.
    """

    earlier: str
    described: Increment
    size: int
    whole: int


@dataclass(frozen=True)
class NamedModel:
    """A model that was looked at: nothing in it runs code, and it is what was signed.

    Attributes:
        title: What messages call it.
        folder: Folder in MLflow's format; it is gone when the model is closed.
    """

    title: str
    folder: Path

    @property
    def weights(self) -> Path:
        """Folder for `shunter.engine.checkpoint.storage.load_model`."""
        return self.folder / DATA / "model"

    def scorer(self, memory_bytes: int | None = None) -> "Scorer | RankingScorer":
        """What scores raw rows; takes and raises what `shunter.tracking.registry.serving.load_scorer` does."""
        from shunter.tracking.registry.serving import load_scorer

        return load_scorer(self.folder / DATA / "model", self.folder / DATA / "encoder", memory_bytes)

    def fitting_scorer(self) -> "Scorer | RankingScorer":
        """As `scorer`; tables that are too large for the memory that is free stay in their file."""
        from shunter.tracking.registry.serving import free_memory_for

        return self.scorer(free_memory_for(self.weights))

    def loaded(self) -> LoadedModel:
        """The model in memory; raises as `scorer` does."""
        return LoadedModel(self.title, self.folder, self.scorer())


@contextmanager
def open_model(named: str, increments: Sequence[Path] = ()) -> Iterator[NamedModel]:
    """Find a model and look at it, for the length of the block.

    Args:
        named: `NAME` for the champion, `NAME@ALIAS`, `NAME/VERSION`, or a folder in MLflow's format.
        increments: Folders of `shunter export --since` that are laid upon it, one after the other.

    Raises:
        RequestError: There is no such model, or an increment is one since another.
        CheckpointError: An increment is damaged.
        TrackingError: It could run code of its own, is not what was signed, or the store fails.
    """
    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as temporary:
        title, source = _local(named) or _registered(named, Path(temporary, "fetched"))
        check_model_folder(source, title)
        copy = Path(temporary, "model")  # nobody can change it between the look and the reading
        checked_copy(source / DATA, copy / DATA, title)
        with tracking_errors():
            copy_beside(source, copy)
        check_model_folder(copy, title)
        model = NamedModel(title, copy)
        for number, increment in enumerate(increments):
            new = apply_increment(model.loaded(), increment, Path(temporary, f"model-{number}"))
            model = NamedModel(new.title, new.folder)
        yield model


def digest_of_model(named: str) -> str:
    """The digest by which increments say what they are laid upon; takes and raises what `open_model` does."""
    with open_model(named) as model:
        return digest_of(model.folder / DATA)


def export_model(named: str, folder: Path, increments: Sequence[Path] = ()) -> ExportedModel:
    """Copy a model into a folder of its own, which MLflow and `open_model` load, after a look that it loads.

    Args:
        named: As `open_model` takes it.
        folder: Folder that is made.
        increments: As `open_model` takes them.

    Returns:
        What the model is called, and its fingerprint.

    Raises:
        RequestError: There is no such model, or the folder is there already or cannot be written.
        TrackingError: As `open_model` says.
    """
    with _made_whole(folder) as partial, open_model(named, increments) as model:
        shutil.copytree(model.folder, partial)  # which follows the link to the weights
        (partial / READ_ME).write_text(_read_me(model.title))
        NamedModel(model.title, partial).scorer()  # the weights that were copied are those of the checksum
        return ExportedModel(model.title, digest_of(partial / DATA))


def export_increment(
    named: str, folder: Path, since: str, increments: Sequence[Path] = (), bits: Bits = FULL_PRECISION
) -> ExportedIncrement:
    """Write what makes a model of an earlier one into a folder of its own.

    Args:
        named: The new model, as `open_model` takes it.
        folder: Folder that is made.
        since: The earlier model, as `open_model` takes it, or the number of another version of the same one.
        increments: Increments that lie upon the earlier one already.
        bits: Bits of a number of the rows; see `shunter.tracking.registry.increments.write_increment`.

    Raises:
        RequestError: There is no such model, one of them ranks items, or the folder cannot be made.
        CheckpointError: A model or an increment is damaged.
        TrackingError: As `open_model` says.
    """
    found = NAMED.fullmatch(named)
    earlier = f"{found['name']}/{since}" if since.isdigit() and found is not None and not _local(since) else since
    with (
        _made_whole(folder) as partial,
        open_model(named) as now,
        open_model(earlier, increments) as before,
    ):
        partial.mkdir()
        described = write_increment(now.loaded(), before.loaded(), partial, bits)
        return ExportedIncrement(earlier, described, bytes_below(partial), bytes_below(now.folder))


@contextmanager
def _made_whole(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is wanted, which takes its place after the block.

    Raises:
        RequestError: The wanted one is there already, or nothing can be written there.
    """
    if folder.exists():
        raise RequestError(f"{folder} is there already: name a new folder, or remove it first.")
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise RequestError(f"{folder} cannot be written ({error.strerror}): name another folder.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def bytes_below(folder: Path) -> int:
    """Bytes of all files in a folder, and of those that links in it lead to."""
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
    """A folder with a model in it; None where there is none, for a name may be that of some folder too."""
    folder = Path(named).expanduser()
    return (str(folder), folder) if (folder / DESCRIPTION).is_file() else None


def _registered(named: str, fetched: Path) -> tuple[str, Path]:
    """The folder of a version, fetched unless it is on this machine."""
    found = NAMED.fullmatch(named)
    if found is None:
        raise RequestError(
            f"{named!r} names no model: give a registered name such as shunter, shunter@champion or shunter/3, or the "
            "folder of an exported model."
        )
    name, number = found["name"], found["version"]
    version = version_by_number(name, int(number)) if number else version_by_alias(name, found["alias"] or CHAMPION)
    folder = fetch(version, fetched)
    if not (folder / DESCRIPTION).is_file():
        raise TrackingError(f"Version {version.version} of {name!r} holds no model: use another version.")
    return f"{name}/{version.version}", folder
