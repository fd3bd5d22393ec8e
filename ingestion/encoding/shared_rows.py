"""Matching of the ids of two encoders by value, for a warm start."""

from collections.abc import Collection, Mapping

import numpy as np

from shunter.engine.checkpoint.warm_start import SharedRows
from shunter.ingestion.encoding.buckets import BucketIds
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.learned_map import LearnedMap
from shunter.ingestion.encoding.vocabulary import HashedIds, IdMap, VocabularyIds


def shared_rows(now: Encoder, former: Encoder) -> dict[str, SharedRows]:
    """Match the ids of every common field of two encoders by value; id 0 is the unknown value in both.

    Returns:
        By field name, the ids in the new model and the ids of the same values in the former model.
    """
    before = {field.name: field for field in former.categorical}
    found = {}
    for field in now.categorical:
        one = before.get(field.name)
        form = field.key_kind, field.multi_valued, field.cross
        if one is not None and form == (one.key_kind, one.multi_valued, one.cross):
            found[field.name] = _shared(field.ids, one.ids)
    return found


def known_values(rows: Mapping[str, SharedRows]) -> int:
    """Return the number of values that both encoders know; 0 if they belong to different logs."""
    return sum(len(one.now) - 1 for one in rows.values())


def most_columns_differ(columns: Collection[str], former: Encoder) -> bool:
    """Return True if most columns of an encoder are not among `columns`, so that `columns` belong to another log."""
    return 2 * len(set(columns).intersection(former.columns)) < len(former.columns)


def _shared(now: IdMap, former: IdMap) -> SharedRows:
    """Match the ids of two maps by value.

    In hashed and learned maps, values share ids. If only the former map shares ids, the embedding row of an id is
    copied to each of its values. If only the new map does, an id gets the former row of its most frequent value.
    """
    if isinstance(now, BucketIds) or isinstance(former, BucketIds):
        same = isinstance(now, BucketIds) and isinstance(former, BucketIds) and now.edges == former.edges
        ids = former_ids = np.arange(1, now.rows) if same else np.empty(0, np.int64)
    elif isinstance(now, VocabularyIds):
        ids, former_ids = np.arange(1, now.rows), former.ids(now.keys).astype(np.int64)
    elif isinstance(former, VocabularyIds):
        every_id = now.ids(former.keys)
        ids, first = np.unique(every_id, return_index=True)  # the first is the most frequent
        former_ids = first.astype(np.int64) + 1
    elif (isinstance(now, HashedIds) and isinstance(former, HashedIds) and now.rows == former.rows) or (
        isinstance(now, LearnedMap) and now.is_same(former)
    ):
        ids = former_ids = np.arange(1, now.rows)
    else:
        ids = former_ids = np.empty(0, np.int64)
    known = former_ids > 0
    unknown = np.zeros(1, np.int64)
    return SharedRows(
        np.concatenate([unknown, ids[known]]).astype(np.int64), np.concatenate([unknown, former_ids[known]])
    )
