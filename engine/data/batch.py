"""One batch of samples, as the kernels want it: field by field, without a Python object per row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from shunter.errors import DataError
from shunter.models.spec import CategoricalFeature, Features

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True)
class Bags:
    """The ids of one multi-valued field.

    Attributes:
        values: int32 `[ids]`, sample by sample.
        lengths: `[batch]`, ids of each sample.
        weights: float32 `[ids]`, what each id counts in its bag; None where the field has none.
    """

    values: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples in the layout of a KeyedJaggedTensor.

    Three samples of a single-valued field a and a multi-valued field b, whose second bag is empty:

        values   [ a0 a1 a2 | b0 b0 b2 ]        offsets   [ 0 1 2 3 5 5 6 ]

    Attributes:
        keys: names of the categorical fields.
        dense: float32 `[batch, dense features]`.
        values: int32 ids, field by field and sample by sample within a field.
        offsets: int32 `[fields * batch + 1]`, where each bag starts in `values`, and the end.
        weights: float32 `[ids]`, what each id counts in its bag, 1 in fields without weights; None where none has any.
        labels: float32 `[batch]`, or `[batch, tasks]` where there are several; 0 for one that is missing.
        shares: float32 like `labels`: the part of each label in the mean loss of its task, 0 for one that is missing.
            They sum to one over the whole batch, which other processes may hold parts of. None: all are alike.
        totals: weight of all samples that have a label, of the whole batch, for each task; None with `shares`.
    """

    keys: tuple[str, ...]
    dense: Tensor
    values: Tensor
    offsets: Tensor
    labels: Tensor
    shares: Tensor | None = None
    totals: tuple[float, ...] | None = None
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def samples(self) -> int:
        """Samples that are learned from in this step, by all processes."""
        return len(self)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of a model."""
        inputs = self.dense, self.values, self.offsets
        return inputs if self.weights is None else (*inputs, self.weights)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that lies on a device."""
        every = self.dense, self.values, self.offsets, self.labels, self.shares, self.weights
        return tuple(tensor for tensor in every if tensor is not None)

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> Self:
        """The batch on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def clone(self) -> Self:
        """A copy of its own."""
        return self._map(Tensor.clone)

    def pin_memory(self) -> Self:
        """A copy in page-locked memory, from which a GPU reads without waiting for the host."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(
            self,
            dense=change(self.dense),
            values=change(self.values),
            offsets=change(self.offsets),
            labels=change(self.labels),
            shares=None if self.shares is None else change(self.shares),
            weights=None if self.weights is None else change(self.weights),
        )


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What samples are to be predicted as.

    Attributes:
        labels: float32 `[rows]`, or `[rows, tasks]` where there are several; 0 for one that is missing.
        weights: float32 like `labels`: the sample's weight, 0 where the label is missing; None: all count alike.
    """

    labels: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, labels: np.ndarray, weights: np.ndarray | None = None) -> "Targets":
        """From labels in which NaN is none, and the weights of samples, `[rows]`."""
        missing = np.isnan(labels)
        if weights is None and not missing.any():
            return cls(labels=labels)
        present = (~missing).astype(np.float32)
        if weights is not None:
            present *= weights if labels.ndim == 1 else weights[:, np.newaxis]
        return cls(labels=np.where(missing, np.float32(0), labels), weights=present)

    def totals(self) -> tuple[float, ...]:
        """Weight of all samples that have a label, for each task."""
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
    """Lay out encoded samples as a batch, and check their ids.

    Args:
        features: names and sizes of the fields.
        dense: float32 `[batch, dense features]`; None when there are none.
        categorical: int32 `[batch, single-valued fields]`; None when there are none.
        bags: the multi-valued fields, in their order in `features`.
        labels: float32 `[batch]` or `[batch, tasks]`; zeros when the batch is only to be scored.
        shares: see `Batch`.
        totals: likewise.

    Raises:
        DataError: an id lies outside its table, or a history is too long; the message names the field.
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
        _check_ids(features, single)
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
    """Offsets of bags of one id each: the same for every full batch, so made once; nobody writes to them."""
    return torch.arange(bags + 1, dtype=torch.int32)


def _interleave(
    features: Features, single: np.ndarray | None, bags: Sequence[Bags], rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Put single-valued and multi-valued fields into the order of `features`: all values, `[fields, rows]` lengths."""
    lengths = np.ones((len(features.categorical), rows), dtype=np.int32)
    pieces: list[np.ndarray] = []
    next_single, next_bag = 0, 0
    for position, field in enumerate(features.categorical):
        if field.multi_valued:
            pieces.append(bags[next_bag].values)
            lengths[position] = bags[next_bag].lengths
            _check_length(field, lengths[position])
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
    """The weight of each id in the order of `_interleave`, float32 `[ids]`: 1 in fields that have none."""
    pieces: list[np.ndarray] = []
    of_bags = iter(bags)
    for field in features.categorical:
        bag = next(of_bags) if field.multi_valued else None
        weights = None if bag is None else bag.weights
        assert field.is_weighted == (weights is not None), f"the field {field.name} has weights where it names some"
        pieces.append(np.ones(rows if bag is None else len(bag.values), np.float32) if weights is None else weights)
    return np.concatenate(pieces)


def _check_length(field: CategoricalFeature, lengths: np.ndarray) -> None:
    if field.length is not None and lengths.size and lengths.max() > field.length:
        raise DataError(
            f"Field {field.name!r} holds a history of {lengths.max()} ids, more than {field.length}: give the latest."
        )


def _check_ids(features: Features, single: np.ndarray) -> None:
    if not single.size:
        return
    lowest, highest = single.min(axis=1), single.max(axis=1)
    for field, low, high in zip(features.categorical, lowest, highest, strict=True):
        _check_range(field.name, field.rows, int(low), int(high))


def _check_range(name: str, rows: int, lowest: int, highest: int) -> None:
    if lowest < 0 or highest >= rows:
        wrong = lowest if lowest < 0 else highest
        raise DataError(
            f"Field {name!r} holds the id {wrong} but its table has the rows 0 to {rows - 1}: ingest the data again."
        )
