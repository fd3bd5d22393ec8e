"""Preparation of nightly runs by `shunter up --nightly-data`: name of the model, and access to the files."""

import re
from collections.abc import Callable
from pathlib import Path

from shunter.errors import DataError
from shunter.ingestion.sources.addresses import copy_objects, parse_address
from shunter.ingestion.sources.guard import open_to_deployments
from shunter.retraining.day_files import find_days
from shunter.retraining.nightly_request import model_name_of

WILD = re.compile(r"[*?\[{]")


def prepare_nightly_runs(data: str, schema_file: str | None, directory: Path, say: Callable[[str], None]) -> str:
    """Check the newest day, allow nightly runs to read the days, and return the name of the model to retrain.

    Args:
        data: Pattern of the days' files.
        schema_file: Schema file of the days.
        directory: Base folder of relative paths.
        say: Called with a sentence about the days that were found.

    Raises:
        RequestError: The pattern is invalid.
        DataError: The schema is missing or invalid, or the day cannot be read.
    """
    say(check_days(data, schema_file))
    open_days(data, schema_file, directory)
    return model_name_of(data)


def check_days(data: str, schema_file: str | None) -> str:
    """Read the first rows of the newest day, so that unreadable data is reported now and not at night.

    Returns:
        Description of the days that were found, in one sentence.

    Raises:
        RequestError: The pattern is invalid.
        DataError: The schema is missing or invalid, the day cannot be read, the folder does not exist, or no file
            matches the pattern.
    """
    from shunter.ingestion.sources.days import open_day

    try:
        found = find_days(data)
    except DataError as error:
        if parse_address(data) is not None:
            raise
        folder = fixed_folder(data)
        if not folder.is_dir():
            raise DataError(
                f"The folder {folder} of --nightly-data {data} does not exist: correct the path."
            ) from error
        if any(path.is_file() for path in folder.iterdir()):
            raise
        return f"There is no day for the nightly retraining yet: {error}"
    newest = max(found.days)
    copy_objects(found.days[newest])
    log = open_day(newest, found.days[newest], None, schema_file)
    rows = next((len(batch.labels) for batch in log.batches()), 0)
    return f"{len(found.days)} day(s) are there for the nightly retraining; {newest}, the newest, can be read" + (
        "." if rows else ", and holds no row."
    )


def open_days(data: str, schema_file: str | None, directory: Path) -> None:
    """Allow nightly runs to read the folder of the days and their schema, both named by the user of this machine.

    Addresses of object stores are allowed only by SHUNTER_DATA_ADDRESSES.
    """
    roots = [directory / fixed_folder(data)] if parse_address(data) is None else []
    if schema_file is not None and parse_address(schema_file) is None:
        roots.append(directory / Path(schema_file).expanduser())
    open_to_deployments(roots)


def fixed_folder(data: str) -> Path:
    """Return the folder of the days up to the first wildcard or date of their pattern."""
    fixed = Path()
    for part in Path(data).expanduser().parts:
        if WILD.search(part):
            return fixed
        fixed /= part
    return fixed.parent if fixed.suffix else fixed  # a path with a suffix is a single file
