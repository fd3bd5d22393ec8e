"""Resolution of the value of `--data` to a source."""

import glob
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from shunter.errors import DataError, RequestError
from shunter.ingestion.batch import Source
from shunter.ingestion.fields import Label
from shunter.ingestion.schema import EXAMPLE, Options, Schema, read_schema, schema_of
from shunter.ingestion.sources.addresses import (
    copy_objects,
    find_objects,
    local_path,
    parse_address,
    without_file_scheme,
)
from shunter.ingestion.sources.criteo import CriteoSource, criteo_schema
from shunter.ingestion.sources.described import Described, described, recognise
from shunter.ingestion.sources.files import holds_nothing
from shunter.ingestion.sources.guard import check_paths, check_text
from shunter.ingestion.sources.names import READERS, is_named
from shunter.ingestion.sources.parquet import partitions_of
from shunter.ingestion.sources.parts import PartsSource, parts_source
from shunter.ingestion.sources.recognise import SUFFIXES, ask_for_csv, is_criteo, stem_of
from shunter.ingestion.sources.tabular import TableSource
from shunter.ingestion.sources.where import may_choose, parsed
from shunter.label_losses import predicts_probability
from shunter.predicate import both
from shunter.requests.source import CRITEO, CSV, FORMATS
from shunter.yaml_file import read_yaml

log = logging.getLogger(__name__)

Copy = Callable[[Sequence[Path]], None]


def open_source(
    data: str,
    data_format: str | None,
    schema_file: str | None,
    downloads: Path,
    held_out: Mapping[str, str] | None = None,
    *,
    where: str | None = None,
    copy: Copy = copy_objects,
) -> Source:
    """Open a source: find the files, their format and their schema.

    Args:
        data: File, folder, glob or comma-separated list of these, or a named data set.
        data_format: File format; None to detect the format by the names and first lines.
        schema_file: YAML or JSON file. CSV and Parquet need a schema; for other sources the file may set vocabulary,
            buckets and split.
        downloads: Folder of downloaded files.
        held_out: Files of the splits `validation` or `test`; `data` is then the training split.
        where: Predicate on the rows, in addition to the `where` of the schema.
        copy: Makes the absent local copies of objects.

    Raises:
        DataError: No file is found, the format is unknown, or the schema is missing or invalid.
        RequestError: A named data set is misspelt, or given together with files of other splits.
    """
    held_out = held_out or {}
    if schema_file:
        schema_file = local_path(schema_file)
    if is_named(data) and not Path(data).exists():
        if held_out:
            raise RequestError(
                f"{data} is a built-in data set with its own split: give --{next(iter(held_out))} "
                "only with your own files."
            )
        name, _, argument = data.partition(":")
        return with_where(READERS.load(name)(argument, schema_file, downloads), where)
    prunes = both(own_keys(schema_file).get("where"), where)
    paths = find_files(data, where=prunes, copy=copy)
    source = source_of(name_of(data, paths), paths, data_format, schema_file, shown_name=data, where=where)
    if not held_out:
        return source
    others = {
        part: source_of(name_of(files, found), found, data_format, schema_file, shown_name=files, where=where)
        for part, files in held_out.items()
        for found in [find_files(files, f"--{part}", where=prunes, copy=copy)]
    }
    return parts_source(source, others)


def source_of(
    name: str,
    paths: tuple[Path, ...],
    data_format: str | None,
    schema_file: str | None,
    *,
    shown_name: str | None = None,
    where: str | None = None,
) -> CriteoSource | TableSource:
    """Find the format and the schema of files.

    Args:
        name: Name of the log as the user gives it.
        paths: Files of the log, in reading order.
        data_format: File format; None to detect the format.
        schema_file: Schema file, see `open_source`.
        shown_name: Text that the user gave for the files, for error messages; None for the first file.
        where: Predicate on the rows, in addition to the `where` of the schema.

    Raises:
        DataError: The format is unknown, or the schema is missing or invalid.
    """
    return with_where(_source_of(name, paths, data_format, schema_file, shown_name), where)


def with_where(source: Source, where: str | None) -> Any:
    """Return the source restricted to the rows that a predicate selects.

    Raises:
        DataError: The source has no named columns.
    """
    if where is None:
        return source
    if not isinstance(source, TableSource):
        raise DataError(
            f"The columns of {source.name} have no names by which --where could select rows: leave --where "
            "out, or read the files as CSV with `columns` in a schema."
        )
    return replace(source, schema=source.schema.model_copy(update={"where": both(source.schema.where, where)}))


