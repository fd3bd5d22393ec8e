"""Learned id maps: values with similar effect on the label in the training rows share an embedding row."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shunter.engine.data.dataset import FieldStatistics
from shunter.errors import DataError
from shunter.extensions.learned_hashing.behaviour import MOST_ROWS, Occurrences, behaviour_of, joined, learn
from shunter.extensions.learned_hashing.learned_ids import LearnedIds, group
from shunter.ingestion.encoding.encoder import CategoricalField
from shunter.ingestion.encoding.vocabulary import IdMap, VocabularyIds, access_curve
from shunter.ingestion.fields import SingleValued
from shunter.ingestion.schema import Schema
from shunter.ingestion.spill import Spill, SpilledBatch

Fitted = tuple[CategoricalField, FieldStatistics]
Columns = dict[int, IdMap]  # id maps of the columns with ids of their own, by column index


def with_learned_maps(schema: Schema, spill: Spill, fitted: list[Fitted]) -> list[Fitted]:
    """Learn the id maps of the columns with `learned_rows`; columns with a map from a base encoder keep that map.

    Args:
        schema: Schema of the log.
        spill: Spilled rows of the log.
        fitted: Fields with their statistics; a field whose map is to be learned has ids by frequency.

    Returns:
        The fields with the learned maps and the access curves over the new ids.

    Raises:
        DataError: All labels of the training split are equal, so the effect of ids on the label is unknown; or the
            label is a number.
    """
    columns = (*schema.categorical, *schema.bags)
    names = [column.field if isinstance(column, SingleValued) else column.column for column in columns]
    ids_of = {field.name: field.ids for field, _ in fitted if field.table is None}
    own: Columns = {place: ids_of[name] for place, name in enumerate(names) if name in ids_of}
    rows_of = schema.vocabulary.learned_rows_of
    asked = {place: rows for place in own if (rows := rows_of(columns[place])) is not None}
    to_learn = {place: rows for place, rows in asked.items() if isinstance(own[place], VocabularyIds)}
    if not to_learn:
        return fitted
    if schema.label.loss is not None:
        raise DataError(
            "learned_rows groups values by how often the label is positive, but the label is a number: leave "
            "learned_rows out of the schema."
        )
    learned = {names[place]: ids for place, ids in _learn(spill, own, to_learn).items()}
    curves = {name: access_curve(_lookups(spill, names.index(name), ids)) for name, ids in learned.items()}

    def with_map(pair: Fitted) -> Fitted:
        field, statistics = pair
        name = field.table or field.name
        if name not in learned:
            return pair
        return replace(field, ids=learned[name]), replace(statistics, access_curve=curves[name])

    return [with_map(pair) for pair in fitted]


def _learn(spill: Spill, own: Columns, to_learn: Mapping[int, int]) -> dict[int, LearnedIds]:
    """Learn the maps of some columns; `to_learn` maps the index of each column to the number of rows of its map."""
    firsts = dict(zip(own, np.cumsum([0, *(ids.rows for ids in own.values())]).tolist(), strict=False))
    rows = _training_rows(spill, own, firsts)
    if rows.labels.min(initial=1) == rows.labels.max(initial=0):
        raise DataError(
            "learned_rows groups values by their effect on the label, but the label is the same in all rows."
        )
    machine = learn(rows, sum(ids.rows for ids in own.values()))
    found: dict[int, LearnedIds] = {}
    for place, table_rows in to_learn.items():
        ids = own[place]
        assert isinstance(ids, VocabularyIds), "the values of the column have ids by frequency"
        counts = _lookups(spill, place, ids)[1:]
        behaviour = behaviour_of(machine, rows, firsts[place] + 1, counts)
        grouping = group(counts, behaviour.points, table_rows, behaviour.doubt)
        found[place] = LearnedIds.of(ids.keys, grouping)
    return found


def _training_rows(spill: Spill, own: Columns, firsts: Mapping[int, int]) -> Occurrences:
    """Return training rows with their ids; more than `MOST_ROWS` rows are sampled evenly over the log."""
    count = sum(int((batch.parts == 0).sum()) for batch in spill.read())
    every, seen = max(1, -(-count // MOST_ROWS)), 0
    parts: list[Occurrences] = []
    for batch in spill.read():
        training = np.flatnonzero(batch.parts == 0)
        chosen = training[-seen % every :: every]
        seen += len(training)
        is_chosen = np.zeros(len(batch.labels), bool)
        is_chosen[chosen] = True
        parts.append(_occurrences(batch, is_chosen, own, firsts))
    return joined(parts)


def _occurrences(
    batch: SpilledBatch, chosen: NDArray[np.bool_], own: Columns, firsts: Mapping[int, int]
) -> Occurrences:
    columns = batch.columns.select(chosen)
    single, count = len(columns.keys), int(chosen.sum())
    owners, ids, shares = [], [], []
    for place, known in own.items():
        if place < single:
            keys, lengths = columns.keys[place], np.ones(count, np.int64)
        else:
            bag = columns.bags[place - single]
            keys, lengths = bag.keys, np.diff(bag.offsets)
        owners.append(np.repeat(np.arange(count), lengths))
        ids.append(known.ids(keys) + np.int32(firsts[place]))
        shares.append(np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32))
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    labels = batch.labels[chosen] if batch.labels.ndim == 1 else batch.labels[chosen, 0]
    filled, lengths = np.unique(owner, return_counts=True)  # rows without any value are left out
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return Occurrences(np.concatenate(ids)[order], np.concatenate(shares)[order], starts, labels[filled])


def _lookups(spill: Spill, place: int, ids: IdMap) -> NDArray[np.int64]:
    """Return the number of occurrences of each id of a column in the training rows, int64 [ids.rows]."""
    lookups = np.zeros(ids.rows, np.int64)
    for keys in spill.training_keys(place):
        lookups += np.bincount(ids.ids(keys), minlength=ids.rows)
    return lookups
