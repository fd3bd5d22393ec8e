"""Tags of compressed versions in the registry, and the training data of a version."""

import re
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError, RequestError
from shunter.tracking.registry.versions import Version, version_by_number
from shunter.tracking.store import open_store, tracking_errors

COMPRESSION_OF = "compression.of"  # tag of a compressed version: the original version
COMPRESSION_BY = "compression.by"  # tag of a compressed version: the compression
_NUMBERED = re.compile(r"(?P<name>[^/:@]+)/(?P<version>\d+)")


def version_of_title(title: str) -> Version:
    """Return the registered version that the title of an opened model names.

    Args:
        title: Title of a `shunter.tracking.registry.named.NamedModel`.

    Raises:
        RequestError: The title is a folder, or the version does not exist.
        TrackingError: The store cannot be read.
    """
    found = _NUMBERED.fullmatch(title)
    if found is None or Path(title).exists():
        raise RequestError(
            f"The training data of the exported model {title} is unknown: compress a registered model such "
            "as shunter@champion, and export the result."
        )
    return version_by_number(found["name"], int(found["version"]))


def data_of_version(version: Version, cache: Path) -> Dataset:
    """Load the training data set of a version from the cache.

    Args:
        version: Version of a registered model.
        cache: Folder of the data sets.

    Raises:
        DataError: The data set is unknown or no longer in the cache.
        TrackingError: The store cannot be read.
    """
    title = f"{version.name}/{version.version}"
    with tracking_errors():
        params = open_store().mlflow.get_run(version.run_id).data.params
    fingerprint = params.get("data.fingerprint", "")
    if not fingerprint:
        raise DataError(f"The run of {title} does not record its training data: compress another version.")
    try:
        return Dataset.load(cache / fingerprint[:16])
    except (FileNotFoundError, NotADirectoryError):
        name = params.get("data.name", "it")
        raise DataError(
            f"The training data of {title} ({name}, {fingerprint[:16]}) is no longer in the cache: train "
            "on it again, and compress the new version."
        ) from None