def with_loss(source: Source, loss: str | None) -> Source:
    """Return a source whose label is read as a number, if the requested loss is for numbers.

    A threshold of the label, such as that of a built-in data set, is dropped.

    Args:
        source: Source with the label of its schema.
        loss: Requested loss; None leaves the label as the schema describes it.

    Raises:
        RequestError: The loss is for clicks but the label is a number, or the loss is for numbers but the log has
            several labels or holds clicks by its format.
    """
    if loss is None:
        return source
    label, is_for_clicks = source.schema.label, predicts_probability(loss)
    if is_for_clicks and label.loss is not None:
        raise RequestError(
            f"--loss {loss} is for click labels, but the label {label.column} is a number because of its "
            f"loss {label.loss} in the schema: leave one of them out."
        )
    if is_for_clicks:
        return source
    if source.schema.labels or label.positive:
        raise RequestError(f"--loss {loss} needs a single label that is a number: name its column under `label`.")
    if isinstance(source, TableSource):
        return replace(source, schema=numbered(source.schema, loss))
    if isinstance(source, PartsSource) and isinstance(source.training, TableSource):
        files = (source.training, *(one for _, one in source.others))
        training, *others = (replace(one, schema=numbered(one.schema, loss)) for one in files)
        parts = zip((part for part, _ in source.others), others, strict=True)
        return replace(source, training=training, others=tuple(parts))
    raise RequestError(
        f"--loss {loss} needs a label that is a number, but the format of {source.name} has click "
        "labels: give a loss for clicks."
    )


def numbered(schema: Schema, loss: str) -> Schema:
    """Return a schema whose label is a number with a loss."""
    label = Label(column=schema.label.column, name=schema.label.name, loss=loss)
    return schema.model_copy(update={"label": label})


def _source_of(
    name: str, paths: tuple[Path, ...], data_format: str | None, schema_file: str | None, shown_name: str | None
) -> CriteoSource | TableSource:
    check_paths([*paths, *([Path(schema_file)] if schema_file else [])])
    if (published := description_of(paths, data_format, schema_file)) is not None:
        chosen = published.chosen(paths)
        return FORMATS.load(published.reader)(name, published.schema_for(chosen, own_keys(schema_file)), chosen)
    data_format = format_of_files(paths, data_format, has_schema=schema_file is not None)
    if data_format == CRITEO:
        return CriteoSource(name, criteo_schema(read_schema(schema_file, Options) if schema_file else Options()), paths)
    reader = FORMATS.load(data_format)
    if (usual := reader.usual_schema(paths)) is not None:
        return reader(name, schema_of({**usual, **own_keys(schema_file)}, Schema, f"The schema of {name}"), paths)
    if schema_file is None:
        raise DataError(
            f"The log {shown_name or paths[0]} is "
            f"{data_format.upper() if data_format == CSV else data_format.capitalize()} and needs a "
            f"schema: write a YAML file such as '{EXAMPLE}' (one key per line, with your column names) and "
            "give it with --schema."
        )
    return reader(name, read_schema(schema_file, Schema), paths)


def own_keys(schema_file: str | None) -> dict[str, Any]:
    """Return the keys of the user's schema file, which replace those of a format."""
    return read_yaml(Path(schema_file), "schema file", EXAMPLE) if schema_file else {}


def description_of(paths: tuple[Path, ...], data_format: str | None, schema_file: str | None) -> Described | None:
    """Return the description of the given published format, or of the format that recognises the files.

    Raises:
        UnknownNameError: No format has the given name.
    """
    if data_format is not None:
        return described(data_format) if FORMATS.capability(data_format, "is_described") else None
    found = None if schema_file else recognise(paths)
    if found is not None:
        log.warning("Format %s recognised: %s", found.name, found.description)
    return found


def rows_source(paths: tuple[Path, ...], data_format: str) -> TableSource:
    """Return a source to read files with rows to score; the caller, not the schema, chooses the columns to read."""
    if FORMATS.capability(data_format, "is_described"):
        published = described(data_format)
        return FORMATS.load(published.reader)(data_format, published.schema_for(paths), paths)
    reader = FORMATS.load(data_format)
    keys = reader.usual_schema(paths) or {"label": "label", "numeric": ["x"]}
    return reader(data_format, schema_of(keys, Schema, f"The schema of {data_format}"), paths)


def format_of_files(paths: tuple[Path, ...], data_format: str | None, *, has_schema: bool = True) -> str:
    """Return the given or detected file format; for an ambiguous name such as log.txt the first lines decide.

    Raises:
        DataError: The names do not determine the format, or the files are not in Criteo's layout.
        UnknownNameError: No format has the given name.
    """
    guessed = data_format or guess_format(paths)
    FORMATS.entry(guessed)
    if guessed != CRITEO or _is_day(paths[0]) or is_criteo(paths[0]):
        return guessed
    if data_format or not has_schema:
        raise ask_for_csv(paths[0])
    return CSV


