"""Batch of samples in the layout of the embedding kernels: field by field, without a Python object per row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from shunter.errors import DataError
from shunter.models.spec import Features


@dataclass(frozen=True, kw_only=True)
class Bags:
    """Ids of one multi-valued field.

    Attributes:
        values: int32 `[ids]`, sample by sample.
        lengths: `[batch]`, number of ids of each sample.
        weights: float32 `[ids]`, weight of each id in its bag; None if the field has no weights.
    """

    values: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Batch of samples in the layout of a KeyedJaggedTensor.

    Three samples of a single-valued field a and a multi-valued field b, whose second bag is empty:

        values   [ a0 a1 a2 | b0 b0 b2 ]        offsets   [ 0 1 2 3 5 5 6 ]

    Attributes:
        keys: Names of the categorical fields.
        dense: float32 `[batch, dense features]`.
        values: int32 ids, field by field and sample by sample within a field.
        offsets: int32 `[fields * batch + 1]`, start of each bag in `values`, and the end.
        weights: float32 `[ids]`, weight of each id in its bag, 1 in fields without weights; None if no field has
            weights.
        groups: int32 `[batch]`, group of each sample (-1: no group) for a loss that compares the samples of a group;
            None for any other loss.
        labels: float32 `[batch]`, or `[batch, tasks]` with several tasks; 0 for a missing label.
        shares: float32 like `labels`: share of each label in the mean loss of its task, 0 for a missing label. The
            shares sum to one over the whole batch, including parts in other processes. None: all shares are equal.
        totals: Total weight of the samples that have a label, over the whole batch, for each task; None with `shares`.
    """

    keys: tuple[str, ...]
    dense: Tensor
    values: Tensor
    offsets: Tensor
    labels: Tensor
    shares: Tensor | None = None
    totals: tuple[float, ...] | None = None
    weights: Tensor | None = None
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def samples(self) -> int:
        """Number of training samples of one step, summed over all processes."""
        return len(self)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Arguments with which a model is called on this batch."""
        inputs = self.dense, self.values, self.offsets
        return inputs if self.weights is None else (*inputs, self.weights)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the batch that are on a device."""
        return tuple(value for value in vars(self).values() if isinstance(value, Tensor))

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> Self:
        """Return the batch on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def clone(self) -> Self:
        """Return a copy of the batch with its own memory."""
        return self._map(Tensor.clone)

    def pin_memory(self) -> Self:
        """Return a copy in page-locked memory, from which a GPU reads without waiting for the host."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, **{name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)})


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Labels of samples and their weights.

    Attributes:
        labels: float32 `[rows]`, or `[rows, tasks]` with several tasks; 0 for a missing label.
        weights: float32 like `labels`: weight of the sample, 0 for a missing label; None: all weights are equal.
    """

    labels: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, labels: np.ndarray, weights: np.ndarray | None = None) -> "Targets":
        """Return targets from labels in which NaN is a missing label, and sample weights `[rows]`."""
        missing = np.isnan(labels)
        if weights is None and not missing.any():
            return cls(labels=labels)
        present = (~missing).astype(np.float32)
        if weights is not None:
            present *= weights if labels.ndim == 1 else weights[:, np.newaxis]
        return cls(labels=np.where(missing, np.float32(0), labels), weights=present)

    def totals(self) -> tuple[float, ...]:
        """Return the total weight of the samples that have a label, for each task."""
        if self.weights is None:
            return (float(len(self.labels)),) * (1 if self.labels.ndim == 1 else self.labels.shape[1])
        return tuple(np.atleast_1d(self.weights.sum(axis=0, dtype=np.float64)).tolist())


def make_batch(
    features: Features,
    *,
    dense: np.ndarray | None,
    categorical: np.ndarray | None,
    bags: Sequence[Bags] = (),
    labels: np.ndarray | None = None,
    shares: np.ndarray | None = None,
    totals: tuple[float, ...] | None = None,
) -> Batch:
    """Arrange encoded samples as a batch, and check their ids.

    Args:
        features: Names and sizes of the fields.
        dense: float32 `[batch, dense features]`; None without dense features.
        categorical: int32 `[batch, single-valued fields]`; None without single-valued fields.
        bags: Multi-valued fields, in their order in `features`.
        labels: float32 `[batch]` or `[batch, tasks]`; None for a batch that is only scored, whose labels are zeros.
        shares: See `Batch`.
        totals: See `Batch`.

    Raises:
        DataError: An id is outside its table, or a history is too long; the message names the field.
    """
    single = None if categorical is None else np.ascontiguousarray(categorical.T)
    arrays = [array for array in (dense, categorical, labels) if array is not None]
    rows = len(arrays[0]) if arrays else len(bags[0].lengths)
    if bags:
        values, lengths = _interleave(features, single, bags, rows)
        offsets = np.zeros(lengths.size + 1, dtype=np.int32)
        np.cumsum(lengths.ravel(), out=offsets[1:])
        offsets_tensor = torch.from_numpy(offsets)
    else:
        assert single is not None, "a batch needs a categorical field"
        values = single.ravel()
        if single.size:
            for field, low, high in zip(features.categorical, single.min(axis=1), single.max(axis=1), strict=True):
                _check_range(field.name, field.rows, int(low), int(high))
        offsets_tensor = _unit_offsets(values.size)
    return Batch(
        keys=tuple(field.name for field in features.categorical),
        dense=torch.zeros(rows, 0) if dense is None else torch.from_numpy(dense),
        values=torch.from_numpy(values),
        offsets=offsets_tensor,
        labels=torch.zeros(rows) if labels is None else torch.from_numpy(labels),
        shares=None if shares is None else torch.from_numpy(shares),
        totals=totals,
        weights=torch.from_numpy(_weights_of(features, bags, rows)) if features.is_weighted else None,
    )


@lru_cache(maxsize=8)
def _unit_offsets(bags: int) -> Tensor:
    """Return the offsets of bags of one id each, int32 `[bags + 1]`, cached: they are equal for all full batches."""
    return torch.arange(bags + 1, dtype=torch.int32)


def _interleave(
    features: Features, single: np.ndarray | None, bags: Sequence[Bags], rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values `[ids]` of all fields in the order of `features`, and their lengths `[fields, rows]`."""
    lengths = np.ones((len(features.categorical), rows), dtype=np.int32)
    pieces: list[np.ndarray] = []
    next_single, next_bag = 0, 0
    for position, field in enumerate(features.categorical):
        if field.multi_valued:
            pieces.append(bags[next_bag].values)
            longest = int(bags[next_bag].lengths.max(initial=0))
            if field.length is not None and longest > field.length:
                raise DataError(
                    f"Field {field.name!r} holds a history of {longest} ids, but the model takes at most "
                    f"{field.length}: give the latest ids only."
                )
            lengths[position] = bags[next_bag].lengths
            next_bag += 1
        else:
            assert single is not None, f"the single-valued field {field.name} has no column"
            pieces.append(single[next_single])
            next_single += 1
    for piece, field in zip(pieces, features.categorical, strict=True):
        if piece.size:
            _check_range(field.name, field.rows, int(piece.min()), int(piece.max()))
    return np.concatenate(pieces), lengths


def _weights_of(features: Features, bags: Sequence[Bags], rows: int) -> np.ndarray:
    """Return the weight of each id in the order of `_interleave`, float32 `[ids]`: 1 in fields without weights."""
    pieces: list[np.ndarray] = []
    of_bags = iter(bags)
    for field in features.categorical:
        bag = next(of_bags) if field.multi_valued else None
        weights = None if bag is None else bag.weights
        assert field.is_weighted == (weights is not None), f"the field {field.name} weighted bags have weights"
        pieces.append(np.ones(rows if bag is None else len(bag.values), np.float32) if weights is None else weights)
    return np.concatenate(pieces)


def _check_range(name: str, rows: int, lowest: int, highest: int) -> None:
    if lowest < 0 or highest >= rows:
        wrong = lowest if lowest < 0 else highest
        raise DataError(
            f"Field {name!r} holds the id {wrong}, but its embedding table has only rows 0 to {rows - 1}: "
            "ingest the data again."
        )
