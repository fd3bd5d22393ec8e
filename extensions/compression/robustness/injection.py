"""Errors of a memory, drawn by a seed and taken back bit by bit: bits that flip or are stuck, rows that are lost.

Each bit errs by itself with the same probability, which is how undervolted or seldom refreshed memory is commonly
modelled (Koppula et al., "EDEN", MICRO 2019, error model 0). Of lost rows all bits are zero.
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
    """What is drawn.

    Attributes:
        kind: What happens to a bit, or to a row.
        rate: Probability of it, for each bit or row by itself.
    """

    rate: float
    kind: ErrorKind = "flip"


@contextmanager
def injected(
    tensors: Sequence[Tensor], rows: Sequence[Sequence[Tensor]], errors: MemoryErrors, seed: int
) -> Iterator[int]:
    """Damage tensors in place for the time of a block; after it they are bit by bit what they were.

    Args:
        tensors: All that lies in the memory, on the CPU and contiguous.
        rows: Of each table the tensors whose parts along the first axis belong to its rows; among `tensors`.
        errors: What is drawn.
        seed: Seed of the draw; the same errors in the same tensors are the same.

    Yields:
        How many bits, or rows, have errors; a bit that is stuck at what it was is one of them.
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
            _err(bytes_of, bits, errors.kind)
    try:
        yield count
    finally:
        for (bytes_of, at), before in zip(places, former, strict=True):
            bytes_of[at] = before


def _positions(random: np.random.Generator, count: int, rate: float) -> np.ndarray:
    """Numbers below a count, each with the same probability by itself, in ascending order."""
    taken = int(random.binomial(count, rate))
    if taken > count // 16:  # so many that drawing them one by one would repeat itself
        return np.sort(random.choice(count, taken, replace=False))
    found = np.unique(random.integers(0, count, taken)) if taken else np.empty(0, dtype=np.int64)
    while len(found) < taken:
        found = np.unique(np.append(found, random.integers(0, count, taken - len(found))))
    return found


def _err(bytes_of: np.ndarray, bits: np.ndarray, kind: ErrorKind) -> None:
    at, masks = bits // 8, np.left_shift(1, bits % 8).astype(np.uint8)
    if kind == "flip":
        np.bitwise_xor.at(bytes_of, at, masks)
    elif kind == "stuck1":
        np.bitwise_or.at(bytes_of, at, masks)
    else:
        np.bitwise_and.at(bytes_of, at, ~masks)


def _bytes(tensor: Tensor) -> np.ndarray:
    """The bytes of a tensor, uint8 `[bytes]`, not a copy."""
    return tensor.view(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, dtype=np.uint8)


def _matrix(tensor: Tensor) -> np.ndarray:
    """The same, uint8 `[rows, bytes of a row]`."""
    return _bytes(tensor).reshape(len(tensor), -1)