def find_files(
    data: str, option: str = "--data", *, where: str | None = None, copy: Copy = copy_objects
) -> tuple[Path, ...]:
    """Return the files in the order of the list, sorted by the numbers in their names within a folder or glob.

    Partitions without a row that `where` chooses are left out.

    Raises:
        DataError: The list is empty, an entry matches no file, a file is given twice, or an object cannot be read.
        RequestError: An entry is outside the folders or the addresses that may be read.
    """
    is_one = data and "\0" not in data and Path(data).exists()
    is_one = is_one or ((address := parse_address(data)) is not None and address.is_table)
    parts = [data] if is_one else [part.strip() for part in data.split(",") if part.strip()]
    if not parts:
        raise DataError(f"The option {option} is empty: give a file, folder or named data set.")
    paths: list[Path] = []
    for part in map(without_file_scheme, parts):
        if (copies := find_objects(part)) is not None:
            copies = _partitions(copies, where, part)
            copy(copies)
            paths += _in_order(copies)
            continue
        check_text(part)
        path = Path(part).expanduser()
        if path.is_dir():
            inside = chain(path.iterdir(), *(partition.rglob("*") for partition in path.glob("*=*")))
            found = [file for file in inside if file.is_file() and is_in_folder(file.relative_to(path))]
        else:
            found = [path] if path.is_file() else [Path(match) for match in glob.glob(str(path))]  # noqa: PTH207
        if not found:
            raise DataError(
                f"{part} is {'a folder without files' if path.is_dir() else 'no file, folder or named data set'}: "
                "check the path, or see the names with `shunter datasets`."
            )
        check_paths(found)
        found = _partitions(found, where, part)
        paths += _in_order(found)
    check_listed_once(paths, option)
    return tuple(paths)


def _partitions(found: list[Path], where: str | None, shown_name: str) -> list[Path]:
    """Return the files that may have selected rows, judging by partition folders such as `day=2026-03-01`."""
    if (predicate := parsed(where)) is None:
        return found
    left = [path for path in found if not (known := partitions_of(path)) or may_choose(predicate, known)]
    if found and not left:
        raise DataError(f"No file of {shown_name} has rows where {where}: change --where, or `where` in the schema.")
    return left


def _in_order(found: list[Path]) -> list[Path]:
    """Return the nonempty files, sorted by the numbers in their names; all files if all are empty."""
    holding = [file for file in found if not holds_nothing(file)]  # Spark writes empty parts

    def natural_order(path: Path) -> list[tuple[int, str]]:  # sorts day_2 before day_10
        return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]

    return sorted(holding or found, key=natural_order)


def check_listed_once(paths: Iterable[Path], option: str = "--data") -> None:
    """Raise `DataError` if a file is given twice, also by different paths, since its rows would count twice."""
    first: dict[Path, Path] = {}
    for path in paths:
        other = first.setdefault(path.resolve(), path)
        if other is not path:
            also = "" if other == path else f", the other time as {other}"
            raise DataError(
                f"The file {path} is given twice in {option}{also}: leave one out, or its rows would count twice."
            )


def is_in_folder(file: Path) -> bool:
    """Return True if a file of a folder is data: no hidden file, completion marker, schema or text note."""
    return (
        bool(file.name)
        and not file.name.startswith((".", "_"))
        and file.suffix.lower() not in {".yaml", ".yml", ".json", ".md"}
        and all("=" in part for part in file.parts[:-1])
    )


def guess_format(paths: tuple[Path, ...]) -> str:
    """Return the format by the names of the files; `day_0` is Criteo Terabyte.

    Raises:
        DataError: A name does not determine the format, or the names have different formats.
    """
    formats = {_format_of(path) for path in paths}
    if len(formats) != 1 or None in formats:
        doubtful = next((path for path in paths if _format_of(path) is None), paths[0])
        problem = "has no recognisable format" if None in formats else "and the other files are of different formats"
        raise DataError(f"{doubtful} {problem}: add --format, one of {', '.join(FORMATS.names)}.")
    return next(data_format for data_format in formats if data_format is not None)


def _format_of(path: Path) -> str | None:
    return CRITEO if _is_day(path) else SUFFIXES.get(stem_of(path).suffix.lower())


def _is_day(path: Path) -> bool:
    """Return True if a file has a name of Criteo Terabyte, such as `day_0`."""
    return re.fullmatch(r"day_\d+", stem_of(path).name.lower()) is not None


def name_of(data: str, paths: tuple[Path, ...]) -> str:
    """Return the name of a log: that of its folder or address, else of its first file, without extension."""
    if (address := parse_address(data)) is not None and not address.is_table:
        names = [part for part in re.split(r"[/:]", address.location) if part and not re.search(r"[*?\[]", part)]
        return names[-1].split(".", maxsplit=1)[0]
    path = Path(data).resolve() if Path(data).is_dir() else paths[0]
    return path.name.split(".", maxsplit=1)[0]
