"""Detection of file format, delimiter and encoding by the first bytes of a file."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from shunter.errors import DataError
from shunter.ingestion.fields import UTF_8
from shunter.ingestion.sources.files import LONGEST_LINE_BYTES, open_text
from shunter.requests.source import CRITEO, CSV, JSON_LINES, PARQUET

CRITEO_FIELDS = 40
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".sz", ".snappy")
SUFFIXES = {
    ".csv": CSV,
    **dict.fromkeys((".parquet", ".pq"), PARQUET),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON_LINES),
    **dict.fromkeys((".svm", ".libsvm"), "libsvm"),
    **dict.fromkeys((".ffm", ".libffm"), "libffm"),
    ".vw": "vw",
    ".inter": "recbole",
    **dict.fromkeys((".tsv", ".txt"), CRITEO),
}
_HEAD_BYTES = 1 << 20
_ENCODING_BYTES = 16 << 20
_LINES = 20
_DELIMITERS = ",\t;|"
_MAGIC = {
    b"PAR1": "a Parquet file: name it .parquet, or add --format parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet: save it as CSV",
    b"\xd0\xcf\x11\xe0": "a spreadsheet: save it as CSV",
    b"\xff\xfe": "a text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "a text in UTF-16: save it in UTF-8",
}


def general_format(path: Path) -> str:
    """Return the general format of a table by the suffix of its file; CSV for an unknown suffix."""
    return SUFFIXES.get(stem_of(path).suffix.lower(), CSV).replace(CRITEO, CSV)


def stem_of(path: Path) -> Path:
    """Return the name of a file without the suffix of a compression."""
    name = Path(path.name)
    return name.with_suffix("") if name.suffix.lower() in COMPRESSED_SUFFIXES else name


def first_lines(path: Path, encoding: str = UTF_8) -> list[str]:
    """Return the first lines of a text file (at most 20), decompressed.

    Raises:
        DataError: The file is empty, cannot be read, or holds no text.
    """
    with open_text(path, encoding) as stream:
        head = block = stream.read(_HEAD_BYTES)
        while block and len(head) < LONGEST_LINE_BYTES and not re.search(rb"[\r\n]", block):
            block = stream.read(_HEAD_BYTES)
            head += block
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise DataError(f"{path} is {what}.")
    if b"\0" in head:
        raise DataError(
            f"The file {path} is binary data in no known format: give a log in CSV, Parquet or Criteo's format."
        )
    return re.split(r"\r\n|\n|\r", head.decode("utf-8-sig", errors="replace"), maxsplit=_LINES)[:_LINES]


def header_of(line: str, delimiter: str) -> list[str]:
    """Return the column names in the first line of a CSV file."""
    if len(delimiter) > 1:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field longer than the limit of the csv module
        return line.split(delimiter)


def is_criteo(path: Path) -> bool:
    """Return True if one of the first lines of a file has the 40 columns of a Criteo log, or if all are blank."""
    lines = [line for line in first_lines(path) if line]
    return not lines or any(line.count("\t") == CRITEO_FIELDS - 1 for line in lines)


def likely_delimiter(path: Path, encoding: str = UTF_8) -> str | None:
    """Return the delimiter that gives the most columns in the header; None for a single column."""
    line = (first_lines(path, encoding) or [""])[0]
    best = max(_DELIMITERS, key=lambda delimiter: len(header_of(line, delimiter)))
    return best if len(header_of(line, best)) > 1 else None


def likely_encoding(path: Path, expected: str = UTF_8) -> str:
    """Return the encoding of a text: UTF-8 if at least half of its first lines with non-ASCII letters are UTF-8.

    Args:
        path: Path of the file.
        expected: Encoding to return for a text that is not UTF-8 or is pure ASCII; UTF-8 to guess an encoding.
    """
    with open_text(path) as stream:
        lines = [line for line in stream.read(_ENCODING_BYTES).split(b"\n") if not line.isascii()]
    if lines and 2 * sum(line.decode(errors="ignore").encode() == line for line in lines) >= len(lines):
        return UTF_8
    if not lines or expected != UTF_8:
        return expected
    # Bytes from 128 to 159 are letters and quotes in Windows encodings, and unused in Latin-1.
    return "cp1252" if any(re.search(rb"[\x80-\x9f]", line) for line in lines) else "latin-1"


def csv_delimiter(path: Path, columns: Sequence[str], given: str | None = None, encoding: str = UTF_8) -> str:
    """Return the delimiter of a CSV file: the given one, else the one for which the header has most `columns`."""
    if given is not None:
        return given
    usual = "\t" if ".tsv" in path.suffixes else ","
    line = (first_lines(path, encoding) or [""])[0]
    return max((usual, *_DELIMITERS), key=lambda delimiter: len(set(columns) & set(header_of(line, delimiter))))


def ask_for_csv(path: Path) -> DataError:
    """Return the error for a file that is no Criteo log, with a suggestion to read the file as CSV."""
    columns = len((first_lines(path) or [""])[0].split("\t"))
    delimiter = likely_delimiter(path)
    written = '"\\t"' if delimiter == "\t" else f'"{delimiter}"'
    meant = "" if delimiter is None else f" with `delimiter: {written}` in the schema"
    return DataError(
        f"{path} is no log in Criteo's layout (its first line has {columns} columns between tabs, {CRITEO_FIELDS} are "
        f"expected): did you mean --format csv{meant}?"
    )
