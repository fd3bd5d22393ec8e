"""Injection of memory faults with a seed, reverted bit by bit afterwards: flipped or stuck bits, and lost rows.

Each bit is faulty independently with the same probability, a common model of undervolted or rarely refreshed memory
(Koppula et al., "EDEN", MICRO 2019, error model 0). All bits of lost rows are zero.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

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
    random = np.random.default_rng(seed)
    if errors.kind == "rows":
        drawn = [(table, _positions(random, len(table[0]), errors.rate)) for table in rows]
        places = [(_matrix(part), at) for table, at in drawn for part in table]
        former = [bytes_of[at].copy() for bytes_of, at in places]
        count = sum(len(at) for _, at in drawn)
        for bytes_of, at in places:
            bytes_of[at] = 0
    else:
        found = [(_bytes(one), _positions(random, 8 * one.nbytes, errors.rate)) for one in tensors]
        places = [(bytes_of, np.unique(bits // 8)) for bytes_of, bits in found]
        former = [bytes_of[at].copy() for bytes_of, at in places]
        count = sum(len(bits) for _, bits in found)
        for bytes_of, bits in found:
            _flip(bytes_of, bits, errors.kind)
    try:
        yield count
    finally:
        for (bytes_of, at), before in zip(places, former, strict=True):
            bytes_of[at] = before


def _positions(random: np.random.Generator, count: int, rate: float) -> np.ndarray:
    """Return the ascending numbers below `count` that are drawn, each independently with probability `rate`."""
    taken = int(random.binomial(count, rate))
    if taken > count // 16:  # so many that single draws would repeat often
        return np.sort(random.choice(count, taken, replace=False))
    found = np.unique(random.integers(0, count, taken)) if taken else np.empty(0, dtype=np.int64)
    while len(found) < taken:
        found = np.unique(np.append(found, random.integers(0, count, taken - len(found))))
    return found


def _flip(bytes_of: np.ndarray, bits: np.ndarray, kind: ErrorKind) -> None:
    at, masks = bits // 8, np.left_shift(1, bits % 8).astype(np.uint8)
    if kind == "flip":
        np.bitwise_xor.at(bytes_of, at, masks)
    elif kind == "stuck1":
        np.bitwise_or.at(bytes_of, at, masks)
    else:
        np.bitwise_and.at(bytes_of, at, ~masks)


def _bytes(tensor: Tensor) -> np.ndarray:
    """Return the bytes of a tensor, uint8 `[bytes]`, as a view."""
    return tensor.view(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, dtype=np.uint8)


def _matrix(tensor: Tensor) -> np.ndarray:
    """Return the bytes of a tensor, uint8 `[rows, bytes of a row]`, as a view."""
    return _bytes(tensor).reshape(len(tensor), -1)
