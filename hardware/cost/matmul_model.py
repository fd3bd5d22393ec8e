"""How long a matrix product takes, from products of other sizes that were measured.

A product costs its arithmetic, its traffic and its start: `seconds = flops / F + bytes / W + s`. The three are fitted
to the measured curve, none of them negative, by least squares of the relative errors (Lawson and Hanson, "Solving
Least Squares Problems", 1974, chapter 23). Without a curve the slower counts of two: the arithmetic at the rate of a
large product, and the traffic at that of a large copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.hardware.types import HardwareProfile, MatmulRate, Precision

FEWEST_POINTS = 4
ITEM_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True, kw_only=True)
class MatmulModel:
    """What one product costs with all cores of an accelerator.

    Attributes:
        seconds_per_flop: Time of the arithmetic.
        seconds_per_byte: Time of the traffic of both operands and the result.
        start_seconds: Time that any product takes, whatever its size.
        together: Whether arithmetic and traffic add up, as fitted, or overlap, as a roofline has it.
        item_bytes: Bytes of one number.
    """

    seconds_per_flop: float
    seconds_per_byte: float
    start_seconds: float
    together: bool
    item_bytes: int

    @classmethod
    def of(cls, profile: HardwareProfile, precision: Precision) -> "MatmulModel":
        """Model of an accelerator in one precision."""
        points = profile.matmul_curve.get(precision, ())
        if len(points) >= FEWEST_POINTS:
            return cls.fit(points, ITEM_BYTES[precision])
        rates = profile.matmul_flops_per_second
        return cls(
            seconds_per_flop=1 / rates.get(precision, rates["fp32"]).value,
            seconds_per_byte=1 / profile.copy_bytes_per_second.value,
            start_seconds=0.0,
            together=False,
            item_bytes=ITEM_BYTES[precision],
        )

    @classmethod
    def fit(cls, points: Sequence[MatmulRate], item_bytes: int) -> "MatmulModel":
        """Fit measured products."""
        from scipy.optimize import nnls

        flops = np.array([2.0 * rate.m * rate.n * rate.k for rate in points])
        traffic = np.array([product_bytes(rate.m, rate.n, rate.k, item_bytes) for rate in points], dtype=float)
        seconds = flops / np.array([rate.flops_per_second.value for rate in points])
        design = np.stack([flops, traffic, np.ones(len(points))], axis=1) / seconds[:, np.newaxis]
        scale = design.max(axis=0)
        found, _ = nnls(design / scale, np.ones(len(points)))
        per_flop, per_byte, start = found / scale
        return cls(
            seconds_per_flop=float(per_flop),
            seconds_per_byte=float(per_byte),
            start_seconds=float(start),
            together=True,
            item_bytes=item_bytes,
        )

    def seconds(self, count: int, m: int, n: int, k: int, share: float = 1.0) -> float:
        """Seconds of `count` products of one size that are started together.

        Args:
            count: Number of products.
            m: Rows of the left side.
            n: Columns of the right side.
            k: Length of the sums.
            share: Share of the accelerator's cores at work. Half of them reach the full rate of the memory.
        """
        arithmetic = count * 2.0 * m * n * k * self.seconds_per_flop / share
        traffic = count * product_bytes(m, n, k, self.item_bytes) * self.seconds_per_byte / min(1.0, 2 * share)
        return (arithmetic + traffic if self.together else max(arithmetic, traffic)) + self.start_seconds


def product_bytes(m: int, n: int, k: int, item_bytes: int) -> int:
    """Of both operands and the result."""
    return item_bytes * (m * k + k * n + m * n)
