"""Synthetic click data in Criteo's shape: skewed ids, gaps, and a signal that a model can learn.

The logit of a click is a constant plus an effect of each of six categorical values. Two pairs of values add the product
of their latent numbers, which is learnable only with interactions. Four of the integers add their weighted logarithms.
Effects and latent numbers are hashed from the value, so no table is stored at any size.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import UNIT_BYTES, Columns, RawBatch, Unit
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.schema import Options, Schema
from shunter.ingestion.sources.criteo import NUMERIC, criteo_schema, with_buckets
from shunter.ingestion.sources.guard import Budget

CHUNK_ROWS = 32_768
TEXT_BYTES = 240  # approximate size of a row as text
# Distinct values of the 26 columns of Criteo Kaggle, capped at a million.
CARDINALITIES = (
    1460, 583, 1_000_000, 1_000_000, 305, 24, 12_517, 633, 3, 93_145, 5683, 1_000_000, 3194,
    27, 14_992, 1_000_000, 10, 5652, 2173, 4, 1_000_000, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip
_ZIPF_EXPONENT = 1.05
_MISSING_NUMERIC = 0.1
_MISSING_CATEGORICAL = 0.03
_EFFECTS = (0, 1, 6, 8, 13, 16)
_PAIRS = ((4, 7), (10, 12))
_WEIGHTS = (0.35, -0.25, 0.2, 0.15)
_BIAS = -2.4


@dataclass(frozen=True)
class SyntheticSource:
    """Source of random rows; the same seed and size always give the same rows."""

    rows: int
    seed: int = 0
    name: str = "synthetic"
    schema: Schema = field(default_factory=lambda: criteo_schema(Options()))
    paths: tuple[Path, ...] = ()

    @property
    def identity(self) -> str:
        """Text with the number of rows and the seed."""
        return f"synthetic:{self.rows}:{self.seed}"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield units of chunks, each with about `unit_bytes` bytes as text."""
        at_once = max(1, unit_bytes // (CHUNK_ROWS * TEXT_BYTES))
        for start in range(0, self._chunks, at_once):
            yield Unit(None, start, min(start + at_once, self._chunks))

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[tuple[int, int]]:
        """Yield index and number of rows of each chunk, of the whole source or of one unit."""
        start, end = (0, self._chunks) if unit is None else (unit.start, unit.end)
        assert end is not None
        for index in range(start, end):
            rows = min(CHUNK_ROWS, self.rows - index * CHUNK_ROWS)
            if budget is not None:
                budget.file_bytes += rows * TEXT_BYTES
            yield index, rows

    @property
    def _chunks(self) -> int:
        return -(-self.rows // CHUNK_ROWS)

    def parse(self, chunk: tuple[int, int]) -> RawBatch:
        """Generate the rows of one chunk."""
        index, rows = chunk
        return with_buckets(generate(np.random.default_rng([self.seed, index]), rows), self.schema)


def generate(random: np.random.Generator, rows: int) -> RawBatch:
    """Generate random rows of a click log."""
    values = np.stack([_zipf(random, cardinality, rows) for cardinality in CARDINALITIES])
    # A bijective map, so that distinct values have distinct 32-bit ids, different in every column.
    column = np.arange(len(CARDINALITIES), dtype=np.uint64)[:, None]
    ids = ((values + column * np.uint64(0x9E3779B9)) * np.uint64(0x85EBCA6B)) & np.uint64(0xFFFFFFFF)
    counts = np.floor(random.lognormal(1.0, 1.5, (len(NUMERIC), rows))).clip(0, 10_000_000)

    logit = np.full(rows, _BIAS)
    for index in _EFFECTS:
        logit += 0.7 * _normal(ids[index])
    for first, second in _PAIRS:
        logit += 0.9 * _normal(ids[first]) * _normal(ids[second])
    for weight, numbers in zip(_WEIGHTS, counts, strict=False):
        logit += weight * (np.log1p(numbers) - 1.3)
    labels = random.random(rows) < 1 / (1 + np.exp(-logit))

    numeric = counts.astype(np.float32)
    numeric[random.random(numeric.shape, np.float32) < _MISSING_NUMERIC] = np.nan
    keys = ids + np.uint64(1)
    keys[random.random(keys.shape, np.float32) < _MISSING_CATEGORICAL] = 0
    return RawBatch(labels.astype(np.float32), Columns(numeric, keys, []))


def _zipf(random: np.random.Generator, cardinality: int, rows: int) -> NDArray[np.uint64]:
    """Return ranks from 0 with a power-law probability, by the inverse of a continuous power law, uint64 [rows]."""
    power = 1 - _ZIPF_EXPONENT
    uniform = random.random(rows)
    ranks = (1 + uniform * ((cardinality + 1.0) ** power - 1)) ** (1 / power)
    return np.minimum(ranks.astype(np.uint64), np.uint64(cardinality)) - np.uint64(1)


def _normal(ids: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return an approximately standard normal number for each id: the scaled sum of four hashed uniforms."""
    hashed = mix(ids)
    parts = sum((hashed >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    return (parts / 65536.0 - 2.0) * np.sqrt(3.0)
