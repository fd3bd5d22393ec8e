"""Embedding tables of a data set: how values become ids, number of rows, and size of the id map."""

from dataclasses import dataclass
from typing import Literal

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.encoding.buckets import BucketIds
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.learned_map import LearnedMap
from shunter.ingestion.encoding.vocabulary import VocabularyIds
from shunter.ingestion.second_pass import ENCODER_FOLDER

EDGE_BYTES = 4


@dataclass(frozen=True)
class TableIds:
    """Map from the values of an embedding table to ids.

    Attributes:
        field: Field that owns the table.
        kind: `exact` gives each known value an id, `hashed` and `learned` let values share ids, `buckets` cut
            numbers into ranges.
        rows: Rows of the table, including the row of the missing value.
        map_bytes: Size of the stored map in bytes.
        words: For a learned map, how many rows are of one value, of similar values and of rare values; else empty.
    """

    field: str
    kind: Literal["exact", "hashed", "learned", "buckets"]
    rows: int
    map_bytes: int
    words: str = ""


def table_ids(dataset: Dataset) -> list[TableIds]:
    """Return the tables of a data set in the order of its encoder; empty for a data set without an encoder."""
    folder = dataset.directory / ENCODER_FOLDER
    if not (folder / "encoder.json").exists():
        return []
    found = []
    for field in Encoder.load(folder).categorical:
        name, ids = field.name, field.ids
        if field.table is not None:
            continue
        if isinstance(ids, LearnedMap):
            found.append(TableIds(name, "learned", ids.rows, ids.bytes, ids.contents))
        elif isinstance(ids, VocabularyIds):
            found.append(TableIds(name, "exact", ids.rows, ids.keys.nbytes))
        elif isinstance(ids, BucketIds):
            found.append(TableIds(name, "buckets", ids.rows, EDGE_BYTES * len(ids.edges)))
        else:
            found.append(TableIds(name, "hashed", ids.rows, 0))
    return found


def learned_words(dataset: Dataset) -> list[tuple[str, str]]:
    """Return (field, sentence on the size of the map) for each field with a learned map."""
    values = {field.name: field.cardinality for field in dataset.fields}
    return [
        (
            table.field,
            f"{table.field}: {values[table.field]:,} values share {table.rows:,} rows by a learned map of "
            f"{table.map_bytes:,} bytes ({table.words}).",
        )
        for table in table_ids(dataset)
        if table.kind == "learned"
    ]
