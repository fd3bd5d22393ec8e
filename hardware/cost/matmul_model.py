"""Time of a matrix product, interpolated from measured products of other sizes.

The model is `seconds = flops / F + bytes / W + s`: arithmetic, memory traffic and a constant start. The three
coefficients are fitted to the measured curve by non-negative least squares of the relative errors (Lawson and Hanson,
"Solving Least Squares Problems", 1974, chapter 23). Without a curve, the time is a roofline: the larger of the
arithmetic at the rate of a large product and the traffic at the rate of a large copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.hardware.types import HardwareProfile, MatmulRate, Precision

FEWEST_POINTS = 4
ITEM_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True, kw_only=True)
class MatmulModel:
    """Cost model of one matrix product on all cores of an accelerator.

    Attributes:
        seconds_per_flop: Seconds of one floating-point operation.
        seconds_per_byte: Seconds to move one byte of the operands or the result.
        start_seconds: Constant seconds of a product, independent of its size.
        together: True if arithmetic and traffic add up (fitted curve); False if they overlap (roofline).
        item_bytes: Bytes of one number.
    """

    seconds_per_flop: float
    seconds_per_byte: float
    start_seconds: float
    together: bool
    item_bytes: int

    @classmethod
    def of(cls, profile: HardwareProfile, precision: Precision) -> "MatmulModel":
        """Return the model of an accelerator in one precision."""
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
        """Fit the seconds per flop, per byte and per product to measured matrix products."""
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
        """Return the seconds of `count` products `[m, k] x [k, n]` that are started together.

        Args:
            count: Number of products.
            m: Rows of the left operand.
            n: Columns of the right operand.
            k: Inner dimension.
            share: Share of the accelerator's cores in use. Half of the cores reach the full memory bandwidth.
        """
        arithmetic = count * 2.0 * m * n * k * self.seconds_per_flop / share
        traffic = count * product_bytes(m, n, k, self.item_bytes) * self.seconds_per_byte / min(1.0, 2 * share)
        return (arithmetic + traffic if self.together else max(arithmetic, traffic)) + self.start_seconds


def product_bytes(m: int, n: int, k: int, item_bytes: int) -> int:
    """Return the bytes of both operands and the result."""
    return item_bytes * (m * k + k * n + m * n)
