"""Sampling of negatives for a log with positives only: the same row with another item, drawn uniformly.

The random numbers of a row depend only on its content, so each process and each repetition draws the same negatives.
The rate is the number of draws, with replacement, over the number of other items. The odds that a model predicts after
training on the sampled rows are corrected by multiplication with the rate (He et al., "Practical Lessons from
Predicting Clicks on Ads at Facebook", ADKDD 2014).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import MISSING_KEY, Bag, Columns, RawBatch
from shunter.ingestion.encoding.split import row_hashes
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.schema import Schema

_SEED = 2


@dataclass(frozen=True)
class NegativeSampler:
    """Sampler of negatives from the items of a log.

    Attributes:
        item: Name of the item column.
        items: Keys of the items, sorted, uint64 [items].
        values: Other columns of the items by name, each [items]: float32 numbers or uint64 keys.
        per_positive: Number of negatives for each positive row.
    """

    item: str
    items: NDArray[np.uint64]
    values: Mapping[str, NDArray[np.float32] | NDArray[np.uint64]]
    per_positive: int

    @property
    def rate(self) -> float:
        """Sampled negatives per positive row, divided by the number of other items; may exceed 1."""
        return self.per_positive / (len(self.items) - 1)

    @property
    def log_odds_shift(self) -> float:
        """Number to add to the log odds of a model that was trained on the sampled rows."""
        return math.log(self.rate)

    def apply(self, batch: RawBatch, schema: Schema) -> RawBatch:
        """Return the positive rows of a batch, each followed by its negatives; other rows are dropped."""
        names = [field.field for field in schema.categorical]
        own = batch.columns.keys[names.index(self.item)] if self.item in names else None
        positive = batch.labels == 1
        positive = positive & (own != MISSING_KEY) if own is not None else np.zeros(len(batch.labels), bool)
        left = replace(batch.select(positive), left_out=batch.left_out + int((~positive).sum()))
        rows, copies = len(left.labels), self.per_positive + 1
        if not rows:
            return left
        crosses = [index for index, field in enumerate(schema.categorical) if field.name is not None or field.cross]
        hashed = row_hashes(left.columns, _SEED, crosses)
        if left.times is not None:
            hashed = mix(hashed + left.times.view(np.uint64))
        drawn = mix(np.repeat(hashed, copies) + np.tile(np.arange(copies, dtype=np.uint64), rows))
        places = (drawn % np.uint64(len(self.items) - 1)).astype(np.int64)
        places += places >= np.repeat(np.searchsorted(self.items, left.columns.keys[names.index(self.item)]), copies)
        is_drawn = np.tile(np.arange(copies) > 0, rows)
        columns = _repeated(left.columns, copies)
        for name, values in {self.item: self.items, **self.values}.items():
            array, index = (columns.keys, names) if name in names else (columns.numeric, schema.numeric)
            if name in index:
                array[index.index(name), is_drawn] = values[places[is_drawn]]
        of_rows = {name: getattr(left, name) for name in ("times", "weights", "parts")}
        return replace(
            left,
            labels=np.where(is_drawn, np.float32(0), np.float32(1)),
            columns=columns,
            **{name: None if values is None else np.repeat(values, copies) for name, values in of_rows.items()},
        )


def fit_sampler(schema: Schema, batches: Iterable[RawBatch], read: Schema, name: str) -> NegativeSampler:
    """Return the sampler for a log. Its items are those of positive rows, with the item columns of their first row.

    Args:
        schema: Schema with `negatives`.
        batches: Rows of the log.
        read: Schema that gives the columns of `batches`, possibly reduced to the item columns.
        name: Name of the log, for the error message.

    Raises:
        DataError: The log has fewer than two items in positive rows.
    """
    assert schema.negatives is not None
    assert schema.item is not None, "negatives need it"
    names = [field.field for field in read.categorical]
    place, found = names.index(schema.item), dict[str, list[NDArray]]()
    items = np.empty(0, np.uint64)
    for batch in batches:
        keys = np.where(batch.labels == 1, batch.columns.keys[place], np.uint64(MISSING_KEY))
        unique, first = np.unique(keys, return_index=True)
        is_new = ~np.isin(unique, items) & (unique != MISSING_KEY)
        items = np.concatenate([items, unique[is_new]])
        for one in schema.negatives.columns:
            array = (
                batch.columns.keys[names.index(one)] if one in names else batch.columns.numeric[read.numeric.index(one)]
            )
            found.setdefault(one, []).append(array[first[is_new]])
    if len(items) < 2:
        raise DataError(
            f"The positive rows of {name} have fewer than two items, but `negatives` samples from these "
            "items: leave `negatives` out of the schema."
        )
    order = np.argsort(items)
    values = {one: np.concatenate(arrays)[order] for one, arrays in found.items()}
    return NegativeSampler(schema.item, items[order], values, schema.negatives.per_positive)


def _repeated(columns: Columns, copies: int) -> Columns:
    bags = []
    for bag in columns.bags:
        lengths = np.repeat(np.diff(bag.offsets), copies)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - np.repeat(bag.offsets[:-1], copies), lengths)
        bags.append(Bag(bag.keys[places], offsets, None if bag.weights is None else bag.weights[places]))
    return Columns(np.repeat(columns.numeric, copies, axis=1), np.repeat(columns.keys, copies, axis=1), bags)
