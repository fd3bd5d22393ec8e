"""Original names of a data set's ids in the click log, for reports by value.

A data set stores ids instead of texts, so the names are read again from the first rows of the log.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.batch import Source
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.buckets import BucketIds
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.encoding.vocabulary import VocabularyIds
from shunter.ingestion.sources.tabular import TableChunk

MOST_CHUNKS = 8  # chunks of the log that are read, some MiB each
LONGEST_NAME = 40
Names = dict[int, str]


def value_names(source: Source, encoder: Encoder, wanted: Mapping[str, Collection[int]]) -> dict[str, Names]:
    """Return the names of ids; an id whose value is absent from the first rows of the log has none.

    Returns:
        Names by field and id. Ids of crosses, and ids that several values share (hashed or learned), have no name.
    """
    cut = {field.name: field.ids.names() for field in encoder.categorical if isinstance(field.ids, BucketIds)}
    buckets = {name: {id_: cut[name][id_] for id_ in set(ids) - {0}} for name, ids in wanted.items() if name in cut}
    own = (field for field in encoder.categorical if not field.cross)  # a combination of values has no name
    fields = {field.name: field for field in own if isinstance(field.ids, VocabularyIds)}
    open_ids = {name: set(ids) - {0} for name, ids in wanted.items() if name in fields}
    found: dict[str, Names] = {**buckets, **{name: {} for name in open_ids}}
    for name, field in fields.items():
        if field.key_kind == "hexadecimal" and name in open_ids:  # a hexadecimal key is the number itself plus 1
            assert isinstance(field.ids, VocabularyIds)
            found[name] = {number: f"{int(field.ids.keys[number - 1]) - 1:08x}" for number in open_ids.pop(name)}
    if not open_ids:
        return found
    with suppress(DataError):  # the log has changed since the ingestion: the names found so far are returned
        for chunk in islice(source.chunks(), MOST_CHUNKS):
            if not isinstance(chunk, TableChunk):
                break
            read_ids = {
                name: ids for name, ids in open_ids.items() if name in chunk.table.columns
            }  # not built histories
            for name, ids in read_ids.items():
                if ids - found[name].keys():
                    found[name] |= _names_in(chunk.table[name], fields[name], ids)
            if all(ids <= found[name].keys() for name, ids in read_ids.items()):
                break
    return found


def _names_in(series: pl.Series, field: CategoricalField, ids: set[int]) -> Names:
    texts, _ = read.as_text(series)
    if field.multi_valued:
        _, texts = read.taken_apart(texts, field.separator)
    texts = texts.drop_nulls().unique()
    rows: Any = field.ids.ids(read.keys(texts, field.key_kind))
    chosen = np.isin(rows, list(ids))
    names = texts.filter(pl.Series(chosen)).cast(pl.String, strict=False).to_list()
    return {int(row): str(name).strip()[:LONGEST_NAME] for row, name in zip(rows[chosen], names, strict=True) if name}
