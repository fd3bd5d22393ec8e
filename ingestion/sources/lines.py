"""Sources of text files other than CSV: JSON lines, libsvm, libffm, Vowpal Wabbit, RecBole and Netflix."""

import io
import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shunter.errors import ColumnError, DataError
from shunter.ingestion.batch import UNIT_BYTES, Rejection, TableChunk, Unit
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.files import read_blocks
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.recognise import first_lines
from shunter.ingestion.sources.tabular import CsvForm, CsvSource, TableSource, read_csv

DEEPEST = 64  # levels of objects and lists in a line of JSON
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_OPENING, _CLOSING = np.frombuffer(b"{[", np.uint8), np.frombuffer(b"}]", np.uint8)
_LONGEST = 20  # digits; an integer of more has more than 64 bits
_LONG = re.compile(rb"\d{%d}" % _LONGEST)
_WIDE = (pl.Int128, pl.UInt128)


@dataclass(frozen=True)
class LineSource(TableSource):
    """Source of files of lines; a subclass turns lines into columns."""

    def header(self, path: Path) -> list[str]:
        """Return the names of the columns in the first block of a file."""
        lines = next(read_blocks(path), b"").split(b"\n")
        return self.parse_lines([line for line in lines if line.strip()])[0].columns

    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, see `TableSource.tables`; columns that it lacks are null."""
        before = 0
        for text in read_blocks(path, budget=budget, start=start, end=end):
            lines = text.split(b"\n")[:-1]
            present = np.array([index for index, line in enumerate(lines) if line.strip()], np.int64)
            table, bad = self.parse_lines([lines[index] for index in present])
            numbers = present + before + 1
            rejected = [Rejection(str(path), int(numbers[row]), reason) for row, reason in sorted(bad.items())]
            for name in columns:
                if name in table.columns and table[name].dtype in (pl.Object, pl.Struct):
                    raise ColumnError(name, path, "holds values of several types: leave it out of the schema")
            rows = table.select(name if name in table.columns else pl.lit(None).alias(name) for name in columns)
            yield TableChunk(path, rows, np.delete(numbers, list(bad)), rejected)
            before += len(lines)

    @abstractmethod
    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse lines of text that are not blank into columns.

        Returns:
            Columns of the readable lines, and the fault of each unreadable line by its index.
        """


@dataclass(frozen=True)
class JsonSource(LineSource):
    """Source of JSON lines; a key of an object within an object is a column with a dotted name."""

    identity: str = "json"

    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse one object a line, see `LineSource.parse_lines`."""
        deep = {index for index, line in enumerate(lines) if is_deep(line)}
        try:
            if not deep and not any(map(_LONG.search, lines)):
                return _parse_table(pl.read_ndjson(io.BytesIO(b"\n".join(lines)), infer_schema_length=None)), {}
        except pl.exceptions.PolarsError:
            pass
        return _parse_each(lines, deep)


def _integer_or_text(digits: str) -> int | str:
    """Return an integer of at most 64 bits, or the digits of a longer one."""
    return int(digits) if len(digits) < _LONGEST and -(2**63) <= int(digits) < 2**63 else digits


def is_deep(line: bytes) -> bool:
    """Return True if objects and lists are nested deeper than readers of JSON can follow."""
    if line.count(b"{") + line.count(b"[") <= DEEPEST:
        return False
    characters = np.frombuffer(_TEXT.sub(b"", line), np.uint8)
    opened = np.isin(characters, _OPENING).astype(np.int64) - np.isin(characters, _CLOSING)
    return bool(np.cumsum(opened).max(initial=0) > DEEPEST)


def _parse_each(lines: list[bytes], deep: set[int]) -> tuple[pl.DataFrame, dict[int, str]]:
    """Parse each line separately, for texts with invalid lines or mixed types; values of mixed types become texts."""
    objects: list[dict[str, Any]] = []
    bad = dict.fromkeys(deep, f"holds objects in more than {DEEPEST} levels")
    for index, line in enumerate(lines):
        if index in deep:
            continue
        try:
            found = json.loads(line, parse_int=_integer_or_text)
            if not isinstance(found, dict):
                raise ValueError("no object")
            objects.append(found)
        except ValueError:
            bad[index] = f"{line[:20]!r} is not a JSON object"
    try:
        return _parse_table(pl.DataFrame(objects, infer_schema_length=None, strict=False)), bad
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise DataError(
            f"The JSON lines mix values without a common type ({error}): give all values of a key one type."
        ) from error


def _parse_table(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with dotted names; integers of more than 64 bits, which Arrow lacks, become texts."""
    flat = flattened(table)
    wide = {name: _without_wide(dtype) for name, dtype in flat.schema.items()}
    return flat.cast({name: dtype for name, dtype in wide.items() if dtype != flat.schema[name]})  # pyright: ignore[reportArgumentType] - names of columns


