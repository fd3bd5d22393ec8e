"""Compressed versions: what the model was trained on, and how the new version stands beside it."""

import re
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError, RequestError
from shunter.tracking.registry.client import open_registry
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.versions import Version, version_by_number
from shunter.tracking.store import open_store, tracking_errors

CHALLENGER = "challenger"  # alias of a version that waits for a champion's place
COMPRESSION_OF = "compression.of"  # tag of a compressed version: the version that it was made of
COMPRESSION_BY = "compression.by"  # and the compression
_NUMBERED = re.compile(r"(?P<name>[^/:@]+)/(?P<version>\d+)")


def version_of_title(title: str) -> Version:
    """The version of an opened model.

    Args:
        title: As `shunter.tracking.registry.named.NamedModel` has it.

    Raises:
        RequestError: It is a folder, or there is no such version.
        TrackingError: The store cannot be read.
    """
    found = _NUMBERED.fullmatch(title)
    if found is None or Path(title).exists():
        raise RequestError(
            f"{title} is a folder, of which no data is known: compress a registered model such as shunter@champion, "
            "and export that."
        )
    return version_by_number(found["name"], int(found["version"]))


def data_of_version(version: Version, cache: Path) -> Dataset:
    """The data set that a version was trained on, from the cache.

    Args:
        version: The version.
        cache: Folder of the data sets.

    Raises:
        DataError: It is not known or not there any more.
        TrackingError: The store cannot be read.
    """
    title = f"{version.name}/{version.version}"
    with tracking_errors():
        params = open_store().mlflow.get_run(version.run_id).data.params
    fingerprint = params.get("data.fingerprint", "")
    try:
        return Dataset.load(cache / fingerprint[:16]) if fingerprint else _none(title)
    except (FileNotFoundError, NotADirectoryError):
        name = params.get("data.name", "it")
        raise DataError(
            f"The data of {title} ({name}, {fingerprint[:16]}) is not in the cache any more: train on it again, which "
            "puts it there, and compress what comes of that."
        ) from None


def call_challenger(model: RegisteredModel) -> None:
    """Put the alias `challenger` on a version.

    Raises:
        TrackingError: The store fails.
    """
    registry = open_registry()
    with tracking_errors():
        registry.set_alias(model.name, CHALLENGER, model.version)


def _none(title: str) -> Dataset:
    raise DataError(f"The run of {title} does not say what it was trained on: compress another version.")
