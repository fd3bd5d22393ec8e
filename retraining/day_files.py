"""Assignment of files to days, by a path pattern with a date or by dates in names; preparation of nightly runs.

`shunter up --nightly-data` prepares them: it names the model, and gives access to the files.
"""

import glob
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from shunter.errors import DataError, RequestError
from shunter.ingestion.sources.addresses import copy_objects, find_objects, located, parse_address, without_file_scheme
from shunter.ingestion.sources.guard import check_paths, check_text, open_to_deployments
from shunter.retraining.nightly_request import model_name_of

_PLACE = re.compile(r"\{date(?::([^{}]*))?\}")
# A year, a month and a day, all with the same separator or none, and without digits before or after.
_ANY_DATE = re.compile(
    r"(?<!\d)(?P<year>(?:19|20)\d\d)(?P<separator>[-_.]?)(?P<month>\d\d)(?P=separator)(?P<day>\d\d)(?!\d)"
)
_DIRECTIVES = {"Y": r"\d{4}", "y": r"\d{2}", "m": r"\d{2}", "d": r"\d{2}", "j": r"\d{3}"}
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".crc")


@dataclass(frozen=True)
class FoundDays:
    """Daily log files found under a path, grouped by date.

    Attributes:
        days: Files of each day, sorted by name; days in ascending order.
        undated: Files that match the pattern but have no valid date.
    """

    days: dict[date, tuple[Path, ...]]
    undated: tuple[Path, ...]


def find_days(data: str) -> FoundDays:
    """Sort the files of a click log by day.

    Hidden files, files that begin with `_`, and files that are still being written (`.tmp`, `.part`, ...) are skipped.
    Objects of an object store are found but not downloaded, since a nightly run needs only some days.

    Args:
        data: A pattern with `{date}`, which matches a date such as 2026-05-01, 20260501 or 2026_05_01, or with
            `{date:%Y/%m/%d}`, which gives the format of the date (%Y, %y, %m, %d, %j). The pattern may also have
            wildcards of a glob. A folder or a glob without `{date}` is also accepted; the date is then read from the
            names of files or their folders.

    Raises:
        RequestError: `data` is empty, has an unknown date format, or is a path that may not be read.
        DataError: No file has a date.
    """
    if not data.strip():
        raise RequestError(
            "No log is given for nightly retraining: name the daily files with --data, such as logs/day_{date}.parquet."
        )
    places = list(_PLACE.finditer(data))
    if len(places) > 1:
        raise RequestError(f"The pattern {data} holds {{date}} {len(places)} times: write it exactly once.")
    data = without_file_scheme(data)
    wild = _PLACE.sub(lambda place: _wildcard(place.group(1)), data)
    files = find_objects(wild)
    if files is None:
        check_text(_PLACE.sub("*", data))
        files = _matching(data)
        check_paths(files)
    else:
        files = sorted(path for path in files if not _is_passed_over(path))
        data = data.partition("://")[2]
    pattern = _expression(data, places[0].group(1)) if places else None
    days: dict[date, list[Path]] = {}
    undated = []
    for path in files:
        day = _date_in(path) if pattern is None else _date_by(pattern, places[0].group(1), path)
        if day is None:
            undated.append(path)
        else:
            days.setdefault(day, []).append(path)
    if not days:
        raise DataError(
            f"No file of {data} has a date in its name: check the path, and write {{date}} in place of the "
            "date, as in logs/day_{date}.parquet."
        )
    return FoundDays({day: tuple(sorted(days[day])) for day in sorted(days)}, tuple(undated))


def _matching(data: str) -> list[Path]:
    """Return the files of the folder and of its direct subfolders, or those that match the glob."""
    whole = Path(data).expanduser()
    if whole.is_dir():
        found: Iterable[Path] = (*whole.glob("*"), *whole.glob("*/*"))
    else:
        wild = _PLACE.sub(lambda place: _wildcard(place.group(1)), str(whole))
        found = map(Path, glob.glob(wild))  # noqa: PTH207 - the pattern may be absolute
    return sorted(path for path in found if path.is_file() and not _is_passed_over(path))


def _is_passed_over(path: Path) -> bool:
    return path.name.startswith((".", "_")) or path.suffix in _UNFINISHED


def _wildcard(date_format: str | None) -> str:
    """Return the glob that stands for a date format: `*` for each of its path parts."""
    return "*" if date_format is None else "/".join("*" for _ in date_format.split("/"))


def _expression(data: str, date_format: str | None) -> re.Pattern[str]:
    """Return a regular expression for paths that match the pattern, with a group for the date."""
    head, _, tail = _PLACE.split(str(Path(data).expanduser()))
    middle = _ANY_DATE.pattern if date_format is None else _written_as(date_format)
    return re.compile(f"{_glob_expression(head)}(?P<date>{middle}){_glob_expression(tail)}")


def _written_as(date_format: str) -> str:
    """Return a regular expression for dates in this format."""
    pieces = re.findall(r"%.?|[^%]+", date_format)
    used = {piece[1:] for piece in pieces if piece.startswith("%")}
    is_a_day = used & {"Y", "y"} and (used >= {"m", "d"} or "j" in used)
    if not is_a_day or not used <= _DIRECTIVES.keys() or len(used) < sum(piece.startswith("%") for piece in pieces):
        raise RequestError(
            f"The date format {date_format!r} does not name a day: use %Y or %y, %m and %d (or %j), each "
            "once, as in {date:%Y-%m-%d}."
        )
    return "".join(_DIRECTIVES[piece[1:]] if piece.startswith("%") else re.escape(piece) for piece in pieces)


def _glob_expression(text: str) -> str:
    """Translate the wildcards `*`, `?` and `[...]` of a glob into a regular expression."""
    pieces = re.findall(r"\*|\?|\[[^\]]+\]|[^*?\[]+|\[", text)
    return "".join(
        {"*": "[^/]*", "?": "[^/]"}.get(piece)
        or (piece.replace("[!", "[^") if len(piece) > 1 and piece.startswith("[") else re.escape(piece))
        for piece in pieces
    )


def _date_by(pattern: re.Pattern[str], date_format: str | None, path: Path) -> date | None:
    match = pattern.fullmatch(str(located(path)))
    if match is None:
        return None
    if date_format is None:
        return _as_date(match)
    try:
        return datetime.strptime(match.group("date"), date_format).date()
    except ValueError:
        return None


def _date_in(path: Path) -> date | None:
    """Return the last date in the file's name, otherwise in its folder's name; None if neither has a date."""
    path = located(path)
    for name in (path.name, path.parent.name):
        dates = [day for match in _ANY_DATE.finditer(name) if (day := _as_date(match))]
        if dates:
            return dates[-1]
    return None


def _as_date(match: re.Match[str]) -> date | None:
    try:
        return date(int(match["year"]), int(match["month"]), int(match["day"]))
    except ValueError:
        return None


WILD = re.compile(r"[*?\[{]")


def prepare_nightly_runs(data: str, schema_file: str | None, directory: Path, say: Callable[[str], None]) -> str:
    """Check the newest day, allow nightly runs to read the days, and return the name of the model to retrain.

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
