"""Formats of published data sets, read from data files that define a log's schema and how to recognise the format."""

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from shunter.errors import DataError
from shunter.frozen import Frozen
from shunter.ingestion.schema import Schema, schema_of
from shunter.ingestion.sources.recognise import first_lines, header_of, likely_delimiter, stem_of
from shunter.ingestion.sources.tabular import TableSource
from shunter.requests.source import DESCRIBED, FORMATS
from shunter.yaml_file import parse_yaml

_LISTS = ("numeric", "categorical", "multi_valued", "sequences")
_NAMED = ("time", "user", "item")


class Described(Frozen):
    """Format of a published data set.

    Attributes:
        name: Name of the format, as for `--format`.
        description: Data set and label, one line.
        reader: General format of the files.
        files: Patterns of the names of the files, without the suffix of a compression.
        header: All column names of a file with a header.
        line: Regular expression of the first line of a file without a header.
        keys: Keys of the schema. Joined tables and columns that a log lacks are left out.
    """

    name: str
    description: str
    reader: str = "csv"
    files: tuple[str, ...]
    header: tuple[str, ...] = ()
    line: str | None = None
    keys: dict[str, Any] = Field(alias="schema")

    def chosen(self, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the files of a folder whose names belong to the format; all files if none does."""
        return tuple(path for path in paths if self.has_name(path)) or paths

    def has_name(self, path: Path) -> bool:
        """Return True if the name of a file matches a pattern of the format."""
        return any(fnmatch(stem_of(path).name.lower(), pattern.lower()) for pattern in self.files)

    def recognises(self, paths: tuple[Path, ...]) -> bool:
        """Return True if the files have exactly this format's header, or its file name and first line."""
        path = next(filter(self.has_name, paths), None)
        if path is None and (self.line is not None or self.reader != "csv"):
            return False
        path = path or paths[0]
        try:
            if self.reader != "csv" and self.line is None:
                return set(self.header) <= set(self._reader(self.keys, path).header(path))
            first = (first_lines(path) or [""])[0]
            if self.line is not None:
                return re.match(self.line, first) is not None
            return set(self.header) <= set(header_of(first, likely_delimiter(path) or ","))
        except DataError:
            return False

    def schema_for(self, paths: tuple[Path, ...], own: Mapping[str, Any] | None = None) -> Schema:
        """Return the schema of a log of this format.

        Args:
            paths: Files of the log.
            own: Keys of the user's schema, which replace those of the format; None for none.
        """
        present = [join for join in self.keys.get("joins", ()) if (paths[0].parent / join["file"]).exists()]
        given = {**self.keys, "joins": present}
        found = set(self._reader(given, paths[0]).names(paths[0]))
        lists = {key: [one for one in self.keys[key] if _of(one) in found] for key in _LISTS if key in self.keys}
        absent = {key: None for key in _NAMED if key in self.keys and _of(self.keys[key]) not in found}
        keys = {**given, **lists, **absent}
        return schema_of({**keys, **(own or {})}, Schema, f"The schema of {self.name}")

    def _reader(self, keys: Mapping[str, Any], path: Path) -> TableSource:
        return FORMATS.load(self.reader)(self.name, schema_of({**keys}, Schema, f"The schema of {self.name}"), (path,))


def _of(column: str | Mapping[str, Any]) -> str:
    """Return the name of the column of a schema entry."""
    return column if isinstance(column, str) else column["items" if "by" in column else "column"]


def written_schema(schema: Schema, description: str) -> str:
    """Return the schema of a format as commented YAML."""
    keys = schema.model_dump(mode="json", exclude_defaults=True)
    return f"# {description}\n" + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=120)


@cache
def described(name: str) -> Described:
    """Return the description of a format of `shunter.requests.source.DESCRIBED`."""
    text = files("shunter.ingestion.sources").joinpath("formats", f"{name}.yaml").read_text(encoding="utf-8")
    return Described.model_validate({"name": name, **parse_yaml(text, f"The format {name}", "reader: csv")})


def recognise(paths: tuple[Path, ...]) -> Described | None:
    """Return the only format that recognises the files; None if none or several do."""
    found = [one for one in map(described, DESCRIBED) if one.recognises(paths)]
    return found[0] if len(found) == 1 else None