def _without_wide(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.List):
        return pl.List(_without_wide(dtype.inner))  # pyright: ignore[reportArgumentType] - of an instance
    return pl.String() if dtype in _WIDE else dtype


def flattened(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with the fields of each struct as columns with dotted names."""
    while structs := [name for name, dtype in table.schema.items() if isinstance(dtype, pl.Struct)]:
        table = table.with_columns(
            pl.col(name).struct.rename_fields([f"{name}.{field.name}" for field in table.schema[name].fields])  # pyright: ignore[reportAttributeAccessIssue] - a struct
            for name in structs
        ).unnest(structs)
    return table


@dataclass(frozen=True)
class LibsvmSource(LineSource):
    """Source of libsvm files: `label feature:value ...`, as the columns label, qid, features and values."""

    identity: str = "libsvm"

    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse lines in LIBSVM format; see `LineSource.parse_lines`."""
        label, rest = _label_and_rest(lines)
        tokens = rest.str.split(" ").list
        features = tokens.eval(pl.element().filter(~pl.element().str.starts_with("qid:"))).list
        table = pl.DataFrame({"label": label, "qid": rest.str.extract(r"(?:^| )qid:(\S+)")})
        return table.with_columns(
            features.eval(pl.element().str.extract("^([^:]*)")).alias("features"),
            features.eval(pl.element().str.extract(":([^:]*)$").fill_null("1")).alias("values"),
        ), {}

    @classmethod
    def usual_schema(cls, paths: tuple[Path, ...]) -> dict[str, Any]:
        """Return the keys of the schema: one column of weighted features."""
        del paths
        return {"label": _SIGNED, "multi_valued": [{"column": "features", "weights": "values"}]}


@dataclass(frozen=True)
class LibffmSource(LineSource):
    """Source of libffm files: `label field:feature:value ...`, as the columns label and features."""

    identity: str = "libffm"

    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse lines in LIBFFM format; see `LineSource.parse_lines`."""
        label, rest = _label_and_rest(lines)
        return pl.DataFrame({"label": label, "features": rest}), {}

    @classmethod
    def usual_schema(cls, paths: tuple[Path, ...]) -> dict[str, Any]:
        """Return the keys of the schema: a column of weighted features for each field of the first block."""
        text = next(read_blocks(paths[0]), b"").decode(errors="replace")
        fields = sorted({*re.findall(r"(?<=\s)([^\s:]+):[^\s:]+:", text)}, key=lambda field: (len(field), field))
        return {
            "label": _SIGNED,
            "unpack": [{"column": "features", "separators": [" ", ":", ":"], "prefix": "field"}],
            "multi_valued": [{"column": f"field{one}", "weights": f"field{one}_value"} for one in fields],
        }


@dataclass(frozen=True)
class VwSource(LineSource):
    """Source of Vowpal Wabbit files, as the columns label, importance, and two of each namespace: names and values."""

    identity: str = "vw"

    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse lines in Vowpal Wabbit format; see `LineSource.parse_lines`."""
        text = pl.Series("text", [line.decode(errors="replace").strip() for line in lines])
        head = text.str.extract(r"^([^|]*)")
        table = pl.DataFrame(
            {"label": head.str.extract(r"^(\S+)"), "importance": head.str.extract(r"^\S+\s+([\d.]+)\b")}
        )
        spaces = pl.DataFrame({"row": range(len(text)), "text": text.str.split("|").list.slice(1)}).explode("text")
        flat = spaces.drop_nulls().select(
            "row",
            space=pl.col("text").str.extract(r"^([^\s:]+)").fill_null("features"),
            feature=pl.col("text").str.replace(r"^\S+", "").str.extract_all(r"\S+"),
        )
        flat = flat.explode("feature").drop_nulls()
        feature = pl.col("feature")
        flat = flat.with_columns(feature.str.extract("^([^:]*)"), value=feature.str.extract(":(.*)$").fill_null("1"))
        for (name,), rows in sorted(flat.group_by("space")):
            lists = rows.group_by("row", maintain_order=True).agg(
                pl.col("feature").alias(str(name)), pl.col("value").alias(f"{name}_value")
            )
            found = pl.DataFrame({"row": range(len(text))}).join(lists, on="row", how="left", maintain_order="left")
            table = table.hstack(found.drop("row"))
        return table, {}

    @classmethod
    def usual_schema(cls, paths: tuple[Path, ...]) -> dict[str, Any]:
        """Return the keys of the schema: a column of weighted features for each namespace of the first block."""
        log = cls("log", Schema.model_validate({"label": "label", "numeric": ["importance"]}), paths)
        spaces = [name for name in log.header(paths[0])[2:] if not name.endswith("_value")]
        return {"label": _SIGNED, "multi_valued": [{"column": one, "weights": f"{one}_value"} for one in spaces]}


@dataclass(frozen=True)
class RecboleSource(CsvSource):
    """Source of a `.inter` file, to which `.user` and `.item` files beside it are joined."""

    identity: str = "recbole"

    units = TableSource.units  # no value is in quotes

    def header(self, path: Path) -> list[str]:
        """Return the names of the columns of a file, without their types."""
        return [*_types(path)]

    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, see `TableSource.tables`."""
        form = CsvForm("\t", tuple(self.header(path)), renames_header=True, has_quotes=False)
        yield from read_csv(path, columns, form, budget, start=start, end=end)

    @classmethod
    def usual_schema(cls, paths: tuple[Path, ...]) -> dict[str, Any]:
        """Return the keys of the schema by column types; ratings of 4 or more, or else all rows, are positive."""
        types, joins = _types(paths[0]), []
        for side, key in ((".user", "user_id"), (".item", "item_id")):
            table = paths[0].with_suffix(side)
            if table.exists() and key in types:
                joins.append({"file": table.name, "key": key, "format": "recbole"})
                types |= {name: kind for name, kind in _types(table).items() if name not in types}
        label = "label" if "label" in types else "rating" if "rating" in types else None
        label_key: dict[str, Any] = {"event": {"column": next(iter(types)), "positive": "*"}}
        if label is not None:
            label_key = {"label": {"column": label, "positive_at_least": 4 if label == "rating" else 0.5}}
        time = "timestamp" if "timestamp" in types else None
        features = {name: kind for name, kind in types.items() if name not in (label, time)}
        return {
            **label_key,
            "joins": joins,
            "numeric": [name for name, kind in features.items() if kind == "float"],
            "categorical": [name for name, kind in features.items() if kind == "token"],
            "multi_valued": [
                {"column": name, "separator": " "} for name, kind in features.items() if kind == "token_seq"
            ],
            "time": time,
            "user": "user_id" if "user_id" in features else None,
            "item": "item_id" if "item_id" in features else None,
        }


@dataclass(frozen=True)
class GroupedCsvSource(TableSource):
    """Source of Netflix Prize files: a line `movie:`, then a line `user,rating,date` for each rating of the movie."""

    identity: str = "grouped-csv"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield each file as a unit, because a part of a file may lack the line with its movie."""
        del unit_bytes
        return (Unit(path) for path in self.paths)

    def header(self, path: Path) -> list[str]:
        """Return the names of the columns of a file."""
        del path
        return ["movie_id", "user_id", "rating", "date"]

    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, see `TableSource.tables`."""
        carried, before = pl.Series([None], dtype=pl.String), 0
        for text in read_blocks(path, budget=budget, start=start, end=end):
            line = pl.Series("line", text.decode(errors="replace").splitlines()).str.strip_chars()
            found = line.str.extract(r"^(\d+):$")
            movies = pl.concat([carried, found]).fill_null(strategy="forward")[1:]
            fields = line.str.split_exact(",", 2).struct.rename_fields(self.header(path)[1:]).struct.unnest()
            table = fields.with_columns(movies.alias("movie_id"))
            is_row = (found.is_null() & (line != "")).to_numpy()
            yield TableChunk(path, table.select(columns).filter(is_row), np.flatnonzero(is_row) + before + 1, [])
            carried, before = movies[-1:], before + len(line)


_SIGNED = {"column": "label", "positive_at_least": 0.5}  # 1 beside 0 or -1


def _label_and_rest(lines: list[bytes]) -> tuple[pl.Series, pl.Series]:
    """Return the label at the start of each line, and the remaining text with single spaces; a comment is left out."""
    text = pl.Series("text", [line.partition(b"#")[0].decode(errors="replace") for line in lines])
    text = text.str.strip_chars().str.replace_all(r"\s+", " ")
    return text.str.extract(r"^(\S+)").alias("label"), text.str.extract(r"^\S+ (.*)$").alias("features")


def _types(path: Path) -> dict[str, str]:
    """Return the types of the columns of an atomic file by name."""
    names = (name.partition(":") for name in (first_lines(path) or [""])[0].split("\t"))
    return {name: kind for name, _, kind in names}
