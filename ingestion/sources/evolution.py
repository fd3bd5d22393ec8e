"""Columns that differ between the files of one log: absent in some of them, or of several kinds."""

from shunter.ingestion.batch import Source
from shunter.ingestion.sources.header import flat_kinds
from shunter.ingestion.sources.tabular import ParquetSource, TableSource

ABSENT = "absent"


def varying_columns(source: Source) -> dict[str, tuple[str, ...]]:
    """Return the columns of the schema that differ between files, each with its kinds in order of the files.

    Only Parquet files have kinds in their headers; in other files a column is `text` or `absent`. An empty column has
    no kind.
    """
    if not isinstance(source, TableSource) or len(source.paths) == 1:
        return {}
    found: dict[str, dict[str, None]] = {name: {} for name in source.schema.read_columns}
    for path in source.paths:
        is_typed = isinstance(source, ParquetSource)
        kinds = flat_kinds(path) if is_typed else dict.fromkeys(source.names(path), "text")
        for name, of_column in found.items():
            kind = kinds.get(name, ABSENT)
            if kind != "empty":
                of_column[kind] = None
    return {name: tuple(kinds) for name, kinds in found.items() if len(kinds) > 1}
