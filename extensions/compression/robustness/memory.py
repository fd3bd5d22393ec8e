"""Trained model as stored in memory: fault injection, correction of bit flips, and exclusion of damaged members.

Faults are flipped or stuck bits, or lost rows. They are drawn with a seed and reverted bit by bit afterwards. Each bit
is faulty independently with the same probability, a common model of undervolted or rarely refreshed memory (Koppula et
al., "EDEN", MICRO 2019, error model 0). All bits of lost rows are zero.

Three mechanisms detect damage without labels. Check bits, if stored with the weights, correct bit flips
(`shunter.extensions.compression.packing`). Numbers outside of their tensor's original range, or NaN, are replaced by
zero or the number of the range nearest to zero (the correction of implausible values of EDEN; Koppula et al., MICRO
2019). The original log odds of each member are stored for a sample of rows. Members are excluded such that the result
is nearest to the original one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.checked_files import opened, read_json
from shunter.engine.checkpoint.storage import MEMBERS, is_packed, load_model, tensors_of
from shunter.extensions.compression.packing import CHECKS, MARK, TABLES, bytes_of, correct_flips, unpack
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model

MOST_ENUMERATED = 10  # with more members, only subsets without one member are tried
ADDRESSES = ("rows", "columns")  # parts of a packed matrix that hold the positions of its numbers
ErrorKind = Literal["flip", "stuck0", "stuck1", "rows"]
WORDS: dict[ErrorKind, str] = {
    "flip": "bits that flip",
    "stuck0": "bits that are stuck at 0",
    "stuck1": "bits that are stuck at 1",
    "rows": "rows of tables that are lost",
}


@dataclass(frozen=True, kw_only=True)
class MemoryErrors:
    """Kind and rate of faults.

    Attributes:
        kind: Fault type of a bit, or of a row.
        rate: Fault probability of each bit or row, independent of the others.
    """

    rate: float
    kind: ErrorKind = "flip"


@contextmanager
def injected(
    tensors: Sequence[Tensor], rows: Sequence[Sequence[Tensor]], errors: MemoryErrors, seed: int
) -> Iterator[int]:
    """Damage tensors in place within a block; afterwards they are restored bit by bit.

    Args:
        tensors: All tensors in the memory, on the CPU and contiguous.
        rows: For each table the tensors whose entries along the first axis belong to its rows; a subset of `tensors`.
        errors: Kind and rate of faults.
        seed: Seed of the faults; equal tensors get equal faults.

    Yields:
        Number of bits, or rows, with faults, including bits that are stuck at their correct value.
    """
    assert all(one.is_contiguous() for one in tensors), "faults of a copy would change nothing"
    random = np.random.default_rng(seed)
    if errors.kind == "rows":
        drawn = [(table, _positions(random, len(table[0]), errors.rate)) for table in rows]
        places = [(bytes_of(part).reshape(len(part), -1), at) for table, at in drawn for part in table]
        former = [stored[at].copy() for stored, at in places]
        count = sum(len(at) for _, at in drawn)
        for stored, at in places:
            stored[at] = 0
    else:
        found = [(bytes_of(one), _positions(random, 8 * one.nbytes, errors.rate)) for one in tensors]
        places = [(stored, np.unique(bits // 8)) for stored, bits in found]
        former = [stored[at].copy() for stored, at in places]
        count = sum(len(bits) for _, bits in found)
        for stored, bits in found:
            _flip(stored, bits, errors.kind)
    try:
        yield count
    finally:
        for (stored, at), before in zip(places, former, strict=True):
            stored[at] = before


def _positions(random: np.random.Generator, count: int, rate: float) -> np.ndarray:
    """Return the ascending numbers below `count` that are drawn, each independently with probability `rate`."""
    taken = int(random.binomial(count, rate))
    if taken > count // 16:  # so many that single draws would repeat often
        return np.sort(random.choice(count, taken, replace=False))
    found = np.unique(random.integers(0, count, taken)) if taken else np.empty(0, dtype=np.int64)
    while len(found) < taken:
        found = np.unique(np.append(found, random.integers(0, count, taken - len(found))))
    return found


def _flip(stored: np.ndarray, bits: np.ndarray, kind: ErrorKind) -> None:
    at, masks = bits // 8, np.left_shift(1, bits % 8).astype(np.uint8)
    if kind == "flip":
        np.bitwise_xor.at(stored, at, masks)
    elif kind == "stuck1":
        np.bitwise_or.at(stored, at, masks)
    else:
        np.bitwise_and.at(stored, at, ~masks)


class _Stored:
    """Stored form of one member, with a copy of its tensors and the range of each floating-point tensor."""

    def __init__(self, model: Model, tensors: Mapping[str, Tensor]) -> None:
        self.model = model
        self.tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
        self.ranges = {
            name: (float(tensor.min()), float(tensor.max()))
            for name, tensor in self.tensors.items()
            if tensor.is_floating_point() and tensor.numel()
        }

    @property
    def tables(self) -> list[list[Tensor]]:
        """Return for each embedding table the tensors that hold an entry per row."""
        if TABLES in self.tensors:
            sizes = [table.numel() for table in self.model.embeddings.tables]
            parts = self.tensors[TABLES].view(-1).split(sizes)
            return [[part.view(table.shape)] for part, table in zip(parts, self.model.embeddings.tables, strict=True)]
        found: dict[str, list[Tensor]] = {}
        for name, tensor in self.tensors.items():
            of, _, part = name.rpartition(MARK)
            if of.startswith(TABLES) and part not in ADDRESSES:
                found.setdefault(of, []).append(tensor)
        return list(found.values())

    def load(self, *, is_guarded: bool, is_corrected: bool) -> None:
        """Load the model with the currently stored weights; see `Memory.load`."""
        stored = correct_flips(self.tensors) if is_corrected else self.tensors
        tensors = {name: self._read(name, tensor, is_guarded=is_guarded) for name, tensor in stored.items()}
        self.model.load_state_dict(unpack(self.model, tensors) if is_packed(tensors) else tensors)

    def _read(self, name: str, tensor: Tensor, *, is_guarded: bool) -> Tensor:
        of, _, part = name.rpartition(MARK)
        if of and part in ADDRESSES:  # positions out of range wrap around
            if of.startswith(TABLES):
                return tensor.remainder(len(self.model.embeddings.tables[int(of.rpartition(MARK)[2])]))
            shape = self.model.state_dict()[of].shape
            return tensor.remainder(shape[-1] if part == "columns" else int(np.prod(shape[:-1])))
        if not is_guarded or name not in self.ranges:
            return tensor
        low, high = self.ranges[name]
        is_plausible = (tensor >= low) & (tensor <= high)  # false for NaN
        return torch.where(is_plausible, tensor, torch.tensor(min(max(0.0, low), high), dtype=tensor.dtype))


class Memory:
    """Trained model, with a copy of its stored form that can be damaged.

    Args:
        model: Model, on the CPU in evaluation mode; its weights are overwritten.
        tensors: Stored tensors of each member.
    """

    def __init__(self, model: Model | Ensemble, tensors: Sequence[Mapping[str, Tensor]]) -> None:
        members = model.models if isinstance(model, Ensemble) else (model,)
        self.model = model
        self._members = [_Stored(member, own) for member, own in zip(members, tensors, strict=True)]

    @classmethod
    def read(cls, directory: Path) -> "Memory":
        """Read a model in the form in which `shunter.engine.checkpoint.storage.save_model` stores it.

        Raises:
            CheckpointError: A file is missing or damaged.
        """
        model, path = load_model(directory), directory / "model.safetensors"
        with opened(path) as file:
            tensors = tensors_of(file, path, read_json(directory / "model.json")["sha256"])
        if not isinstance(model, Ensemble):
            return cls(model, [tensors])
        prefixes = [f"{MEMBERS}{number}." for number in range(len(model.models))]
        own = [
            {name.removeprefix(one): tensor for name, tensor in tensors.items() if name.startswith(one)}
            for one in prefixes
        ]
        return cls(model, own)

    def member(self, number: int) -> "Memory":
        """Return a single member, with its own copy of the stored tensors."""
        stored = self._members[number]
        return Memory(stored.model, [stored.tensors])

    @property
    def models(self) -> list[Model]:
        """Members of the ensemble, each with its last loaded weights."""
        return [member.model for member in self._members]

    @property
    def members(self) -> int:
        """Number of members of the ensemble."""
        return len(self._members)

    @property
    def stored_bytes(self) -> int:
        """Number of stored bytes."""
        return sum(tensor.nbytes for member in self._members for tensor in member.tensors.values())

    @property
    def weights(self) -> np.ndarray:
        """Weight of each member in the result, float64 `[members]` or `[members, tasks]`."""
        return self.model.weights.double().numpy() if isinstance(self.model, Ensemble) else np.ones(1)

    @property
    def has_check_bits(self) -> bool:
        """Return True if check bits are stored that can correct bit flips."""
        return any(CHECKS in member.tensors for member in self._members)

    @contextmanager
    def damaged(self, errors: MemoryErrors, seed: int) -> Iterator[int]:
        """Inject faults into all stored tensors within a block; see `injected`."""
        tensors = [tensor for member in self._members for tensor in member.tensors.values()]
        rows = [table for member in self._members for table in member.tables]
        with injected(tensors, rows, errors, seed) as count:
            yield count

    def load(self, *, is_guarded: bool, is_corrected: bool = False) -> None:
        """Load the model with the currently stored weights.

        Args:
            is_guarded: If True, replace implausible numbers.
            is_corrected: If True, first correct bit flips by the stored check bits.
        """
        for member in self._members:
            member.load(is_guarded=is_guarded, is_corrected=is_corrected)

    def combine(self, logits: np.ndarray, kept: Sequence[int] | None = None) -> np.ndarray:
        """Return the log odds of the result from those of its members; NaN counts as even odds.

        Args:
            logits: `[members, rows]`, or `[members, rows, tasks]`.
            kept: Indices of the members to use; None for all. The weights of the others are redistributed.
        """
        logits = np.nan_to_num(logits.astype(np.float64), nan=0.0, posinf=60.0, neginf=-60.0)
        if not isinstance(self.model, Ensemble):
            return logits[0]
        weights = self.weights
        if kept is not None:
            own = np.zeros_like(weights)
            own[list(kept)] = weights[list(kept)]
            share = own.sum(0)
            weights = own * np.divide(weights.sum(0), share, out=np.zeros_like(share), where=share > 0)
        if self.model.combiner is not None:
            odds = torch.from_numpy(logits.T.copy()).float()
            return self.model.combiner(odds, torch.from_numpy(weights).float()).double().numpy()
        return np.einsum("m...,mr...->r...", weights, logits) if weights.ndim > 1 else weights @ logits

    def members_to_keep(self, undamaged: np.ndarray, logits: np.ndarray) -> list[int]:
        """Return the members to keep, given predictions of all members on a sample of rows.

        The members are chosen so that their result has the least Kullback-Leibler divergence from the original. Without
        damage, all are kept.

        Args:
            undamaged: Log odds of the undamaged result, `[rows]` or `[rows, tasks]`.
            logits: Current log odds, `[members, rows]`, or `[members, rows, tasks]`.
        """
        every = tuple(range(self.members))
        least = 1 if len(every) <= MOST_ENUMERATED else max(1, len(every) - 1)
        weights = self.weights.reshape(len(every), -1)
        subsets = [
            subset
            for size in range(len(every), least - 1, -1)
            for subset in combinations(every, size)
            if weights[list(subset)].sum(0).all()
        ]
        chances = 1 / (1 + np.exp(-undamaged))

        def divergence(kept: Sequence[int]) -> float:
            """Return the mean Kullback-Leibler divergence in nats; rounded, so that equal results tie."""
            now = self.combine(logits, kept)
            apart = chances * (undamaged - now) + np.logaddexp(0, now) - np.logaddexp(0, undamaged)
            return round(float(np.mean(apart)), 9)

        return list(min(subsets, key=divergence))
